//! A duration as people write it in a rule: `30s`, `10m`, `1h30m`, `72h`, `30d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::RulesError;

/// A duration with its units. A day is 24 hours; months and years have no fixed length and are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

impl Span {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        let wrong =
            |why: &str| RulesError::new(format!("{text:?} is not a duration such as 30s, 10m or 1h: {why}"));
        let span: jiff::Span = text.parse().map_err(|error: jiff::Error| wrong(&error.to_string()))?;
        let signed = span
            .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
            .map_err(|_| wrong("months and years have no fixed length, use days"))?;
        Duration::try_from(signed).map(Self).map_err(|_| wrong("it is negative"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match (seconds, millis) {
            (0, 0) => f.write_str("0s"),
            (_, 1..) => write!(f, "{}ms", self.0.as_millis()),
            _ if seconds % 86_400 == 0 => write!(f, "{}d", seconds / 86_400),
            _ if seconds % 3_600 == 0 => write!(f, "{}h", seconds / 3_600),
            _ if seconds % 60 == 0 => write!(f, "{}m", seconds / 60),
            _ => write!(f, "{seconds}s"),
        }
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_with_their_units() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("10m", 600_000),
            ("72h", 259_200_000),
            ("30d", 2_592_000_000),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.get(), Duration::from_millis(millis), "{text}");
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span, "{text}");
        }
        assert_eq!("1h30m".parse::<Span>().unwrap().to_string(), "90m");
        for bad in ["", "30", "-5s", "1mo", "1y", "soon", "99999999999999999999s"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
