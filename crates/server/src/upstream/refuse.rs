//! Answers of the sidecar itself, as `application/problem+json`. Those about idempotency are the layer's.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use onlyonce_http::problem::Style;
use onlyonce_http::{Body, Dispatch, Problem, ProblemKind};

/// Says no. The problem has no type of its own: its status says what it is (RFC 9457 §4.2.1).
pub(crate) fn refuse(status: StatusCode, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("refused");
    let problem = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
    });
    let mut response = Response::new(Body::from(problem.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// Says that there is no answer, to the client and, in the extensions, to the layer.
pub(super) fn dispatch(dispatch: Dispatch, detail: &str) -> Response<Body> {
    let kind = match dispatch {
        Dispatch::TimedOut => ProblemKind::UpstreamTimeout,
        _ => ProblemKind::UpstreamUnreachable,
    };
    let mut response =
        Problem::new(kind, format!("{dispatch}: {detail}")).into_response(Style::ProblemJson, None);
    response.extensions_mut().insert(dispatch);
    response
}
