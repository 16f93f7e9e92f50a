//! The application behind a door: it counts its effects, and does as it is told.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use onlyonce_core::BoxError;
use tokio::sync::watch;
use tower_service::Service;

/// A service that can be told what to answer, and remembers what it was asked. Cheap to clone.
#[derive(Clone)]
pub struct Application(Arc<State>);

struct State {
    turn: Mutex<Turn>,
    seen: Mutex<Vec<Seen>>,
    effects: watch::Sender<u32>,
    held: watch::Sender<bool>,
}

/// What the application does with a request.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The status of its answer.
    pub status: u16,
    /// The headers of its answer, beside those of HTTP itself.
    pub headers: Vec<(&'static str, Bytes)>,
    /// The body of its answer.
    pub body: Given,
}

/// The body of an answer, or none at all.
#[derive(Debug, Clone)]
pub enum Given {
    /// `{"effect":N}`, where N counts the executions: two answers are the same only if one is a replay.
    Effect,
    /// These bytes.
    Bytes(Bytes),
    /// These bytes, and then the connection breaks.
    CutOff(Bytes),
    /// These bytes, again and again.
    Endless(Bytes),
    /// These bytes, and then nothing for ever.
    Hanging(Bytes),
    /// No answer: the connection breaks.
    Vanish,
}

/// A request as the application saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Turn {
    /// An answer with `status` that counts its effect.
    pub fn status(status: u16) -> Self {
        Self { status, headers: vec![("content-type", "application/json".into())], body: Given::Effect }
    }

    /// An answer of 200 with a body.
    pub fn body(body: Given) -> Self {
        Self { body, ..Self::status(200) }
    }

    /// No answer.
    pub fn vanish() -> Self {
        Self::body(Given::Vanish)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<Bytes>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Default for Application {
    fn default() -> Self {
        Self(Arc::new(State {
            turn: Mutex::new(Turn::status(201)),
            seen: Mutex::default(),
            effects: watch::Sender::new(0),
            held: watch::Sender::new(false),
        }))
    }
}

impl Application {
    /// What to do from now on.
    pub fn answers(&self, turn: Turn) {
        *self.0.turn.lock().unwrap() = turn;
    }

    /// How often it ran.
    pub fn effects(&self) -> u32 {
        *self.0.effects.borrow()
    }

    /// Waits until it ran, or began to, so often.
    pub async fn ran(&self, times: u32) {
        let mut effects = self.0.effects.subscribe();
        effects.wait_for(|effects| *effects >= times).await.expect("the application lives");
    }

    /// From now on requests have their effect and then wait.
    pub fn hold(&self) {
        self.0.held.send_replace(true);
    }

    /// Lets those who wait go on.
    pub fn go_on(&self) {
        self.0.held.send_replace(false);
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    async fn handle<B>(self, request: Request<B>) -> Response<AppBody>
    where
        B: Body<Data = Bytes>,
        B::Error: fmt::Debug,
    {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let turn = self.0.turn.lock().unwrap().clone();
        let seen = Seen { method: head.method, uri: head.uri, headers: head.headers, body };
        self.0.seen.lock().unwrap().push(seen);
        let mut effect = 0;
        self.0.effects.send_modify(|effects| {
            *effects += 1;
            effect = *effects;
        });
        let mut held = self.0.held.subscribe();
        held.wait_for(|held| !held).await.expect("the application lives");
        let body = match turn.body {
            Given::Effect => AppBody::whole(format!("{{\"effect\":{effect}}}").into()),
            Given::Bytes(bytes) => AppBody::whole(bytes),
            Given::CutOff(bytes) => AppBody { next: Some(bytes), then: Then::Break { at_once: false } },
            Given::Endless(bytes) => AppBody { next: Some(bytes.clone()), then: Then::Repeat(bytes) },
            Given::Hanging(bytes) => AppBody { next: Some(bytes), then: Then::Hang },
            Given::Vanish => panic!("told to vanish"),
        };
        let mut response = Response::new(body);
        *response.status_mut() = turn.status.try_into().unwrap();
        for (name, value) in turn.headers {
            let value = HeaderValue::from_maybe_shared(value).unwrap();
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
        response
    }
}

impl<B> Service<Request<B>> for Application
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Debug,
{
    type Response = Response<AppBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<AppBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let application = self.clone();
        Box::pin(async move { Ok(application.handle(request).await) })
    }
}

/// The body of an application's answer.
pub struct AppBody {
    next: Option<Bytes>,
    then: Then,
}

enum Then {
    End,
    /// What was said before has left when it breaks off.
    Break {
        at_once: bool,
    },
    Repeat(Bytes),
    Hang,
}

impl AppBody {
    fn whole(bytes: Bytes) -> Self {
        Self { next: Some(bytes).filter(|bytes| !bytes.is_empty()), then: Then::End }
    }
}

impl Body for AppBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(bytes) = self.next.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        match &self.then {
            Then::End => Poll::Ready(None),
            Then::Break { at_once: true } => Poll::Ready(Some(Err("told to break off".into()))),
            Then::Break { at_once: false } => {
                self.then = Then::Break { at_once: true };
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Then::Repeat(bytes) => {
                // Others get a turn between two pieces of an endless body.
                let bytes = bytes.clone();
                self.next = Some(bytes);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Then::Hang => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && matches!(self.then, Then::End)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match &self.then {
            Then::End => {
                http_body::SizeHint::with_exact(self.next.as_ref().map_or(0, |next| next.len() as u64))
            }
            _ => http_body::SizeHint::default(),
        }
    }
}
