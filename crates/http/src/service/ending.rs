//! From what the application did to how its grant ends. The answer is kept before its first byte leaves.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use onlyonce_core::{BoxError, Ending, Outcome, Retention, Tombstone};

use crate::body::Body;
use crate::classify::{Steer, Steering, keeps_fingerprint};
use crate::dispatch::Dispatch;
use crate::limits::{Read, read_now, read_within};
use crate::problem::grpc_status;
use crate::route::Route;
use crate::rules::{Retain, Verdict};
use crate::snapshot;
use crate::trace::TraceContext;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// What the work hands to its caller.
pub(super) enum Made {
    /// An answer of the application.
    Answer { response: Response<Body>, not_kept: Option<Tombstone>, is_odd: bool },
    /// One that broke off, of work that the application says is done.
    BrokenOff {
        status: StatusCode,
        /// All of it but the status of gRPC.
        came: Option<Response<Body>>,
    },
    /// None.
    Nothing(Dispatch),
}

/// How a grant ends, and what its caller gets: boxed, because it passes through many hands.
pub(super) type Ended = Ending<Box<Made>>;

/// The ending that an answer makes.
pub(super) enum Ends {
    /// It is known.
    Now(Ended),
    /// The answer's body is still to come.
    Later(Pin<Box<dyn Future<Output = Ended> + Send>>),
}

impl Ends {
    /// The ending, once it is known.
    pub(super) async fn ended(self) -> Ended {
        match self {
            Self::Now(ended) => ended,
            Self::Later(ending) => ending.await,
        }
    }
}

/// How a dispatch without an answer ends.
pub(super) fn without_answer(dispatch: Dispatch) -> Ended {
    let value = Box::new(Made::Nothing(dispatch));
    match dispatch {
        Dispatch::NothingSent => Ending::Release { value, keep_fingerprint: true },
        Dispatch::TimedOut | Dispatch::NoAnswer => Ending::Abandon { value },
    }
}

/// How an answer ends its grant. `trace` is the one it was made in.
pub(super) fn of_answer<R>(route: &Arc<Route>, response: Response<R>, trace: Option<TraceContext>) -> Ends
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut head, body) = response.map(Body::new).into_parts();
    if let Some(dispatch) = head.extensions.remove::<Dispatch>() {
        return Ends::Now(without_answer(dispatch));
    }
    let steering = Steering::take(&mut head.headers);
    let answering = Answering { route, steering, trace };
    let content_type = head.headers.get(CONTENT_TYPE);
    let status = status_of(&head, content_type, None);
    let verdict = match steering.outcome {
        Some(Steer::Discard) => {
            return Ends::Now(answering.answer(head, body, Some(Tombstone::Discarded)));
        }
        Some(steer) => said(steer),
        None => route.classes.of(status),
    };
    if verdict != Verdict::Store {
        // What is not kept need not be read first.
        return Ends::Now(answering.end(verdict, status, head, body));
    }
    if content_type.is_some_and(is_stream) {
        return Ends::Now(answering.answer(head, body, Some(Tombstone::TooLarge)));
    }
    match read_now(body, route.response_bytes_max, None) {
        Ok(read) => Ends::Now(answering.read(head, read)),
        Err(body) => {
            let route = Arc::clone(route);
            Ends::Later(Box::pin(async move {
                let clock = route.engine.clock();
                let reading = read_within(body, route.response_bytes_max, route.response_within, &**clock);
                let read = reading.await;
                Answering { route: &route, steering, trace }.read(head, read)
            }))
        }
    }
}

/// An answer on its way to its ending.
struct Answering<'r> {
    route: &'r Route,
    steering: Steering,
    trace: Option<TraceContext>,
}

