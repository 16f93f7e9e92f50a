//! What follows from a handler's answer. **Pure.**

use std::error::Error;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use http_body_util::LengthLimitError;
use onlyonce_inbox::Handled;

/// The longest wait that a handler may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(1);

/// 2xx is done. 408, 409, 425 and 429 say "later", and so do 5xx and a redirect, which is not followed: nothing happened.
/// Every other 4xx says "never". A gateway's 502 and 504 say that nobody knows.
pub(super) fn handled(status: StatusCode, headers: &HeaderMap) -> Handled {
    let why = || format!("the handler answered {status}");
    match status.as_u16() {
        200..300 => Handled::done(),
        408 | 409 | 425 | 429 => Handled::Retry { why: why(), after: retry_after(headers) },
        400..500 => Handled::refused(why()),
        502 | 504 => Handled::unknown(why()),
        _ => Handled::Retry { why: why(), after: retry_after(headers) },
    }
}

/// `Retry-After` in seconds. A date is not read: whose clock would it be by?
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
}

/// Whether a body was only longer than anyone reads, and not broken.
pub(super) fn is_too_long(error: &(dyn Error + 'static)) -> bool {
    error.is::<LengthLimitError>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, headers: &[(http::HeaderName, &str)]) -> Handled {
        let headers =
            headers.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value"))).collect();
        handled(StatusCode::from_u16(status).expect("a status"), &headers)
    }

    #[test]
    fn every_status_has_its_meaning() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(of(status, &[]), Handled::done(), "{status}");
        }
        for status in [400, 401, 403, 404, 410, 415, 422, 499] {
            assert!(matches!(of(status, &[]), Handled::Refused { .. }), "{status}");
        }
        for status in [301, 307, 408, 409, 425, 429, 500, 501, 503, 599] {
            assert!(matches!(of(status, &[]), Handled::Retry { after: None, .. }), "{status}");
        }
        for status in [502, 504] {
            assert!(matches!(of(status, &[]), Handled::Unknown { .. }), "{status}");
        }
    }

    #[test]
    fn a_handler_may_say_when() {
        for (text, expected) in [
            ("7", Some(Duration::from_secs(7))),
            ("999999999", Some(RETRY_AFTER_MAX)),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
            ("-1", None),
        ] {
            let Handled::Retry { after, .. } = of(503, &[(RETRY_AFTER, text)]) else { panic!("a retry") };
            assert_eq!(after, expected, "{text}");
        }
    }
}
