//! What waits for a lane, and what travels together.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::store::Ids;
use onlyonce_core::transition::{Answer, Command};
use onlyonce_core::{RecordId, StoreError, StoreErrorKind};
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
/// How many commands make a call of their own worth while, so that further lanes help out at once.
const ENOUGH: usize = 32;

/// When a lane takes what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// At once.
    First,
    /// When it has waited for a while, or is much.
    Reserve,
}

impl Rank {
    /// The rank of the `number`th lane.
    pub(crate) const fn of(number: usize) -> Self {
        if number == 0 { Self::First } else { Self::Reserve }
    }
}

/// Something to be sent.
pub(crate) enum Job {
    /// A command that may travel with others.
    Command(Command, oneshot::Sender<Result<Answer, StoreError>>),
    /// A call of its own.
    Single(Single),
}

/// A call of one function.
pub(crate) struct Single {
    pub(crate) text: Arc<str>,
    pub(crate) arguments: Vec<Argument>,
    /// The record whose row it takes, and which of the arguments says for how many milliseconds it waits for it.
    pub(crate) takes: Option<(RecordId, usize)>,
    pub(crate) doing: &'static str,
    pub(crate) reply: oneshot::Sender<Result<Vec<Row>, StoreError>>,
}

impl Job {
    pub(super) const fn is_claim(&self) -> bool {
        matches!(self, Self::Command(Command::Claim(_), _))
    }

    /// The refusal of a job where too many wait.
    pub(crate) fn refused(&self) -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, self.doing())
            .because("too many commands wait for the server")
    }

    const fn doing(&self) -> &'static str {
        match self {
            Self::Command(command, _) => doing_of(command),
            Self::Single(single) => single.doing,
        }
    }
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
    /// There is enough for one of these.
    enough: Notify,
    closed: AtomicBool,
}

impl Queue {
    /// Lets a job wait for the next free lane.
    pub(crate) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut jobs = self.jobs();
        if jobs.waiting.len() >= WAITING_MAX {
            return Err(job.refused());
        }
        jobs.waiting.push_back(job);
        let is_enough = jobs.waiting.len() >= ENOUGH;
        drop(jobs);
        self.arrived.notify_one();
        self.waiting.notify_one();
        if is_enough {
            self.enough.notify_one();
        }
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

    /// What has waited for [`HELP_AFTER`], or is [`ENOUGH`], although the first lane takes what it can; `None` when the
    /// store was closed.
    pub(super) async fn take_late(&self) -> Option<Vec<Job>> {
        loop {
            self.waiting.notified().await;
            let taken = self.take_in_time().await;
            let closed = self.closed.load(Ordering::Acquire);
            if closed {
                // The word that the store was closed is for all.
                self.waiting.notify_one();
            }
            if !taken.is_empty() {
                return Some(taken);
            }
            if closed {
                return None;
            }
        }
    }

    /// What is left to others while it is little and they are quick: then nothing.
    async fn take_in_time(&self) -> Vec<Job> {
        let longest = self.jobs().taken;
        let late = tokio::time::sleep(HELP_AFTER);
        tokio::pin!(late);
        loop {
            tokio::select! {
                () = self.enough.notified() => {
                    // It may be the word of a while ago.
                    if self.jobs().waiting.len() >= ENOUGH {
                        return self.take_now();
                    }
                }
                () = &mut late => {
                    let is_untouched = self.jobs().taken == longest;
                    return if is_untouched { self.take_now() } else { Vec::new() };
                }
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
                Job::Single(_) if taken.is_empty() && passed.is_empty() => {
                    taken.push(job);
                    break;
                }
                Job::Command(command, _) if job.is_claim() || ids.insert(*command.id()) => {
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

/// How many bytes a command carries besides a few hundred of its own.
fn weight(command: &Command) -> usize {
    match command {
        Command::Complete(complete) => complete.outcome.len(),
        Command::Claim(claim) => claim.terms.sealed.len(),
        _ => 0,
    }
}
