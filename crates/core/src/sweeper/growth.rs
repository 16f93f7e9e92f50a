//! How much a store may hold, how much it does, and when that is worth an alarm: before it is worth a refusal.
//!
//! Counted every now and then, with what this process was granted since: a bound that holds the store off the rocks, and
//! not one that is kept to the record. A count that can no longer be had is believed for a while. After that nothing is
//! refused for it: no promise rests on a bound, the store itself refuses once it is truly full, and to refuse everybody for
//! ever because of a figure that nobody can check would be the worse failure of the two. It is an alarm instead.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::Stats;

/// From which part of a bound on it is an alarm, in percent.
const NEAR_PERCENT: u64 = 80;

/// What a store may hold. What is `None` is not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Records of callers.
    pub records_max: Option<u64>,
    /// Bytes they take, as far as the store can tell.
    pub bytes_max: Option<u64>,
}

/// How much of a bound is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// `records` or `bytes`.
    pub what: &'static str,
    /// As counted last, with what was granted since.
    pub used: u64,
    /// The bound.
    pub most: u64,
}

impl Used {
    const fn is_full(self) -> bool {
        self.used >= self.most
    }

    fn is_near(self) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.most) * u128::from(NEAR_PERCENT)
    }

    /// The part that is used: 1 when it is full.
    #[expect(clippy::cast_precision_loss, reason = "a part, for people")]
    pub fn ratio(self) -> f64 {
        if self.most == 0 { 1.0 } else { self.used as f64 / self.most as f64 }
    }

    fn told(self) -> String {
        let Self { what, used, most } = self;
        let follows =
            if self.is_full() { "new claims are refused" } else { "new claims are refused at 100 %" };
        format!(
            "the store holds {used} of {most} {what} ({what}_max, {:.0} %): {follows}",
            self.ratio() * 100.0
        )
    }
}

/// How close to its bounds a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Level {
    #[default]
    Fine,
    Near,
    /// Nobody knows.
    Uncounted,
    Full,
}

/// What is told when nobody knows.
const UNCOUNTED: &str =
    "how much the store holds has not been counted for minutes: records_max and bytes_max refuse nothing";

/// Watches one store.
#[derive(Debug, Default)]
pub struct Growth {
    bounds: Bounds,
    known: Mutex<Known>,
    /// Grants of new records since it was counted.
    granted: AtomicU64,
    /// Whether the last count is too old to be believed.
    is_doubted: AtomicBool,
}

#[derive(Debug, Default)]
struct Known {
    records: u64,
    bytes: u64,
    told: Level,
}

impl Growth {
    /// Nothing is known yet, so nothing is refused.
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// Whether there is anything to keep to.
    pub const fn is_bounded(&self) -> bool {
        self.bounds.records_max.is_some() || self.bounds.bytes_max.is_some()
    }

    /// Takes in how much is stored, and says so in the log when that is another alarm than before.
    pub fn counted(&self, stats: &Stats) {
        self.granted.store(0, Ordering::Relaxed);
        {
            let mut known = self.known();
            (known.records, known.bytes) = (stats.records(), stats.bytes);
        }
        self.is_doubted.store(false, Ordering::Relaxed);
        self.tell();
    }

    /// It could not be counted for so long that the last count says nothing any more. Until the next one nothing is refused.
    pub fn doubt(&self) {
        if self.is_bounded() {
            self.is_doubted.store(true, Ordering::Relaxed);
            self.tell();
        }
    }

    fn tell(&self) {
        let level = self.level();
        let before = std::mem::replace(&mut self.known().told, level);
        match level {
            level if level == before => {}
            Level::Fine => tracing::info!("the store has room again"),
            Level::Near | Level::Uncounted | Level::Full => {
                self.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
            }
        }
    }

    /// Counts a grant that may have been of a new record.
    pub fn granted(&self) {
        self.granted.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether new records are to be refused.
    pub fn is_full(&self) -> bool {
        self.level() == Level::Full
    }

    /// Whether it is time to do something about it.
    pub fn is_near(&self) -> bool {
        self.level() >= Level::Near
    }

    /// Each bound, and how much of it is used.
    pub fn used(&self) -> impl Iterator<Item = Used> + use<> {
        let known = self.known();
        let records = known.records.saturating_add(self.granted.load(Ordering::Relaxed));
        let used =
            [("records", records, self.bounds.records_max), ("bytes", known.bytes, self.bounds.bytes_max)];
        drop(known);
        used.into_iter().filter_map(|(what, used, most)| Some(Used { what, used, most: most? }))
    }

    /// What an operator should know, one sentence for each bound that is near or reached, or that nobody knows this.
    pub fn warnings(&self) -> Vec<String> {
        if self.is_doubted() {
            return vec![UNCOUNTED.to_owned()];
        }
        self.used().filter(|used| used.is_near()).map(Used::told).collect()
    }

    fn is_doubted(&self) -> bool {
        self.is_doubted.load(Ordering::Relaxed)
    }

    fn level(&self) -> Level {
        if self.is_doubted() {
            return Level::Uncounted;
        }
        let level = |used: Used| match used {
            used if used.is_full() => Level::Full,
            used if used.is_near() => Level::Near,
            _ => Level::Fine,
        };
        self.used().map(level).max().unwrap_or_default()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_comes_before_the_refusal() {
        let growth = Growth::new(Bounds { records_max: Some(100), bytes_max: Some(1000) });
        let counted = |records, bytes| {
            growth.counted(&Stats { completed: records, bytes, ..Stats::default() });
            (growth.is_near(), growth.is_full(), growth.warnings().len())
        };
        assert_eq!(counted(79, 799), (false, false, 0));
        assert_eq!(counted(80, 0), (true, false, 1));
        assert_eq!(counted(0, 800), (true, false, 1));
        assert_eq!(counted(99, 999), (true, false, 2));
        assert_eq!(counted(100, 0), (true, true, 1));
        assert!(growth.warnings()[0].contains("100 of 100 records (records_max, 100 %)"), "{growth:?}");
        assert_eq!(counted(98, 0), (true, false, 1));
        growth.granted();
        growth.granted();
        assert!(growth.is_full(), "what was granted since counts");
        assert_eq!(counted(10, 10), (false, false, 0), "and is counted once");
    }

    #[test]
    fn a_count_that_is_too_old_refuses_nobody_and_is_told() {
        let growth = Growth::new(Bounds { records_max: Some(100), bytes_max: None });
        growth.counted(&Stats { completed: 99, ..Stats::default() });
        growth.granted();
        assert!(growth.is_full());
        growth.doubt();
        assert!(!growth.is_full() && growth.is_near(), "it is swept at any hour");
        assert!(
            growth.warnings().len() == 1 && growth.warnings()[0].contains("not been counted"),
            "{growth:?}"
        );
        growth.counted(&Stats { completed: 100, ..Stats::default() });
        assert!(growth.is_full() && growth.warnings()[0].contains("100 of 100"), "{growth:?}");
        let unbounded = Growth::default();
        unbounded.doubt();
        assert!(!unbounded.is_near() && unbounded.warnings().is_empty());
    }

    #[test]
    fn what_has_no_bound_is_never_full() {
        let growth = Growth::default();
        growth.counted(&Stats { completed: u64::MAX, bytes: u64::MAX, ..Stats::default() });
        assert!(!growth.is_near() && !growth.is_bounded() && growth.used().next().is_none());
        let nothing = Growth::new(Bounds { records_max: Some(0), bytes_max: None });
        assert!(nothing.is_full(), "nothing fits into nothing");
    }
}
