//! Problems for gRPC callers: a status without messages, in the headers ("trailers-only").

use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::{Problem, ProblemKind};
use crate::body::Body;
use crate::percent;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

impl Problem {
    pub(super) fn to_grpc(&self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, u64::from(code(self.kind)).into());
        let text = format!("{}: {}. {}", self.kind.name(), self.kind.title(), self.detail);
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&text)) {
            headers.insert(GRPC_MESSAGE, message);
        }
        response
    }
}

/// The gRPC code that says most nearly the same.
const fn code(kind: ProblemKind) -> u32 {
    match kind {
        ProblemKind::KeyMissing
        | ProblemKind::KeyInvalid
        | ProblemKind::PrincipalMissing
        | ProblemKind::BodyUnreadable
        | ProblemKind::RequestInvalid
        | ProblemKind::MediaTypeUnsupported
        | ProblemKind::KeyReused => 3,
        ProblemKind::UpstreamTimeout => 4,
        ProblemKind::BodyTooLarge | ProblemKind::Quota => 8,
        ProblemKind::KeyExpired
        | ProblemKind::OutcomeUnknown
        | ProblemKind::AnswerNotKept
        | ProblemKind::StateConflict => 9,
        ProblemKind::NotFound => 5,
        ProblemKind::Forbidden => 7,
        ProblemKind::InFlight => 10,
        ProblemKind::MethodNotAllowed => 12,
        ProblemKind::StoreUnavailable
        | ProblemKind::Overloaded
        | ProblemKind::AuditUnavailable
        | ProblemKind::UpstreamUnreachable => 14,
        ProblemKind::OutcomeIndeterminate | ProblemKind::RecordUnreadable => 15,
        ProblemKind::Unauthorized => 16,
    }
}

/// The status that an HTTP answer with this gRPC code would have, for rules that speak of statuses.
pub(crate) fn http_status(code: &HeaderValue) -> Option<StatusCode> {
    let status = match code.to_str().ok()?.parse::<u32>().ok()? {
        0 => 200,
        3 | 9 | 11 => 400,
        16 => 401,
        7 => 403,
        5 => 404,
        6 | 10 => 409,
        8 => 429,
        1 => 499,
        12 => 501,
        14 => 503,
        4 => 504,
        _ => 500,
    };
    StatusCode::from_u16(status).ok()
}

/// As gRPC writes messages: printable ASCII without the percent sign, the rest in percent form.
fn percent_encoded(text: &str) -> String {
    percent::encode(text, |byte| matches!(byte, 0x20..=0x7e) && byte != b'%')
}
