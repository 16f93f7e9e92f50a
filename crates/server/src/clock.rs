//! When a wait is over and how long one took. The one place of this crate that reads the machine's clock.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use tokio::time::Instant;

/// The instant that is `duration` away.
pub(crate) fn after(duration: Duration) -> Instant {
    later(Instant::now(), duration)
}

/// The same, counted from an instant that is known.
pub(crate) fn later(now: Instant, duration: Duration) -> Instant {
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

/// Writes the field Date, which is the same for a second.
pub(crate) fn put_date(head: &mut Vec<u8>) {
    thread_local! {
        static FIELD: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    FIELD.with_borrow_mut(|(written, field)| {
        if *written != seconds {
            let now = Timestamp::from_second(i64::try_from(seconds).unwrap_or_default()).unwrap_or_default();
            *field = now.strftime("date: %a, %d %b %Y %H:%M:%S GMT\r\n").to_string();
            *written = seconds;
        }
        head.extend_from_slice(field.as_bytes());
    });
}
