//! Reads and writes times and durations as people write them. The only clock here is the core's.

use std::time::Duration;

use onlyonce::clock::{Clock as _, SystemClock, Timestamp};
use onlyonce_http::rules::Span;

/// 9999-12-30T22:00:00Z, in seconds: the last time that can be shown again.
const SECONDS_MAX: u64 = 253_402_207_200;

/// What time it is.
pub(crate) fn now() -> Timestamp {
    SystemClock::new().now()
}

/// Reads an RFC 3339 time, or seconds since 1970.
pub(crate) fn parse_at(text: &str) -> Result<Timestamp, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        return match text.parse() {
            Ok(seconds @ 0..=SECONDS_MAX) => Ok(Timestamp::from_millis(seconds * 1000)),
            _ => {
                Err("beyond the year 9999: seconds since 1970 are expected, are these milliseconds?"
                    .to_owned())
            }
        };
    }
    let time: jiff::Timestamp = text.parse().map_err(|error| {
        format!("neither an RFC 3339 time (2026-11-15T04:09:00Z) nor seconds since 1970: {error}")
    })?;
    u64::try_from(time.as_millisecond()).map(Timestamp::from_millis).map_err(|_| "before 1970".to_owned())
}

/// Reads a duration: `30s`, `10m`, `1h30m`, `1d`. A day is 24 hours; months and years have no fixed length.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    text.parse::<Span>().map(Span::get).map_err(|error| error.to_string())
}

/// A time as RFC 3339; as a bare number of milliseconds where that ends (the year 9999).
pub(crate) fn show(time: Timestamp) -> String {
    let shown = i64::try_from(time.as_millis())
        .ok()
        .and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    shown.map_or_else(|| time.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_or_seconds() {
        for (text, millis) in [
            ("0", 0),
            ("1794715740", 1_794_715_740_000),
            ("2026-11-15T04:09:00Z", 1_794_715_740_000),
            ("2026-11-15T05:09:00.5+01:00", 1_794_715_740_500),
            ("253402207200", 253_402_207_200_000),
        ] {
            assert_eq!(parse_at(text).unwrap().as_millis(), millis, "{text}");
        }
        assert_eq!(show(Timestamp::from_millis(1_794_715_740_500)), "2026-11-15T04:09:00.5Z");
        for bad in
            ["", "now", "-1", "1794715740123", "2026-11-15", "1969-12-31T23:59:59Z", "99999999999999999999"]
        {
            assert!(parse_at(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_have_units_of_fixed_length() {
        for (text, seconds) in [
            ("30s", 30),
            ("10m", 600),
            ("1h", 3600),
            ("1h30m", 5400),
            ("1h 30m", 5400),
            ("1d", 86_400),
            ("2w", 1_209_600),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        assert_eq!(parse_duration("250ms").unwrap(), Duration::from_millis(250));
        for bad in ["", "10", "m", "-10m", "10m ago", "1mo", "1y", "ten minutes"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
