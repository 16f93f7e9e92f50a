//! Our own answers: why a request was not run or has no answer of its own, for people and for programs.
//!
//! `application/problem+json` (RFC 9457) by default; in Stripe's envelope under the profile `stripe`, so that Stripe's
//! clients raise what they know; as a gRPC status for gRPC callers. Nothing about a stored request or answer is ever
//! repeated here.

mod grpc;
mod kind;
mod stripe;

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LINK, RETRY_AFTER};
use http::{Response, StatusCode};
use onlyonce_core::{Fence, RecordId};
use serde_json::{Map, Value};

use crate::body::Body;

pub(crate) use grpc::http_status as grpc_status;
pub use kind::ProblemKind;

/// Where problem types live unless a page is configured: stable names that need no network.
pub(crate) const TYPE_BASE: &str = "urn:onlyonce:error:";

const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// In which form a caller wants to hear of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// RFC 9457.
    #[default]
    ProblemJson,
    /// Stripe's error object.
    Stripe,
    /// A gRPC status without messages.
    Grpc,
}

/// One of our own answers.
#[derive(Debug, Clone)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: String,
    retry_after: Option<Duration>,
    record: Option<(RecordId, Option<Fence>)>,
    original_status: Option<StatusCode>,
    members: Vec<(&'static str, Value)>,
}

impl Problem {
    /// The problem `kind`, explained for this request.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            status: kind.status(),
            detail: detail.into(),
            retry_after: None,
            record: None,
            original_status: None,
            members: Vec::new(),
        }
    }

    /// When asking again makes sense.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// The record it is about, and the fence to resolve it with.
    #[must_use]
    pub const fn record(mut self, id: RecordId, fence: Option<Fence>) -> Self {
        self.record = Some((id, fence));
        self
    }

    /// The status that the work ended with, when only that is known; the problem is answered in its class.
    #[must_use]
    pub fn original_status(mut self, status: StatusCode) -> Self {
        self.original_status = Some(status);
        self.status = match status.as_u16() {
            // These carry no body, or part of one: the explanation needs another of the class.
            204..=206 => StatusCode::OK,
            300..=399 => StatusCode::MULTIPLE_CHOICES,
            200..=599 => status,
            _ => StatusCode::OK,
        };
        self
    }

    /// Says `value` under `name`, for programs.
    #[must_use]
    pub fn member(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.members.push((name, value.into()));
        self
    }

    /// What kind it is.
    pub const fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The answer, in `style`. `base` is where the problem types live: a URL that the type's name is added to.
    pub fn into_response(self, style: Style, base: Option<&str>) -> Response<Body> {
        let mut response = match style {
            Style::ProblemJson => answer(self.status, PROBLEM_JSON, self.to_json(base).to_string()),
            Style::Stripe => self.to_stripe(base),
            Style::Grpc => self.to_grpc(),
        };
        if let Some(after) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds(after).into());
        }
        if let Some(base) = base
            && let Ok(link) =
                HeaderValue::try_from(format!("<{base}{}>; rel=\"describedby\"", self.kind.name()))
        {
            response.headers_mut().insert(LINK, link);
        }
        response
    }

    /// The problem as RFC 9457 writes it, for answers that hold several.
    pub fn to_json(&self, base: Option<&str>) -> Value {
        let mut members = Map::new();
        members.insert("type".into(), format!("{}{}", base.unwrap_or(TYPE_BASE), self.kind.name()).into());
        members.insert("title".into(), self.kind.title().into());
        members.insert("status".into(), self.status.as_u16().into());
        members.insert("detail".into(), self.detail.as_str().into());
        if let Some(status) = self.original_status {
            members.insert("original_status".into(), status.as_u16().into());
        }
        if let Some((id, fence)) = &self.record {
            members.insert("record".into(), id.to_string().into());
            if let (Some(fence), true) = (fence, self.kind.is_resolvable()) {
                members.insert("fence".into(), fence.get().into());
                members.insert("resolve".into(), resolve_commands(id, *fence));
            }
        }
        members.insert("retryable".into(), self.kind.is_retryable().into());
        members.extend(self.members.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        Value::Object(members)
    }
}

/// The commands with which an operator ends the doubt, one way or the other.
fn resolve_commands(id: &RecordId, fence: Fence) -> Value {
    let command =
        |verdict: &str| format!("onlyonce records resolve {id} --fence {fence} --{verdict} --why REASON");
    serde_json::json!({ "executed": command("executed"), "not_executed": command("not-executed") })
}

fn answer(status: StatusCode, content_type: HeaderValue, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Whole seconds, at least one: zero would mean "at once" to a caller who was just refused.
pub(crate) fn seconds(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

/// Tells Stripe's clients whether a retry may help.
const STRIPE_SHOULD_RETRY: HeaderName = HeaderName::from_static("stripe-should-retry");