impl Answering<'_> {
    fn read(self, head: Parts, read: Read) -> Ended {
        match read {
            Read::Whole { bytes, trailers } => self.whole(head, bytes, trailers),
            Read::Unbounded { front, rest } | Read::NoRoom { front, rest } => {
                self.answer(head, Body::prefixed(front, rest), Some(Tombstone::TooLarge))
            }
            Read::Broken(error) => {
                tracing::debug!(%error, "the application's answer broke off");
                self.broken_off(head, None)
            }
        }
    }

    /// Without its end nobody knows what an answer says, unless the application has said it before. `body` is there where nothing
    /// but the status of gRPC is missing.
    fn broken_off(self, head: Parts, body: Option<Body>) -> Ended {
        let status = head.status;
        if self.steering.outcome == Some(Steer::Committed) {
            let outcome = Outcome::tombstone(snapshot::CONTENT_VERSION, Tombstone::Discarded);
            let came = body.map(|body| Response::from_parts(head, body));
            return self.complete(outcome, status, Box::new(Made::BrokenOff { status, came }));
        }
        match body {
            // In shadow mode what it lacks is for the caller to see.
            Some(body) if self.route.shadow => Ending::Abandon { value: self.made(head, body, None) },
            _ => without_answer(Dispatch::NoAnswer),
        }
    }

    fn whole(self, head: Parts, bytes: Bytes, trailers: Option<HeaderMap>) -> Ended {
        if is_cut_off(&head, bytes.len()) {
            return self.broken_off(head, None);
        }
        if lacks_grpc_status(&head, trailers.as_ref()) {
            return self.broken_off(head, Some(Body::whole(bytes, trailers)));
        }
        if self.steering.outcome.is_none() && trailers.is_some() {
            let status = status_of(&head, head.headers.get(CONTENT_TYPE), trailers.as_ref());
            let verdict = self.route.classes.of(status);
            if verdict != Verdict::Store {
                return self.end(verdict, status, head, Body::whole(bytes, trailers));
            }
        }
        if self.route.retain == Retain::StatusOnly {
            return self.answer(head, Body::whole(bytes, trailers), Some(Tombstone::Discarded));
        }
        let Some(kept) = self.kept(&head, trailers.as_ref(), &bytes) else {
            // Fail closed: what cannot be looked into may hold what must not be kept.
            return self.answer(head, Body::whole(bytes, trailers), Some(Tombstone::Discarded));
        };
        let (status, outcome) = (head.status, Outcome::kept(snapshot::CONTENT_VERSION, kept));
        let value = self.made(head, Body::whole(bytes, trailers), None);
        self.complete(outcome, status, value)
    }

    /// What is kept of an answer; `None` when what must not be kept cannot be found in it.
    fn kept(&self, head: &Parts, trailers: Option<&HeaderMap>, body: &Bytes) -> Option<Vec<u8>> {
        let cookies = self.route.store_set_cookie;
        let Some(redaction) = &self.route.redaction else {
            return Some(snapshot::encode(head.status, &head.headers, trailers, body, cookies));
        };
        let redacted = redaction.apply(&head.headers, trailers, body)?;
        Some(redacted.into_snapshot(head.status).encode(cookies))
    }

    /// Completes without a body on record.
    fn answer(self, head: Parts, body: Body, why: Option<Tombstone>) -> Ended {
        let tombstone = why.unwrap_or(Tombstone::Discarded);
        let (status, outcome) = (head.status, Outcome::tombstone(snapshot::CONTENT_VERSION, tombstone));
        let value = self.made(head, body, why);
        self.complete(outcome, status, value)
    }

    fn complete(self, outcome: Outcome, status: StatusCode, value: Box<Made>) -> Ended {
        let retention: Option<Retention> = self.steering.retention;
        match outcome.with_head(snapshot::head(status, self.trace)) {
            Ok(outcome) => Ending::Complete { value, outcome, retention },
            // So few bytes are never too long; should they be, nobody knows is the safe thing to say.
            Err(_) => Ending::Abandon { value },
        }
    }

    /// Ends without an outcome. `status` is the one that was judged.
    fn end(self, verdict: Verdict, status: StatusCode, head: Parts, body: Body) -> Ended {
        let value = self.made(head, body, None);
        match verdict {
            Verdict::Release => Ending::Release { value, keep_fingerprint: keeps_fingerprint(status) },
            Verdict::Store | Verdict::Unknown => Ending::Abandon { value },
        }
    }

    fn made(&self, head: Parts, body: Body, not_kept: Option<Tombstone>) -> Box<Made> {
        let response = Response::from_parts(head, body);
        Box::new(Made::Answer { response, not_kept, is_odd: self.steering.is_odd })
    }
}

const fn said(steer: Steer) -> Verdict {
    match steer {
        Steer::Committed | Steer::Discard => Verdict::Store,
        Steer::Failed => Verdict::Release,
        Steer::Unknown => Verdict::Unknown,
    }
}

/// The status that rules are applied to: for gRPC, the one its code stands for.
fn status_of(head: &Parts, content_type: Option<&HeaderValue>, trailers: Option<&HeaderMap>) -> StatusCode {
    let is_grpc = content_type.is_some_and(is_grpc);
    let code = || head.headers.get(GRPC_STATUS).or_else(|| trailers?.get(GRPC_STATUS));
    if is_grpc { code().and_then(grpc_status).unwrap_or(head.status) } else { head.status }
}

pub(super) fn is_grpc(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"application/grpc")
}

/// Whether this is a gRPC answer that has not come to its end, which is where it says how it went.
fn lacks_grpc_status(head: &Parts, trailers: Option<&HeaderMap>) -> bool {
    // gRPC-Web says it in the body.
    let is_plain = |content_type: &HeaderValue| {
        let rest = content_type.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
    };
    let has_status = |fields: &HeaderMap| fields.contains_key(GRPC_STATUS);
    head.status == StatusCode::OK
        && head.headers.get(CONTENT_TYPE).is_some_and(is_plain)
        && !has_status(&head.headers)
        && !trailers.is_some_and(has_status)
}

/// Answers that are made to go on: waiting for their end would keep them from everybody.
fn is_stream(content_type: &HeaderValue) -> bool {
    let begins_with = |name: &str| {
        let beginning = content_type.as_bytes().get(..name.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(name.as_bytes()))
    };
    begins_with("text/event-stream") || begins_with("multipart/x-mixed-replace")
}

/// Whether the body is shorter or longer than the answer itself says.
fn is_cut_off(head: &Parts, len: usize) -> bool {
    if head.status == StatusCode::NOT_MODIFIED {
        return false;
    }
    let length =
        head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    length.is_some_and(|length| length != len as u64)
}
