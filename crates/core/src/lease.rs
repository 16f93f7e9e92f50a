//! How long things may last: the lease of an owner, the retention of a record. Durations with their bounds checked.

use std::fmt;
use std::time::Duration;

use crate::error::MisuseError;

/// How long an owner may work without renewing.
///
/// Short, because it is also how long a dead owner blocks its key; renewed at a third of its length while work runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lease(Duration);

impl Lease {
    /// The default: long enough to survive a pause of a busy machine, short enough to wait for.
    pub const DEFAULT: Self = Self(Duration::from_secs(30));

    /// A lease of 1 ms to 1 h.
    pub const fn new(duration: Duration) -> Result<Self, MisuseError> {
        if duration.as_millis() < 1 || duration.as_secs() > 3600 {
            return Err(MisuseError::new("a lease lasts from 1 ms to 1 h"));
        }
        Ok(Self(whole_millis(duration)))
    }

    /// Its length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.0)
    }
}

/// How long a record is kept: completed ones from their completion, unknown ones from when they became unknown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Retention(Duration);

impl Retention {
    /// The default for completed records: a day, as most callers' retries end within it.
    pub const DEFAULT: Self = Self(Duration::from_hours(24));
    /// The default for unknown records: people need time to find out.
    pub const UNKNOWN_DEFAULT: Self = Self(Duration::from_hours(30 * 24));

    /// A retention of 1 ms to ten years.
    pub const fn new(duration: Duration) -> Result<Self, MisuseError> {
        if duration.as_millis() < 1 || duration.as_secs() > 10 * 366 * 86_400 {
            return Err(MisuseError::new("a retention lasts from 1 ms to 10 years"));
        }
        Ok(Self(whole_millis(duration)))
    }

    /// Its length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl fmt::Debug for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Retention({:?})", self.0)
    }
}

/// Stores count in milliseconds: a finer duration would come back from them as another one.
const fn whole_millis(duration: Duration) -> Duration {
    Duration::new(duration.as_secs(), duration.subsec_millis() * 1_000_000)
}
