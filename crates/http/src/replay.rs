//! From a record to an answer: byte for byte what it was, or what can still be said about it.

use http::header::HeaderValue;
use http::{Response, StatusCode};
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::transition::Replay;
use onlyonce_core::{Body as Kept, Tombstone};

use crate::body::Body;
use crate::header::{IDEMPOTENCY_REPLAYED, IDEMPOTENT_REPLAYED};
use crate::problem::{Problem, ProblemKind};
use crate::route::Route;
use crate::rules::{Profile, ReplayStatus};
use crate::snapshot::{self, Snapshot};

/// What a recorded outcome comes back as.
pub(crate) enum Replayed {
    /// The answer.
    Answer(Response<Body>),
    /// What can be said without one.
    Problem(Problem),
}

/// Makes an answer of a recorded outcome.
pub(crate) fn replay(route: &Route, replay: &Replay) -> Result<Replayed, CodecError> {
    let outcome = &replay.outcome;
    let bytes = match outcome.body() {
        Kept::Tombstone(why) => {
            return Ok(Replayed::Problem(not_kept(*why, snapshot::status_in(outcome.head()))));
        }
        Kept::Kept(_) if outcome.content_version() != snapshot::CONTENT_VERSION => {
            return Err(CodecError::Damaged("recorded by another door"));
        }
        Kept::Kept(bytes) => bytes,
    };
    let mut response = Snapshot::decode(bytes)?.into_response();
    if route.replay_status == ReplayStatus::Ok && response.status().is_success() {
        *response.status_mut() = StatusCode::OK;
    }
    Ok(Replayed::Answer(response))
}

/// What is said in place of an answer that had `status`.
pub(crate) fn not_kept(why: Tombstone, status: Option<StatusCode>) -> Problem {
    let detail = match why {
        Tombstone::Indeterminate => {
            let detail = "The attempt ended without a word and the record was closed. Find out by other means \
                          whether it happened before you ask for it under another key.";
            return Problem::new(ProblemKind::OutcomeIndeterminate, detail);
        }
        Tombstone::TooLarge => "It was larger than may be stored, or a stream.",
        Tombstone::Erased => "It was erased on request.",
        _ => "It was not to be stored, or broke off before its end.",
    };
    let problem = Problem::new(ProblemKind::AnswerNotKept, detail);
    match status {
        Some(status) => problem.original_status(status),
        None => problem,
    }
}

/// Says whether an answer comes from the record, as the profile says it.
pub(crate) fn mark(route: &Route, response: &mut Response<Body>, is_replay: bool) {
    let headers = response.headers_mut();
    // Whoever answered before us may have said it too; what counts here is what this layer did.
    let (ours, theirs, said) = match (route.profile, is_replay) {
        (Profile::Stripe, true) => (IDEMPOTENT_REPLAYED, IDEMPOTENCY_REPLAYED, Some("true")),
        (Profile::Stripe, false) => (IDEMPOTENT_REPLAYED, IDEMPOTENCY_REPLAYED, None),
        (Profile::Standard | Profile::Ietf, true) => {
            (IDEMPOTENCY_REPLAYED, IDEMPOTENT_REPLAYED, Some("true"))
        }
        (Profile::Standard | Profile::Ietf, false) => {
            (IDEMPOTENCY_REPLAYED, IDEMPOTENT_REPLAYED, Some("false"))
        }
    };
    if headers.keys().any(|name| *name == theirs) {
        headers.remove(theirs);
    }
    match said {
        Some(said) => headers.insert(ours, HeaderValue::from_static(said)),
        None => headers.remove(ours),
    };
}
