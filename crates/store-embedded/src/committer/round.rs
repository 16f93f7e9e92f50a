//! Handing out the answers of a group.
//!
//! To wake a task from another thread takes a system call, and a group wakes many. So one task is started among those
//! who wait, and wakes them there, where it costs next to nothing. It then sees in who comes back.

use std::sync::Arc;

use onlyonce_core::StoreError;
use onlyonce_core::store::Batch;
use onlyonce_core::transition::Answer;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::queue::Queue;

/// So many turns of a runtime bring nobody before nobody is expected any more: an answer may go through several tasks
/// before its caller comes back, and where there is nothing to do, turns are short.
const PASSES: u32 = 4;

/// Where an answer is waited for.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    sender: oneshot::Sender<T>,
    /// The runtime whose task waits, if it is one's.
    runtime: Option<Handle>,
}

impl<T> Reply<T> {
    /// For whoever calls this, and waits for what is received.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<T>) {
        let (sender, received) = oneshot::channel();
        (Self { sender, runtime: Handle::try_current().ok() }, received)
    }

    fn send(self, answer: T) {
        // Whoever does not wait any more finds the answer in the record.
        drop(self.sender.send(answer));
    }

    /// The runtime whose task waits; `None` when nobody does, or none.
    fn waits_on(&self) -> Option<&Handle> {
        self.runtime.as_ref().filter(|_| !self.sender.is_closed())
    }
}

/// An answer, and who waits for it.
pub(super) enum Waiting {
    One(Result<Answer, StoreError>, Reply<Result<Answer, StoreError>>),
    Many(Batch<Answer>, Reply<Batch<Answer>>),
}

impl Waiting {
    fn answer(self) {
        match self {
            Self::One(answer, reply) => reply.send(answer),
            Self::Many(answers, reply) => reply.send(answers),
        }
    }

    /// Answers each with an error, whatever it would have been.
    pub(super) fn refuse(self, error: impl Fn() -> StoreError) {
        match self {
            Self::One(_, reply) => reply.send(Err(error())),
            Self::Many(answers, reply) => reply.send(answers.iter().map(|_| Err(error())).collect()),
        }
    }

    fn runtime(&self) -> Option<&Handle> {
        match self {
            Self::One(_, reply) => reply.runtime.as_ref(),
            Self::Many(_, reply) => reply.runtime.as_ref(),
        }
    }

    fn waits_on(&self) -> Option<&Handle> {
        match self {
            Self::One(_, reply) => reply.waits_on(),
            Self::Many(_, reply) => reply.waits_on(),
        }
    }
}

/// Answers that are handed out when this is dropped, wherever that is: also by a runtime that ends before its turn.
struct Answers(Vec<Waiting>);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Waiting::answer);
    }
}

/// Hands out the answers of a group.
pub(super) fn hand_out(queue: &Arc<Queue>, waiting: Vec<Waiting>) {
    let mut answers = Answers(waiting);
    if answers.0.len() + queue.len() <= 1 {
        return;
    }
    // Of one that still waits, so that it is at work.
    if let Some(runtime) = answers.0.iter().find_map(Waiting::waits_on).cloned() {
        // Those of other runtimes are told from here: they are not to wait for one that may stand still.
        let is_elsewhere =
            |waiting: &mut Waiting| waiting.runtime().is_none_or(|other| other.id() != runtime.id());
        answers.0.extract_if(.., is_elsewhere).for_each(Waiting::answer);
        let round = Round::begin(queue);
        runtime.spawn(async move {
            drop(answers);
            round.see_in().await;
        });
    }
}

/// Those who are answered together, and may come back with their next command. They are waited for while this lives.
struct Round {
    queue: Arc<Queue>,
    number: u64,
}

impl Round {
    fn begin(queue: &Arc<Queue>) -> Self {
        Self { queue: Arc::clone(queue), number: queue.begin_round() }
    }

