//! When to send again, and after how long. Pure: time and chance are arguments.

use std::time::{Duration, UNIX_EPOCH};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use onlyonce_core::Timestamp;

/// Marks of an answer from the record, as the profiles of the server name them.
const REPLAYED: [&str; 2] = ["idempotency-replayed", "idempotent-replayed"];

/// How often, how soon and for how long a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often it is sent in all. 10: with the waits below that is about as long as `within`.
    pub attempts_max: u32,
    /// The longest first wait; each later one may be twice as long. 200 ms: a server that restarts is back soon.
    pub first: Duration,
    /// The longest wait of all. 20 s: nobody is told to come back later than the servers that say so.
    pub longest: Duration,
    /// How long one attempt may take until its answer begins. 30 s: what most servers give themselves.
    pub attempt_within: Duration,
    /// How long all of it may take. 2 min.
    pub within: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts_max: 10,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(20),
            attempt_within: Duration::from_secs(30),
            within: Duration::from_mins(2),
        }
    }
}

impl Retries {
    /// How long to wait after attempt `number` (from 1): anything up to a bound that doubles. *Full* jitter, because
    /// callers that failed together would come back together.
    pub(crate) fn backoff(&self, number: u32, chance: u64) -> Duration {
        let doubled =
            self.first.saturating_mul(1u32.checked_shl(number.saturating_sub(1)).unwrap_or(u32::MAX));
        let most = u64::try_from(doubled.min(self.longest).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(if most == u64::MAX { chance } else { chance % (most + 1) })
    }
}

/// What an answer means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It will not change: the caller gets it.
    Final,
    /// Ask again.
    Again,
    /// A conflict: ask again if the first one still runs, which its body may tell.
    Conflict,
}

/// What the head of an answer says.
pub(crate) fn judge(status: StatusCode, headers: &HeaderMap) -> Verdict {
    let replayed = REPLAYED.iter().any(|name| headers.get(*name).is_some_and(|mark| mark == "true"));
    if replayed {
        // From the record: it would be the same the next time, errors too.
        return Verdict::Final;
    }
    match status {
        StatusCode::CONFLICT => Verdict::Conflict,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => Verdict::Again,
        StatusCode::NOT_IMPLEMENTED | StatusCode::HTTP_VERSION_NOT_SUPPORTED => Verdict::Final,
        status if status.is_server_error() => Verdict::Again,
        _ => Verdict::Final,
    }
}

/// Whether a conflict passes by itself: it does, unless its problem type says that only somebody can end it.
pub(crate) fn passes(problem: Option<&[u8]>) -> bool {
    let Some(body) = problem else { return true };
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    !problem.get("type").and_then(|name| name.as_str()).is_some_and(|name| name.ends_with("outcome-unknown"))
}

/// How long the server asks to be left alone: seconds, or a date.
pub(crate) fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(now.until(Timestamp::default() + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn waits_double_up_to_a_bound_and_are_anything_below() {
        let retries = Retries {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
            ..Retries::default()
        };
        assert_eq!(retries.backoff(1, 100_000), Duration::from_millis(100));
        assert_eq!(retries.backoff(1, 100_001), Duration::ZERO);
        assert_eq!(retries.backoff(3, 400_000), Duration::from_millis(400));
        for number in [5, 33, u32::MAX] {
            assert_eq!(retries.backoff(number, 1_000_000), Duration::from_secs(1));
            assert!(retries.backoff(number, u64::MAX) <= Duration::from_secs(1));
        }
    }

    #[test]
    fn what_will_not_change_is_final() {
        let none = HeaderMap::new();
        for status in [200, 201, 204, 302, 400, 401, 403, 404, 410, 412, 422, 501, 505] {
            assert_eq!(judge(StatusCode::from_u16(status).unwrap(), &none), Verdict::Final, "{status}");
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 520] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, &none), Verdict::Again, "{status}");
            for name in REPLAYED {
                assert_eq!(judge(status, &with(name, "true")), Verdict::Final);
                assert_eq!(judge(status, &with(name, "false")), Verdict::Again);
            }
        }
        assert_eq!(judge(StatusCode::CONFLICT, &none), Verdict::Conflict);
    }

    #[test]
    fn a_conflict_passes_unless_only_somebody_can_end_it() {
        assert!(passes(None));
        assert!(passes(Some(b"not json")));
        assert!(passes(Some(br#"{"type":"https://onlyonce.example/errors/in-flight"}"#)));
        assert!(passes(Some(br#"{"error":{"type":"idempotency_error"}}"#)));
        assert!(!passes(Some(br#"{"type":"urn:onlyonce:error:outcome-unknown"}"#)));
    }

    #[test]
    fn the_server_may_ask_for_seconds_or_a_date() {
        let now = Timestamp::from_millis(784_111_777_000);
        let after = |text| retry_after(&with("retry-after", text), now);
        assert_eq!(after("120"), Some(Duration::from_mins(2)));
        assert_eq!(after("0"), Some(Duration::ZERO));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_mins(1)));
        assert_eq!(after("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for bad in ["soon", "-1", "1.5", ""] {
            assert_eq!(after(bad), None, "{bad}");
        }
    }
}
