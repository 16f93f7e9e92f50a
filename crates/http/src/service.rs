//! The service: decides whether a request is protected, and lets everything else through untouched.

mod ending;
mod prepare;
mod protect;
mod recover;
mod reply;
mod shadow;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onlyonce_core::{BoxError, Key};
use pin_project_lite::pin_project;
use tower_service::Service;

use self::protect::Protect;
use crate::body::Body;
use crate::header;
use crate::layer::Shared;
use crate::observe::Event;
use crate::route::Route;
use crate::rules::KeySource;

/// A service behind an [`OnceLayer`](crate::OnceLayer).
#[derive(Clone)]
pub struct OnceService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> OnceService<S> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S: fmt::Debug> fmt::Debug for OnceService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for OnceService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = OnceFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        header::strip_request_marks(request.headers_mut());
        let route = self.shared.route(request.uri().path());
        if !route.protects(request.method()) {
            return OnceFuture::pass(self.inner.call(request.map(Body::new)));
        }
        let key = match asked_key(&route, &request) {
            AskedKey::None if !route.required || route.shadow => {
                self.shared.observer.event(&route.name, Event::Unkeyed { first: route.is_first_unkeyed() });
                return OnceFuture::pass(self.inner.call(request.map(Body::new)));
            }
            key => key,
        };
        // The clone that was polled ready goes with the request; the other one waits for the next.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        let protect = Protect::new(Arc::clone(&self.shared), route, inner, request.headers());
        let (head, body) = request.map(Body::new).into_parts();
        OnceFuture::protected(Box::pin(protect.answer(key, Box::new(head), body)))
    }
}

/// What a request says about its key, before its body is read.
pub(crate) enum AskedKey {
    None,
    Key(Key),
    Not(header::NoKey),
    /// It is in the body.
    InBody,
}

fn asked_key<B>(route: &Route, request: &Request<B>) -> AskedKey {
    match &route.key {
        KeySource::Json(_) => AskedKey::InBody,
        KeySource::Header(name) => match header::key(request.headers(), name, route.form) {
            Ok(None) => AskedKey::None,
            Ok(Some(key)) => AskedKey::Key(key),
            Err(error) => AskedKey::Not(error),
        },
    }
}

type Answering<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

pin_project! {
    /// The answer of an [`OnceService`].
    pub struct OnceFuture<F, E> {
        #[pin]
        kind: Kind<F, E>,
    }
}

pin_project! {
    #[project = KindProjected]
    enum Kind<F, E> {
        Pass { #[pin] answer: F },
        Protected { answer: Answering<E> },
    }
}

impl<F, E> OnceFuture<F, E> {
    const fn pass(answer: F) -> Self {
        Self { kind: Kind::Pass { answer } }
    }

    const fn protected(answer: Answering<E>) -> Self {
        Self { kind: Kind::Protected { answer } }
    }
}

impl<F, E> fmt::Debug for OnceFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceFuture")
    }
}

impl<F, E, R> Future for OnceFuture<F, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Output = Result<Response<Body>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().kind.project() {
            KindProjected::Pass { answer } => answer.poll(cx).map_ok(|mut response| {
                header::strip_steering(response.headers_mut());
                response.map(Body::new)
            }),
            KindProjected::Protected { answer } => answer.as_mut().poll(cx),
        }
    }
}