    /// Waits until their runtime has done all that there was to do and nobody came of it.
    async fn see_in(self) {
        let (mut seen, mut in_vain) = (self.queue.progress(), 0);
        while in_vain < PASSES {
            // Goes on when every other task has had its turn and the sockets were looked at.
            tokio::task::yield_now().await;
            let now = self.queue.progress();
            if now.group != seen.group {
                return;
            }
            in_vain = if now == seen { in_vain + 1 } else { 0 };
            seen = now;
        }
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        self.queue.end_round(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use onlyonce_core::store::SweepBudget;

    use super::*;
    use crate::queue::Job;

    const GROUP: usize = 5;

    fn group() -> (Vec<Waiting>, Vec<oneshot::Receiver<Batch<Answer>>>) {
        let waiting = (0..GROUP).map(|_| Reply::channel());
        waiting.map(|(reply, received)| (Waiting::Many(Batch::new(), reply), received)).unzip()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    async fn all(received: Vec<oneshot::Receiver<Batch<Answer>>>) {
        for received in received {
            assert!(received.await.unwrap().is_empty());
        }
    }

    #[test]
    fn those_who_wait_on_a_runtime_are_woken_from_another_thread() {
        runtime().block_on(async {
            let (waiting, received) = group();
            let thread = std::thread::spawn(|| hand_out(&Arc::default(), waiting));
            all(received).await;
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_runtime_that_ended_keeps_nobody_from_an_answer() {
        let ended = runtime();
        let (waiting, received) = ended.block_on(async { group() });
        drop(ended);
        hand_out(&Arc::default(), waiting);
        runtime().block_on(all(received));
    }

    #[test]
    fn a_runtime_where_nobody_waits_any_more_is_not_asked() {
        // Nobody drives it: what is started there does not run.
        let still = runtime();
        let ((mut waiting, gone), (more, received)) = (still.block_on(async { group() }), group());
        drop(gone);
        waiting.extend(more);
        hand_out(&Arc::default(), waiting);
        runtime().block_on(all(received));
    }

    /// Hands out a group of answers to callers of whom `returning` come back with a job, and counts what is taken then.
    fn taken_after(returning: usize) -> usize {
        let queue = Arc::<Queue>::default();
        runtime().block_on(async {
            let (waiting, received) = group();
            for (at, received) in received.into_iter().enumerate() {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move {
                    received.await.unwrap();
                    // Not at once: it has something to do first, as a request has.
                    tokio::task::yield_now().await;
                    if at < returning {
                        queue.push(Job::Sweep(SweepBudget::DEFAULT, oneshot::channel().0)).unwrap();
                    }
                });
            }
            let taking = Arc::clone(&queue);
            let committer = std::thread::spawn(move || {
                hand_out(&taking, waiting);
                taking.take(GROUP, Duration::MAX, None).map_or(0, |jobs| jobs.len())
            });
            // The runtime goes on while the committer waits.
            while !committer.is_finished() {
                tokio::task::yield_now().await;
            }
            committer.join().unwrap()
        })
    }

    #[test]
    fn all_who_come_back_are_in_the_next_group() {
        assert_eq!(taken_after(GROUP), GROUP);
    }

    #[test]
    fn those_who_come_back_after_a_few_turns_are_still_expected() {
        let queue = Arc::<Queue>::default();
        // On one thread: who has a turn when is certain.
        runtime().block_on(async {
            let (waiting, received) = group();
            let returning = received.into_iter().map(|received| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move {
                    received.await.unwrap();
                    // So many turns pass in vain before it comes.
                    for _ in 2..PASSES {
                        tokio::task::yield_now().await;
                    }
                    let is_expected = queue.is_expecting();
                    queue.push(Job::Sweep(SweepBudget::DEFAULT, oneshot::channel().0)).unwrap();
                    is_expected
                })
            });
            let returning: Vec<_> = returning.collect();
            hand_out(&queue, waiting);
            for returning in returning {
                assert!(returning.await.unwrap(), "it came to a group that did not wait for it");
            }
            // And nobody else is.
            while queue.is_expecting() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(queue.len(), GROUP);
    }

    #[test]
    fn a_runtime_that_stands_still_keeps_nobody_of_another_from_an_answer() {
        // Nobody drives it: what is started there does not run.
        let still = runtime();
        let (mut waiting, kept) = still.block_on(async { group() });
        let (there, mut received) = runtime().block_on(async { group() });
        let (nowhere, received_nowhere) = group();
        waiting.extend(there);
        waiting.extend(nowhere);
        received.extend(received_nowhere);
        hand_out(&Arc::default(), waiting);
        for received in &mut received {
            assert!(received.try_recv().is_ok(), "it waits for a runtime that is not its own");
        }
        drop(still);
        runtime().block_on(all(kept));
    }

    #[test]
    fn a_group_does_not_wait_for_those_who_stay_away() {
        assert_eq!(taken_after(2), 2);
    }
}
