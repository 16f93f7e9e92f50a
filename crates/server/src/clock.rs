//! When a wait is over and how long one took. The one place of this crate that reads the machine's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The instant that is `duration` away.
pub(crate) fn after(duration: Duration) -> Instant {
    let now = Instant::now();
    // A duration too long to count is for ever; ten years are, for a connection.
    now.checked_add(duration).unwrap_or(now + Duration::from_hours(10 * 366 * 24))
}

/// Measures how long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(std::time::Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(std::time::Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Nanoseconds since 1970, for those who are told when something was counted.
pub(crate) fn nanos_since_1970() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds since 1970, for people and for dashboards: nothing is decided by them.
pub(crate) fn seconds_since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
