//! What waits for a lane, and what travels together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::store::Ids;
use onlyonce_core::transition::{Answer, Command};
use onlyonce_core::{StoreError, StoreErrorKind};
use tokio::sync::{Notify, oneshot};
use tokio_postgres::Row;

use super::doing_of;
use crate::connect::Argument;

/// The most commands in one call: enough to make a commit cheap, few enough to be answered soon.
const BATCH_MAX: usize = 256;
/// How many bytes of outcomes one call may carry before the rest waits for the next.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// The most commands that may wait. The next one is refused: a queue without an end helps nobody.
const WAITING_MAX: usize = 50_000;
/// How long something waits before further lanes help out.
const HELP_AFTER: Duration = Duration::from_millis(5);
/// How many lanes take whatever is there.
const FIRST_LANES: usize = 2;

/// When a lane takes what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// At once.
    First,
    /// When it has waited for a while.
    Reserve,
}

impl Rank {
    /// The rank of the `number`th lane.
    pub(crate) const fn of(number: usize) -> Self {
        if number < FIRST_LANES { Self::First } else { Self::Reserve }
    }
}

/// Something to be sent.
pub(crate) enum Job {
    /// A command that may travel with others.
    Command(Command, oneshot::Sender<Result<Answer, StoreError>>),
    /// A call of its own.
    Call(Arc<str>, Vec<Argument>, &'static str, oneshot::Sender<Result<Vec<Row>, StoreError>>),
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    /// How many were ever taken: the name of the one that waits longest.
    taken: u64,
}

/// What waits for a lane.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<Jobs>,
    arrived: Notify,
    /// The same for the lanes that help out.
    waiting: Notify,
    closed: AtomicBool,
}

impl Queue {
    /// Lets a job wait for the next free lane.
    pub(crate) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut jobs = self.jobs();
        if jobs.waiting.len() >= WAITING_MAX {
            let busy = StoreError::new(StoreErrorKind::Unavailable, doing(&job));
            return Err(busy.because("too many commands wait for the server"));
        }
        jobs.waiting.push_back(job);
        drop(jobs);
        self.arrived.notify_one();
        self.waiting.notify_one();
        Ok(())
    }

    /// No more is coming: lanes end when nothing is left.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for lanes in [&self.arrived, &self.waiting] {
            lanes.notify_waiters();
            lanes.notify_one();
        }
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to be sent next, together; `None` when the store was closed.
    pub(super) async fn take(&self) -> Option<Vec<Job>> {
        loop {
            let arrived = self.arrived.notified();
            let taken = self.take_now();
            if !taken.is_empty() {
                return Some(taken);
            }
            if self.closed.load(Ordering::Acquire) {
                self.arrived.notify_one();
                return None;
            }
            arrived.await;
        }
    }

    /// What has waited for [`HELP_AFTER`] although the first lanes take what they can; `None` when the store was closed.
    pub(super) async fn take_late(&self) -> Option<Vec<Job>> {
        loop {
            self.waiting.notified().await;
            let longest = self.jobs().taken;
            tokio::time::sleep(HELP_AFTER).await;
            let waits = || {
                let jobs = self.jobs();
                !jobs.waiting.is_empty() && jobs.taken == longest
            };
            if waits() {
                let taken = self.take_now();
                if !taken.is_empty() {
                    if self.closed.load(Ordering::Acquire) {
                        // The word that the store was closed came with this work, and is for all.
                        self.waiting.notify_one();
                    }
                    return Some(taken);
                }
            }
            if self.closed.load(Ordering::Acquire) {
                self.waiting.notify_one();
                return None;
            }
        }
    }

    /// A call of its own, or commands. Of one record there may be many claims and one other command, which goes first;
    /// a second one waits its turn.
    fn take_now(&self) -> Vec<Job> {
        let mut all = self.jobs();
        let jobs = &mut all.waiting;
        let mut taken = Vec::new();
        let mut ids = Ids::default();
        let mut passed = VecDeque::new();
        let mut bytes = 0;
        while taken.len() < BATCH_MAX
            && bytes < BATCH_BYTES_MAX
            && passed.len() < BATCH_MAX
            && let Some(job) = jobs.pop_front()
        {
            match &job {
                Job::Call(..) if taken.is_empty() && passed.is_empty() => {
                    taken.push(job);
                    break;
                }
                Job::Command(command, _) if is_claim(command) || ids.insert(*command.id()) => {
                    bytes += weight(command);
                    taken.push(job);
                }
                _ => passed.push_back(job),
            }
        }
        while let Some(job) = passed.pop_back() {
            jobs.push_front(job);
        }
        if !jobs.is_empty() {
            self.arrived.notify_one();
            self.waiting.notify_one();
        }
        all.taken += taken.len() as u64;
        taken
    }
}

const fn is_claim(command: &Command) -> bool {
    matches!(command, Command::Claim(_))
}

/// How many bytes a command carries besides a few hundred of its own.
fn weight(command: &Command) -> usize {
    match command {
        Command::Complete(complete) => complete.outcome.len(),
        Command::Claim(claim) => claim.terms.sealed.len(),
        _ => 0,
    }
}

const fn doing(job: &Job) -> &'static str {
    match job {
        Job::Command(command, _) => doing_of(command),
        Job::Call(_, _, doing, _) => doing,
    }
}
