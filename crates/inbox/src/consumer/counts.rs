//! What a consumer did, in numbers: for progress on a terminal and for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::Fate;

/// Counts what became of deliveries. Each number only grows.
#[derive(Debug, Default)]
pub struct Counts {
    fetched: AtomicU64,
    done: AtomicU64,
    duplicates: AtomicU64,
    busy: AtomicU64,
    retried: AtomicU64,
    given_back: AtomicU64,
    dead_lettered: AtomicU64,
    mismatched: AtomicU64,
    nameless: AtomicU64,
    store_failed: AtomicU64,
    unrecorded: AtomicU64,
    settled: AtomicU64,
    gone: AtomicU64,
    refused: AtomicU64,
}

/// The numbers at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Tally {
    /// Deliveries that were fetched.
    pub fetched: u64,
    /// Messages that were handled, with their outcome on record.
    pub done: u64,
    /// Deliveries of what was done before.
    pub duplicates: u64,
    /// Deliveries of what someone else was at.
    pub busy: u64,
    /// Deliveries that are to come again because handling failed.
    pub retried: u64,
    /// Deliveries that were not begun.
    pub given_back: u64,
    /// Deliveries that went to the dead letters.
    pub dead_lettered: u64,
    /// Deliveries whose id was used for another message.
    pub mismatched: u64,
    /// Deliveries that nothing names.
    pub nameless: u64,
    /// Deliveries for which the store could not be asked.
    pub store_failed: u64,
    /// Messages whose outcome could not be recorded at once.
    pub unrecorded: u64,
    /// Deliveries whose settlement the source has taken.
    pub settled: u64,
    /// Deliveries that were no longer ours when they were to be settled.
    pub gone: u64,
    /// Settlements that the source refused, and that were made in another way or wait for somebody to change something.
    pub refused: u64,
}

impl Counts {
    /// The numbers now.
    pub fn now(&self) -> Tally {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Tally {
            fetched: get(&self.fetched),
            done: get(&self.done),
            duplicates: get(&self.duplicates),
            busy: get(&self.busy),
            retried: get(&self.retried),
            given_back: get(&self.given_back),
            dead_lettered: get(&self.dead_lettered),
            mismatched: get(&self.mismatched),
            nameless: get(&self.nameless),
            store_failed: get(&self.store_failed),
            unrecorded: get(&self.unrecorded),
            settled: get(&self.settled),
            gone: get(&self.gone),
            refused: get(&self.refused),
        }
    }

    pub(crate) fn fetched(&self, count: usize) {
        self.fetched.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, gone: bool) {
        let number = if gone { &self.gone } else { &self.settled };
        number.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fate(&self, fate: Fate) {
        let number = match fate {
            Fate::Done => &self.done,
            Fate::Duplicate => &self.duplicates,
            Fate::Busy => &self.busy,
            Fate::Retried => &self.retried,
            Fate::GivenBack => &self.given_back,
            Fate::DeadLettered => &self.dead_lettered,
            Fate::Mismatched => &self.mismatched,
            Fate::Nameless => &self.nameless,
            Fate::StoreFailed => &self.store_failed,
            Fate::Unrecorded => &self.unrecorded,
        };
        number.fetch_add(1, Ordering::Relaxed);
    }
}
