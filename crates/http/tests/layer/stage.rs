//! What the layer's tests share: a layer over the memory store, called without a network, and eyes for its events.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use onlyonce_core::clock::SystemClock;
use onlyonce_core::{Clock, Engine, MemoryLimits, MemoryStore, Store};
use onlyonce_http::{Body, Event, LayerBuilder, Observer, OnceLayer, OnceService, Rules};
use tower_layer::Layer;
use tower_service::Service;

/// Answers by a function, and counts.
#[derive(Clone)]
pub(crate) struct Inner {
    answer: Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync>,
    effects: Arc<AtomicU32>,
}

pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Response<Body>, Broken>> + Send>>;

/// An error that an inner service may fail with.
#[derive(Debug)]
pub(crate) struct Broken(pub(crate) Option<onlyonce_http::Dispatch>);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the client failed")
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_ref().map(|dispatch| dispatch as _)
    }
}

impl Service<Request<Body>> for Inner {
    type Response = Response<Body>;
    type Error = Broken;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        self.effects.fetch_add(1, Ordering::SeqCst);
        (self.answer)(request)
    }
}

pub(crate) struct Stage {
    pub(crate) service: OnceService<Inner>,
    pub(crate) layer: OnceLayer,
    pub(crate) effects: Arc<AtomicU32>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) engine: Engine,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) response: Response<()>,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn problem(&self) -> String {
        let document: serde_json::Value = serde_json::from_slice(&self.body).unwrap_or_default();
        document["type"].as_str().unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned()
    }
}

impl Stage {
    pub(crate) async fn new<F>(
        rules: Rules,
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Broken>> + Send + 'static,
    {
        Self::built(answer, |builder| builder.defaults(rules)).await
    }

    pub(crate) async fn built<F>(
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
        build: impl FnOnce(LayerBuilder) -> LayerBuilder,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Broken>> + Send + 'static,
    {
        Self::by_clock(Arc::new(SystemClock::new()), answer, build).await
    }

    pub(crate) async fn by_clock<F>(
        clock: Arc<dyn Clock>,
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
        build: impl FnOnce(LayerBuilder) -> LayerBuilder,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Broken>> + Send + 'static,
    {
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock), MemoryLimits::default()));
        Self::over(store, clock, answer, build).await
    }

    pub(crate) async fn over<F>(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        answer: impl Fn(Request<Body>) -> F + Send + Sync + 'static,
        build: impl FnOnce(LayerBuilder) -> LayerBuilder,
    ) -> Self
    where
        F: Future<Output = Result<Response<Body>, Broken>> + Send + 'static,
    {
        let engine = Engine::builder(store.clone()).clock(clock).build().await.unwrap();
        let seen = Arc::new(Seen::default());
        let builder = OnceLayer::builder(engine.clone()).observer(seen.clone());
        let layer = build(builder).build().unwrap();
        let effects = Arc::<AtomicU32>::default();
        let answer: Arc<dyn Fn(Request<Body>) -> Answering + Send + Sync> =
            Arc::new(move |request| Box::pin(answer(request)));
        let service = layer.layer(Inner { answer, effects: effects.clone() });
        Self { service, layer, effects, seen, store, engine }
    }

    pub(crate) async fn call(&self, request: Request<Body>) -> Got {
        let response = self.service.clone().call(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Got { status: head.status.as_u16(), response: Response::from_parts(head, ()), body }
    }

    pub(crate) fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
}

/// A keyed POST by alice.
pub(crate) fn ask(key: &str) -> Request<Body> {
    let request =
        Request::post("/payments").header("idempotency-key", key).header("authorization", "Bearer alice");
    request.body(Body::from("body")).unwrap()
}

pub(crate) fn answer(status: u16) -> Response<Body> {
    Response::builder().status(status).body(Body::from("done")).unwrap()
}

pub(crate) async fn created(_: Request<Body>) -> Result<Response<Body>, Broken> {
    Ok(answer(201))
}

/// Remembers events.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Vec<(String, Event)>>);

impl Observer for Seen {
    fn event(&self, route: &str, event: Event) {
        self.0.lock().unwrap().push((route.to_owned(), event));
    }
}

impl Seen {
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().iter().map(|(_, event)| event.name()).collect()
    }

    pub(crate) fn all(&self) -> Vec<(String, Event)> {
        self.0.lock().unwrap().clone()
    }
}
