//! The last events of this process, for whoever looks on: a bounded ring that forgets the oldest first.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use onlyonce_core::{Clock as _, Event, Fence, RecordId, SystemClock, Timestamp};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// How many are kept.
const EVENTS_MAX: usize = 1000;

/// Something that happened to a record. No key, no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) id: RecordId,
    /// Zero where there was no grant.
    pub(crate) fence: Fence,
    pub(crate) name: &'static str,
    more: More,
}

/// What else there is to say of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum More {
    Nothing,
    Attempt(u32),
    AgeMillis(u64),
    Kind(&'static str),
}

impl Seen {
    /// The event without its time, which lists write in their own way.
    pub(crate) fn to_json(self) -> Value {
        let mut shown = json!({ "event": self.name, "fence": self.fence.get() });
        match self.more {
            More::Nothing => {}
            More::Attempt(attempt) => shown["attempt"] = attempt.into(),
            More::AgeMillis(age) => shown["age_ms"] = age.into(),
            More::Kind(kind) => shown["kind"] = kind.into(),
        }
        shown
    }
}

/// The last events, numbered from 1.
pub(crate) struct Ring {
    clock: SystemClock,
    kept: Mutex<Kept>,
    changed: Notify,
}

#[derive(Default)]
struct Kept {
    events: VecDeque<Seen>,
    /// The number of the last one.
    last: u64,
}

/// What came after a number.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// How many were forgotten before they could be read.
    pub(crate) lost: u64,
    /// The number of the first of `events`.
    pub(crate) first: u64,
    pub(crate) events: Vec<Seen>,
}

impl Ring {
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), kept: Mutex::default(), changed: Notify::new() }
    }

    /// What the engine saw.
    pub(crate) fn event(&self, id: &RecordId, fence: Fence, event: Event) {
        let more = match event {
            Event::Granted { attempt } => More::Attempt(attempt),
            Event::Replayed { age } => More::AgeMillis(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            Event::StoreFailed(kind) => More::Kind(kind.code()),
            _ => More::Nothing,
        };
        self.push(*id, fence, event.name(), more);
    }

    /// What an operator did.
    pub(crate) fn command(&self, id: RecordId, fence: Fence, name: &'static str) {
        self.push(id, fence, name, More::Nothing);
    }

    fn push(&self, id: RecordId, fence: Fence, name: &'static str, more: More) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.events.len() == EVENTS_MAX {
            kept.events.pop_front();
        }
        // Read under the guard, so that the order of times is the order of numbers.
        let at = self.clock.now();
        kept.events.push_back(Seen { at, id, fence, name, more });
        kept.last += 1;
        drop(kept);
        self.changed.notify_waiters();
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).last
    }

    /// At most `max` events after the number `after`.
    pub(crate) fn since(&self, after: u64, max: usize) -> Since {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let forgotten = kept.last - kept.events.len() as u64;
        let lost = forgotten.saturating_sub(after);
        let first = after.max(forgotten) + 1;
        let skip = usize::try_from(first - 1 - forgotten).unwrap_or(usize::MAX);
        Since { lost, first, events: kept.events.iter().skip(skip).take(max).copied().collect() }
    }

    /// What is kept of one record.
    pub(crate) fn of(&self, id: &RecordId) -> Vec<Seen> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.events.iter().filter(|seen| seen.id == *id).copied().collect()
    }

    /// Resolves when there are events after the number `after`.
    pub(crate) async fn changed(&self, after: u64) {
        loop {
            // ORDER: listen first, look second: what comes in between wakes.
            let changed = self.changed.notified();
            if self.last() > after {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ring(up to {})", self.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_counted() {
        let ring = Ring::new();
        let id = RecordId::from_bytes([1; 32]);
        assert_eq!(ring.since(0, 10), Since { lost: 0, first: 1, events: Vec::new() });
        for _ in 0..EVENTS_MAX + 5 {
            ring.event(&id, Fence::default(), Event::Busy);
        }
        let all = ring.since(0, usize::MAX);
        assert_eq!((all.lost, all.first, all.events.len()), (5, 6, EVENTS_MAX));
        let some = ring.since(1000, 3);
        assert_eq!((some.lost, some.first, some.events.len()), (0, 1001, 3));
        assert_eq!(ring.since(1005, 3).events.len(), 0);
        // Who asks with a number of another life of the process is not answered with nonsense.
        assert_eq!(ring.since(5000, 3).events.len(), 0);
        assert_eq!(ring.of(&RecordId::from_bytes([2; 32])).len(), 0);
    }
}
