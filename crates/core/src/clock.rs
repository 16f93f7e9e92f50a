//! The only place where time comes from: what time it is, and how to be woken later.
//!
//! `transition` and `decision` get `now` as an argument; stores and the engine get a [`Clock`]. Nothing else reads
//! the time, so that tests can move it by hand and no test sleeps.

use std::fmt;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

/// A point in time on a store's clock: milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last representable point: past every lease and retention.
    pub const MAX: Self = Self(u64::MAX);

    /// `millis` after 1970-01-01 UTC.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long until `later`; zero when it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Whole milliseconds; what does not fit is for ever. Without the wider numbers of [`Duration::as_millis`]: the clock is read
/// often.
pub(crate) const fn millis(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1000).saturating_add(duration.subsec_millis() as u64)
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates: "for ever" stays for ever.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A future that resolves when some time has passed.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells the time and wakes sleepers.
///
/// # Contract
/// 1. `now` never goes back, also when the machine's wall clock is set back.
/// 2. A `sleep` resolves once `now` has grown by at least the duration asked for.
/// 3. A `sleep_until` resolves once `now` is the time asked for or later; at once if it is already.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;

    /// Resolves after `duration`.
    fn sleep(&self, duration: Duration) -> Sleep;

    /// Resolves at `at`. Who knows the time uses this: between reading the clock and sleeping for the rest, it may move.
    fn sleep_until(&self, at: Timestamp) -> Sleep;
}

/// The machine's clock, read once at the start and carried on by the monotonic clock.
///
/// A wall clock that jumps would end every lease at once (forwards) or none for hours (backwards). This one cannot
/// jump; it drifts from the wall clock at the rate of the oscillator, which no lease or retention notices.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Instant,
    started_at: Timestamp,
}

impl SystemClock {
    /// Reads the wall clock once.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at: Timestamp::default() + since_epoch }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started_at + self.started.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        let since_start = self.started_at.until(at);
        match self.started.checked_add(since_start) {
            Some(at) => Box::pin(tokio::time::sleep_until(at.into())),
            // Later than the machine can count.
            None => self.sleep(since_start),
        }
    }
}
