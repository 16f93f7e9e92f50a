//! Makes keys from a user, an operation and a stretch of time: "this user does this at most once per window".
//!
//! For callers that have no name for the operation and keep no state between attempts. It never reads a clock.

use std::fmt;
use std::time::Duration;

use super::digest::FieldDigest;
use super::hazard::{self, Hazard};
use super::{DeriveError, Key, check_field};
use crate::clock::Timestamp;

/// The longest window. Beyond a year a name for the operation is what is missing, not a longer window.
pub const WINDOW_MAX: Duration = Duration::from_hours(366 * 24);

/// Separates these keys from everything else that may ever be hashed this way.
const COMPOSITE_TAG: &str = "onlyonce/key/composite/v1";

/// The key of a user's operation in the window that holds a point in time, and the key of the window before.
///
/// Windows are aligned to 1970-01-01 UTC: all callers agree on where one ends. Hence the catch: an attempt at 11:59:58
/// and its retry at 12:00:03 lie in different windows and get different keys. So a retry has to ask about both:
///
/// 1. Look up [`previous`](Self::previous). If there is a record (in flight, completed or unknown), this is a retry
///    across the boundary: use that key, and get its answer.
/// 2. Only if it is absent, run under [`key`](Self::key).
///
/// This holds for retries that start at most one window after the first attempt: choose a window longer than the
/// whole time over which the caller retries. It also means that a user who repeats the operation *on purpose* just
/// after a boundary is answered with the earlier result. And it cannot see a first attempt that is still under way
/// *to* the store when the retry looks it up. A caller that can keep a key between attempts should do that instead.
///
/// The key is the first 32 hexadecimal digits of the SHA-256 of five fields, each preceded by its length in bytes as
/// an 8-byte big-endian number: the tag `onlyonce/key/composite/v1`, the user, the operation, the window's length in
/// milliseconds (8 bytes big-endian), and the number of windows since 1970 (8 bytes big-endian).
///
/// ```
/// use std::time::Duration;
/// use onlyonce_core::clock::Timestamp;
/// use onlyonce_core::key::derive::Composite;
///
/// let window = Duration::from_secs(600);
/// let first = Composite::new("alice", "transfer", window, Timestamp::from_millis(1_794_715_799_000))?;
/// let retry = Composite::new("alice", "transfer", window, Timestamp::from_millis(1_794_715_801_000))?;
/// assert_ne!(first.key(), retry.key());
/// assert_eq!(first.key(), retry.previous());
/// # Ok::<(), onlyonce_core::key::derive::DeriveError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Composite {
    key: Key,
    previous: Key,
    window_start: Timestamp,
    window_end: Timestamp,
}

impl Composite {
    /// The keys for `now`. The window is whole milliseconds, more than none and at most [`WINDOW_MAX`].
    pub fn new(user: &str, operation: &str, window: Duration, now: Timestamp) -> Result<Self, DeriveError> {
        check_field("user", user)?;
        check_field("operation", operation)?;
        let window_ms = window_ms(window)?;
        let index = now.as_millis() / window_ms;
        let Some(index_before) = index.checked_sub(1) else { return Err(DeriveError::TooEarly) };
        let key_at = |index: u64| {
            FieldDigest::new(COMPOSITE_TAG)
                .field(user.as_bytes())
                .field(operation.as_bytes())
                .field(&window_ms.to_be_bytes())
                .field(&index.to_be_bytes())
                .key()
        };
        let window_start = Timestamp::from_millis(index * window_ms);
        Ok(Self {
            key: key_at(index),
            previous: key_at(index_before),
            window_start,
            window_end: window_start + window,
        })
    }

    /// The key of the window that holds `now`.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// The key of the window before: what an attempt shortly before the boundary ran under.
    pub const fn previous(&self) -> &Key {
        &self.previous
    }

    /// The first moment of the window.
    pub const fn window_start(&self) -> Timestamp {
        self.window_start
    }

    /// The first moment after the window.
    pub const fn window_end(&self) -> Timestamp {
        self.window_end
    }

    /// What in a user or operation is likely to differ between a first attempt and its retry.
    pub fn hazards(user: &str, operation: &str) -> Vec<Hazard> {
        hazard::of_composite(user, operation)
    }
}

impl fmt::Debug for Composite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Composite({} to {})", self.window_start, self.window_end)
    }
}

/// Parts of a millisecond are refused, not cut: windows of other lengths would silently share keys.
fn window_ms(window: Duration) -> Result<u64, DeriveError> {
    let whole = window.subsec_nanos().is_multiple_of(1_000_000);
    match u64::try_from(window.as_millis()) {
        Ok(millis) if whole && millis > 0 && window <= WINDOW_MAX => Ok(millis),
        _ => Err(DeriveError::Window),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(millis: u64) -> Composite {
        Composite::new("alice", "transfer", HOUR, Timestamp::from_millis(millis)).unwrap()
    }

    #[test]
    fn the_key_changes_at_the_boundary_and_the_old_one_stays_reachable() {
        let boundary = 3_600_000 * 500_000;
        let (last, first) = (at(boundary - 1), at(boundary));
        assert_eq!(last.key(), at(boundary - 3_600_000).key());
        assert_ne!(last.key(), first.key());
        assert_eq!(last.key(), first.previous());
        assert_eq!(last.window_end(), first.window_start());
        assert_eq!(first.window_start().as_millis(), boundary);
        assert_eq!(first.window_end().as_millis(), boundary + 3_600_000);
    }

    #[test]
    fn every_field_counts_and_none_runs_into_the_next() {
        let now = Timestamp::from_millis(1_794_715_740_000);
        let key = |user, operation, seconds| {
            Composite::new(user, operation, Duration::from_secs(seconds), now).unwrap().key().clone()
        };
        let all = [
            key("a", "bc", 60),
            key("ab", "c", 60),
            key("a:b", "c", 60),
            key("a", "b:c", 60),
            key("a", "bc", 61),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|other| other != one));
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        // Computed with Python: struct.pack(">Q", len(field)) + field for the five fields, through hashlib.sha256.
        assert_eq!(at(1_794_715_740_000).key().as_str(), "37f7b5c4951312e8bad6e077391148d3");
    }

    #[test]
    fn windows_and_times_out_of_range_are_refused() {
        let new = |window, millis| Composite::new("u", "o", window, Timestamp::from_millis(millis));
        for window in [Duration::ZERO, Duration::from_nanos(1), Duration::from_micros(1500), Duration::MAX] {
            assert!(matches!(new(window, 1 << 40), Err(DeriveError::Window)), "{window:?}");
        }
        assert!(matches!(new(WINDOW_MAX + Duration::from_millis(1), 1 << 50), Err(DeriveError::Window)));
        assert!(new(WINDOW_MAX, 1 << 50).is_ok());
        assert!(new(Duration::from_millis(1), u64::MAX).is_ok());
        assert!(matches!(new(HOUR, 3_599_999), Err(DeriveError::TooEarly)));
        assert!(new(HOUR, 3_600_000).is_ok());
        let now = Timestamp::from_millis(1 << 40);
        assert!(matches!(Composite::new("", "o", HOUR, now), Err(DeriveError::Empty { field: "user" })));
        assert!(matches!(Composite::new("u", "", HOUR, now), Err(DeriveError::Empty { field: "operation" })));
    }
}
