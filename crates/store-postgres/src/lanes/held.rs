//! Commands for records that another transaction holds: a caller that claimed in its own, and has not ended it.
//!
//! Such a record is waited for on connections of their own, each record for itself and never for long, so that nobody
//! else is held up. Which records they are is remembered for a while, so that the next command for one does not travel
//! with others first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::{Clock as _, RecordId, SystemClock, Timestamp};
use tokio::sync::Notify;

use super::queue::Job;

/// How long a command waits in all for a record that another transaction holds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// How long it is tried at least, when it spent that time behind others.
const PATIENCE_MIN: Duration = Duration::from_millis(2);
/// How long a record that was held is remembered as such.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);
/// The most commands that may wait, and the most records that are remembered.
const WAITING_MAX: usize = 10_000;

/// Commands for one record, to be tried together.
pub(super) struct Turn {
    pub(super) id: RecordId,
    pub(super) jobs: Vec<Job>,
    /// How long they may still wait.
    pub(super) patience: Duration,
}

struct Waiting {
    id: RecordId,
    since: Timestamp,
    job: Job,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Until when each record is taken to be held.
    remembered: HashMap<RecordId, Timestamp>,
}

/// What waits for other transactions.
#[derive(Default)]
pub(crate) struct Held {
    state: Mutex<State>,
    /// How many are remembered, so that it costs a store without such records one load.
    count: AtomicUsize,
    arrived: Notify,
    closed: AtomicBool,
    clock: SystemClock,
}

impl Held {
    /// Whether `id` was held a moment ago.
    pub(crate) fn has(&self, id: &RecordId) -> bool {
        self.count.load(Ordering::Relaxed) > 0
            && self.state().remembered.get(id).is_some_and(|until| self.clock.now() < *until)
    }

    /// Lets a job wait for whoever holds `id`. Hands it back when too many wait already.
    pub(crate) fn push(&self, id: RecordId, job: Job) -> Result<(), Box<Job>> {
        let mut state = self.state();
        if state.waiting.len() >= WAITING_MAX {
            return Err(Box::new(job));
        }
        let since = self.clock.now();
        self.remember(&mut state, id, since);
        state.waiting.push_back(Waiting { id, since, job });
        drop(state);
        self.arrived.notify_one();
        Ok(())
    }

    /// No more is coming.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    /// What is to be tried next; `None` when the store was closed.
    pub(super) async fn take(&self) -> Option<Turn> {
        loop {
            let arrived = self.arrived.notified();
            if let Some(turn) = self.take_now() {
                return Some(turn);
            }
            if self.closed.load(Ordering::Acquire) {
                self.arrived.notify_one();
                return None;
            }
            arrived.await;
        }
    }

    /// Says how it went: whether `id` is still held.
    pub(super) fn tried(&self, id: RecordId, is_held: bool) {
        let mut state = self.state();
        if is_held {
            self.remember(&mut state, id, self.clock.now());
        } else {
            state.remembered.remove(&id);
            self.count.store(state.remembered.len(), Ordering::Relaxed);
        }
    }

    /// The first job, and further claims of the same record with a first one that is a claim: they are answered
    /// together.
    fn take_now(&self) -> Option<Turn> {
        let mut state = self.state();
        let Waiting { id, since, job } = state.waiting.pop_front()?;
        let mut jobs = vec![job];
        if jobs[0].is_claim() {
            let others = std::mem::take(&mut state.waiting);
            for other in others {
                if other.id == id && other.job.is_claim() {
                    jobs.push(other.job);
                } else {
                    state.waiting.push_back(other);
                }
            }
        }
        if !state.waiting.is_empty() {
            self.arrived.notify_one();
        }
        let left = PATIENCE.saturating_sub(since.until(self.clock.now()));
        Some(Turn { id, jobs, patience: left.max(PATIENCE_MIN) })
    }

    fn remember(&self, state: &mut State, id: RecordId, now: Timestamp) {
        state.remembered.retain(|_, until| now < *until);
        if state.remembered.len() < WAITING_MAX {
            state.remembered.insert(id, now + REMEMBERED_FOR);
        }
        self.count.store(state.remembered.len(), Ordering::Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
