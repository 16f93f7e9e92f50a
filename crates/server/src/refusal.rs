//! Why a request to the claims API, or an operator's command, got no answer: a problem of `onlyonce-http`, with what
//! programs need to know of the store.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::WWW_AUTHENTICATE;
use onlyonce_core::{RecordId, StoreError, StoreErrorKind};
use onlyonce_http::problem::Style;
use onlyonce_http::{Body, Problem, ProblemKind};
use serde_json::Value;

/// When asking a store again that failed makes sense.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One of our own answers.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

impl Refusal {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(kind, detail)))
    }

    /// The request is not understood.
    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::RequestInvalid, detail)
    }

    /// There is no such record here.
    pub(crate) fn absent() -> Self {
        Self::new(ProblemKind::NotFound, "there is no record of this id")
    }

    /// A refusal that passes.
    pub(crate) fn for_now(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem::new(kind, detail).retry_after(ASK_AGAIN_AFTER)))
    }

    /// The same, with `value` under `name` for programs.
    pub(crate) fn with(self, name: &'static str, value: impl Into<Value>) -> Self {
        Self(Box::new(self.0.member(name, value)))
    }

    /// The same; it names the record `id` where that is what cannot be read.
    pub(crate) fn about(self, id: &RecordId) -> Self {
        if self.is_unreadable() { self.with("record", id.to_string()) } else { self }
    }

    /// Whether a record cannot be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.0.kind() == ProblemKind::RecordUnreadable
    }

    /// The problem as RFC 9457 writes it.
    pub fn to_json(&self) -> Value {
        self.0.to_json(None)
    }

    pub(crate) fn into_answer(self) -> http::Response<Body> {
        let kind = self.0.kind();
        let mut response = self.0.into_response(Style::ProblemJson, None);
        if kind == ProblemKind::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let kind = match error.kind() {
            StoreErrorKind::Misuse => ProblemKind::RequestInvalid,
            StoreErrorKind::Corrupt | StoreErrorKind::Unsupported => ProblemKind::RecordUnreadable,
            _ => ProblemKind::StoreUnavailable,
        };
        tracing::warn!(%error, source = ?std::error::Error::source(&error), "the store refused");
        // What is wrong with a record tells an operator what to do; why a store is away does not concern its callers.
        let cause = std::error::Error::source(&error).filter(|_| error.is_unreadable());
        let detail = cause.map_or_else(|| error.to_string(), |why| format!("{error}: {why}"));
        let mut problem = Problem::new(kind, detail)
            .member("code", error.code())
            .member("outcome_unknown", error.outcome_unknown());
        if error.is_retryable() {
            problem = problem.retry_after(ASK_AGAIN_AFTER);
        }
        Self(Box::new(problem))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.into_answer().map(axum::body::Body::new)
    }
}
