//! The small tier in this process: completed answers that were asked for a second time, as they may be a third time.
//!
//! A fresh key costs nothing here. A burst of retries of one key costs the store one claim every few seconds.

use std::fmt;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache as Bounded;
use quick_cache::sync::DefaultLifecycle;

use super::tier::{FRESH_FOR, Keeps, Known, Look, Tier};
use super::{IdHasher, StoreFuture};
use crate::clock::{Clock, Timestamp};
use crate::scope::RecordId;

/// What one answer takes beside the record.
const ENTRY_BYTES: usize = 128;
/// The part of the whole that one answer may take.
const SHARE_MAX: usize = 16;
/// How many bytes an answer is expected to take. Only the first size of the tables depends on it.
const USUAL_BYTES: usize = 1024;

/// Answers of a store, in this process's memory and no more bytes than it was given.
pub struct Recent {
    clock: Arc<dyn Clock>,
    bytes_max: usize,
    answers: Bounded<RecordId, Arc<Answered>, Weight, BuildHasherDefault<IdHasher>>,
}

struct Answered {
    known: Known,
    at: Timestamp,
    weight: usize,
}

#[derive(Clone)]
struct Weight;

impl Weighter<RecordId, Arc<Answered>> for Weight {
    fn weight(&self, _: &RecordId, answered: &Arc<Answered>) -> u64 {
        answered.weight as u64
    }
}

impl Recent {
    /// An empty tier of at most `bytes_max`. `clock` need not be the store's.
    pub fn new(clock: Arc<dyn Clock>, bytes_max: usize) -> Self {
        let answers = Bounded::with(
            bytes_max / USUAL_BYTES,
            bytes_max as u64,
            Weight,
            BuildHasherDefault::default(),
            DefaultLifecycle::default(),
        );
        Self { clock, bytes_max, answers }
    }

    /// How many bytes the answers take.
    pub fn bytes(&self) -> u64 {
        self.answers.weight()
    }

    /// How many answers there are.
    pub fn len(&self) -> usize {
        self.answers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

impl Tier for Recent {
    fn get<'a>(&'a self, id: &'a RecordId) -> Look<'a> {
        let Some(answered) = self.answers.get(id) else { return Look::Seen(None) };
        let age = answered.at.until(self.clock.now());
        if age >= FRESH_FOR {
            self.answers.remove(id);
            return Look::Seen(None);
        }
        Look::Seen(Some(answered.known.clone().aged(age)))
    }

    fn put(&self, id: &RecordId, known: Known) {
        let weight = known.record().weight() + ENTRY_BYTES;
        if weight <= self.bytes_max / SHARE_MAX {
            let at = self.clock.now();
            self.answers.insert(*id, Arc::new(Answered { known, at, weight }));
        }
    }

    fn forget(&self, id: &RecordId) {
        self.answers.remove(id);
    }

    fn void<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, ()> {
        self.answers.remove(id);
        Box::pin(std::future::ready(Ok(())))
    }

    fn keeps(&self) -> Keeps {
        Keeps::Replays
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes_max, .. } = self;
        f.debug_struct("Recent").field("answers", &self.len()).field("bytes_max", bytes_max).finish()
    }
}
