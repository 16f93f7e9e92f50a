//! What waits for the committer, and when the committer is told: not for each command, but when a group has come.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::store::{Batch, Imported, SweepBudget, Swept};
use onlyonce_core::transition::{Answer, Command};
use onlyonce_core::{Record, RecordId, StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::catalog::Version;
use crate::committer::Reply;

/// The most commands that may wait. One more is refused: a disk that does not keep up must not eat the memory.
const QUEUE_MAX: usize = 65_536;

/// For how many there is room before they come.
const ROOM_MAX: usize = 1024;

/// Something for the committer to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// A command, and the version at which its record was seen to be absent.
    ///
    /// Not boxed: whoever makes it and the committer would each have the other's memory to give back.
    Command(Command, Option<Version>, Reply<Result<Answer, StoreError>>),
    Commands(Vec<Command>, Reply<Batch<Answer>>),
    Sweep(SweepBudget, oneshot::Sender<Result<Swept, StoreError>>),
    Import(Vec<(RecordId, Record)>, oneshot::Sender<Result<Imported, StoreError>>),
}

/// Jobs, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<Job>,
    /// How many must wait before the committer is woken; `None` while it is awake. Telling a thread that does not wait
    /// takes a system call all the same.
    wanted: Option<usize>,
    /// The number of the last round of answers, while those who got them may come back.
    returning: Option<u64>,
    /// How many rounds there were.
    rounds: u64,
    /// How often the jobs were taken.
    taken: u64,
    stopping: bool,
}

/// How far the next group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Progress {
    /// How many groups there were before it.
    pub(crate) group: u64,
    /// How many have come.
    pub(crate) jobs: usize,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting().jobs.len()
    }

    /// Hands a job to the committer.
    pub(crate) fn push(&self, job: Job) -> Result<(), StoreError> {
        let mut waiting = self.waiting();
        if waiting.stopping {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "reaching a store that is closing"));
        }
        if waiting.jobs.len() >= QUEUE_MAX {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "waiting for the disk")
                .because("too many commands wait for the disk"));
        }
        waiting.jobs.push(job);
        let come = waiting.jobs.len();
        let is_enough = waiting.wanted.take_if(|wanted| come >= *wanted).is_some();
        // Let go first: it would be woken only to wait for us.
        drop(waiting);
        if is_enough {
            self.more.notify_one();
        }
        Ok(())
    }

    /// Waits for jobs and takes them. `None` when the store is closing and nothing is left; none after `idle`.
    ///
    /// While callers of the last round may come back, `expected` jobs are waited for, for as long as `patience`.
    pub(crate) fn take(
        &self,
        expected: usize,
        patience: Duration,
        idle: Option<Duration>,
    ) -> Option<Vec<Job>> {
        let mut waiting = self.waiting();
        if waiting.returning.is_some() && waiting.jobs.len() < expected && !waiting.stopping {
            waiting.wanted = Some(expected);
            // Once: whoever wakes it early, or late, what is there is taken.
            waiting = self.more.wait_timeout(waiting, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        while waiting.jobs.is_empty() {
            if waiting.stopping {
                return None;
            }
            waiting.wanted = Some(1);
            waiting = match idle {
                None => self.more.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(idle) => {
                    let (waiting, waited) =
                        self.more.wait_timeout(waiting, idle).unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() && waiting.jobs.is_empty() {
                        return Some(Vec::new());
                    }
                    waiting
                }
            };
        }
        waiting.wanted = None;
        waiting.taken += 1;
        // Those who come back find room for as many as they are, but what a burst took is given back.
        let room = Vec::with_capacity(waiting.jobs.len().min(ROOM_MAX));
        Some(std::mem::replace(&mut waiting.jobs, room))
    }

    /// Begins a round of answers: those who get them are expected back until [`Queue::end_round`].
    pub(crate) fn begin_round(&self) -> u64 {
        let mut waiting = self.waiting();
        waiting.rounds += 1;
        waiting.returning = Some(waiting.rounds);
        waiting.rounds
    }

    /// Whoever of this round wanted to come back has come. Only the last round is waited for: one whose runtime stands
    /// still keeps nobody.
    pub(crate) fn end_round(&self, round: u64) {
        let mut waiting = self.waiting();
        if waiting.returning.take_if(|returning| *returning == round).is_none() {
            return;
        }
        if waiting.jobs.is_empty() {
            // The next one to come is the first.
            waiting.wanted = waiting.wanted.map(|_| 1);
            return;
        }
        let waits = waiting.wanted.take().is_some();
        drop(waiting);
        if waits {
            self.more.notify_one();
        }
    }

    /// Whether those who were answered last may still come back.
    #[cfg(test)]
    pub(crate) fn is_expecting(&self) -> bool {
        self.waiting().returning.is_some()
    }

    /// How far the next group is.
    pub(crate) fn progress(&self) -> Progress {
        let waiting = self.waiting();
        Progress { group: waiting.taken, jobs: waiting.jobs.len() }
    }

    /// Takes no more jobs.
    pub(crate) fn stop(&self) {
        self.waiting().stopping = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const FOR_EVER: Duration = Duration::MAX;

    fn job() -> Job {
        Job::Sweep(SweepBudget::DEFAULT, oneshot::channel().0)
    }

    fn with_jobs(count: usize) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        (0..count).for_each(|_| queue.push(job()).unwrap());
        queue
    }

    fn taken(queue: &Queue, expected: usize) -> Option<usize> {
        queue.take(expected, FOR_EVER, None).map(|jobs| jobs.len())
    }

    #[test]
    fn nobody_is_waited_for_who_was_not_answered() {
        assert_eq!(taken(&with_jobs(1), 5), Some(1));
    }

    #[test]
    fn those_who_come_back_are_waited_for() {
        let queue = with_jobs(1);
        queue.begin_round();
        let coming = Arc::clone(&queue);
        let thread = thread::spawn(move || (0..2).for_each(|_| coming.push(job()).unwrap()));
        assert_eq!(taken(&queue, 3), Some(3));
        thread.join().unwrap();
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_after_the_round() {
        for before in [0, 2] {
            let queue = with_jobs(before);
            let round = queue.begin_round();
            let coming = Arc::clone(&queue);
            let thread = thread::spawn(move || {
                coming.end_round(round);
                // The next one is the first of a group of its own.
                if before == 0 {
                    coming.push(job()).unwrap();
                }
            });
            assert_eq!(taken(&queue, 5), Some(before.max(1)));
            thread.join().unwrap();
        }
    }

    #[test]
    fn patience_is_bounded() {
        let queue = with_jobs(1);
        queue.begin_round();
        assert_eq!(queue.take(5, Duration::from_micros(1), None).map(|jobs| jobs.len()), Some(1));
    }

    #[test]
    fn only_the_last_round_is_waited_for() {
        let queue = with_jobs(0);
        let (first, second) = (queue.begin_round(), queue.begin_round());
        queue.end_round(first);
        assert_eq!(queue.waiting().returning, Some(second));
        queue.end_round(second);
        assert_eq!(queue.waiting().returning, None);
    }

    #[test]
    fn a_store_that_is_idle_says_so_and_one_that_closes_ends() {
        let queue = with_jobs(0);
        let idle = Some(Duration::from_micros(1));
        assert_eq!(queue.take(1, FOR_EVER, idle).map(|jobs| jobs.len()), Some(0));
        queue.push(job()).unwrap();
        queue.begin_round();
        queue.stop();
        assert_eq!(taken(&queue, 5), Some(1), "what came before is done");
        assert_eq!(taken(&queue, 5), None);
        assert!(queue.push(job()).is_err());
    }
}
