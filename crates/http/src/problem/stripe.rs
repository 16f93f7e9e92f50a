//! Problems in Stripe's error object: the same status codes and error types that Stripe's own clients know.

use http::header::HeaderValue;
use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::{Problem, ProblemKind, STRIPE_SHOULD_RETRY, answer};
use crate::body::Body;

impl Problem {
    pub(super) fn to_stripe(&self, base: Option<&str>) -> Response<Body> {
        let (status, kind, code) = match self.kind {
            ProblemKind::KeyReused => (StatusCode::BAD_REQUEST, "idempotency_error", None),
            ProblemKind::InFlight => {
                (StatusCode::CONFLICT, "idempotency_error", Some("idempotency_key_in_use"))
            }
            ProblemKind::Quota => {
                (StatusCode::TOO_MANY_REQUESTS, "invalid_request_error", Some("rate_limit"))
            }
            ProblemKind::KeyMissing
            | ProblemKind::KeyInvalid
            | ProblemKind::PrincipalMissing
            | ProblemKind::BodyUnreadable
            | ProblemKind::KeyExpired
            | ProblemKind::BodyTooLarge => (self.status, "invalid_request_error", None),
            _ => (self.status, "api_error", None),
        };
        let mut error = Map::new();
        error.insert("type".into(), kind.into());
        if let Some(code) = code {
            error.insert("code".into(), code.into());
        }
        error.insert("message".into(), format!("{}. {}", self.kind.title(), self.detail).into());
        if let Some(base) = base {
            error.insert("doc_url".into(), format!("{base}{}", self.kind.name()).into());
        }
        let envelope = Value::Object(Map::from_iter([("error".into(), Value::Object(error))]));
        let mut response = answer(status, HeaderValue::from_static("application/json"), envelope.to_string());
        let retry = HeaderValue::from_static(if self.kind.is_retryable() { "true" } else { "false" });
        response.headers_mut().insert(STRIPE_SHOULD_RETRY, retry);
        response
    }
}
