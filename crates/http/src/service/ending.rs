//! From what the application did to how its grant ends. The answer is kept before its first byte leaves.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use onlyonce_core::{BoxError, Ending, Outcome, Retention, Tombstone};

use crate::body::Body;
use crate::classify::{Steer, Steering, keeps_fingerprint};
use crate::dispatch::Dispatch;
use crate::limits::{Read, read_within};
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
    /// None.
    Nothing(Dispatch),
}

/// How a dispatch without an answer ends.
pub(super) fn without_answer(dispatch: Dispatch) -> Ending<Made> {
    match dispatch {
        Dispatch::NothingSent => Ending::Release { value: Made::Nothing(dispatch), keep_fingerprint: true },
        Dispatch::TimedOut | Dispatch::NoAnswer => Ending::Abandon { value: Made::Nothing(dispatch) },
    }
}

/// How an answer ends its grant. `trace` is the one it was made in.
pub(super) async fn of_answer<R>(
    route: &Route,
    response: Response<R>,
    trace: Option<TraceContext>,
) -> Ending<Made>
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut head, body) = response.into_parts();
    if let Some(dispatch) = head.extensions.remove::<Dispatch>() {
        return without_answer(dispatch);
    }
    let steering = Steering::take(&mut head.headers);
    let verdict = match steering.outcome {
        Some(Steer::Discard) => {
            let made = Answering { route, steering, trace }.answer(
                head,
                Body::new(body),
                Some(Tombstone::Discarded),
            );
            return made;
        }
        Some(steer) => said(steer),
        None => route.classes.of(status(&head, None)),
    };
    let answering = Answering { route, steering, trace };
    if verdict != Verdict::Store {
        // What is not kept need not be read first.
        return answering.end(verdict, head, Body::new(body));
    }
    if is_stream(&head.headers) {
        return answering.answer(head, Body::new(body), Some(Tombstone::TooLarge));
    }
    let clock = route.engine.clock();
    let reading = read_within(Box::pin(body), route.response_bytes_max, route.response_within, &**clock);
    match reading.await {
        Read::Whole { bytes, trailers } => answering.whole(head, bytes, trailers),
        Read::Unbounded { front, rest } | Read::NoRoom { front, rest } => {
            answering.answer(head, Body::prefixed(front, rest), Some(Tombstone::TooLarge))
        }
        Read::Broken(error) => {
            tracing::debug!(%error, "the application's answer broke off");
            without_answer(Dispatch::NoAnswer)
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
    fn whole(self, head: Parts, bytes: Bytes, trailers: Option<HeaderMap>) -> Ending<Made> {
        if is_cut_off(&head, bytes.len()) {
            return without_answer(Dispatch::NoAnswer);
        }
        if self.steering.outcome.is_none() && trailers.is_some() {
            let verdict = self.route.classes.of(status(&head, trailers.as_ref()));
            if verdict != Verdict::Store {
                return self.end(verdict, head, Body::whole(bytes, trailers));
            }
        }
        if self.route.retain == Retain::StatusOnly {
            return self.answer(head, Body::whole(bytes, trailers), Some(Tombstone::Discarded));
        }
        let Some(kept) = self.kept(&head, trailers.as_ref(), &bytes) else {
            // Fail closed: what cannot be looked into may hold what must not be kept.
            return self.answer(head, Body::whole(bytes, trailers), Some(Tombstone::Discarded));
        };
        let outcome = Outcome::kept(snapshot::CONTENT_VERSION, kept);
        self.complete(outcome, head, Body::whole(bytes, trailers), None)
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
    fn answer(self, head: Parts, body: Body, why: Option<Tombstone>) -> Ending<Made> {
        let tombstone = why.unwrap_or(Tombstone::Discarded);
        let outcome = Outcome::tombstone(snapshot::CONTENT_VERSION, tombstone);
        self.complete(outcome, head, body, why)
    }

    fn complete(
        self,
        outcome: Outcome,
        head: Parts,
        body: Body,
        not_kept: Option<Tombstone>,
    ) -> Ending<Made> {
        let retention: Option<Retention> = self.steering.retention;
        match outcome.with_head(snapshot::head(head.status, self.trace)) {
            Ok(outcome) => Ending::Complete { value: self.made(head, body, not_kept), outcome, retention },
            // So few bytes are never too long; should they be, nobody knows is the safe thing to say.
            Err(_) => Ending::Abandon { value: self.made(head, body, not_kept) },
        }
    }

    fn end(self, verdict: Verdict, head: Parts, body: Body) -> Ending<Made> {
        match verdict {
            Verdict::Release => {
                let keep_fingerprint = keeps_fingerprint(status(&head, None));
                Ending::Release { value: self.made(head, body, None), keep_fingerprint }
            }
            Verdict::Store | Verdict::Unknown => Ending::Abandon { value: self.made(head, body, None) },
        }
    }

    fn made(&self, head: Parts, body: Body, not_kept: Option<Tombstone>) -> Made {
        Made::Answer { response: Response::from_parts(head, body), not_kept, is_odd: self.steering.is_odd }
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
fn status(head: &Parts, trailers: Option<&HeaderMap>) -> StatusCode {
    let is_grpc = head.headers.get(CONTENT_TYPE).is_some_and(is_grpc);
    let code = || head.headers.get(GRPC_STATUS).or_else(|| trailers?.get(GRPC_STATUS));
    if is_grpc { code().and_then(grpc_status).unwrap_or(head.status) } else { head.status }
}

pub(super) fn is_grpc(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"application/grpc")
}

/// Answers that are made to go on: waiting for their end would keep them from everybody.
fn is_stream(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| {
        let begins_with = |name: &str| {
            kind.as_bytes().get(..name.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(name.as_bytes()))
        };
        begins_with("text/event-stream") || begins_with("multipart/x-mixed-replace")
    })
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
