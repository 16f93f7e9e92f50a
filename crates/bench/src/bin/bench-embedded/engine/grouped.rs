//! One thread that commits what waits, for engines that cannot group commands themselves: their strongest fair use.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{Asked, Engine, LOAD_BATCH};
use crate::Result;
use crate::pair::{Key, Pair};

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Claim,
    Complete,
}

/// An engine that one thread owns.
pub(super) trait Ledger: Send + 'static {
    /// How many records it loads at once.
    const LOAD_BATCH: usize = LOAD_BATCH;

    /// Decides all of `group` in order and makes it durable with one sync. Answers which of it was accepted.
    fn commit(&mut self, group: &[(Op, Pair)]) -> Result<Vec<bool>>;

    /// Stores completed records.
    fn load(&mut self, pairs: &[Pair]) -> Result<()>;

    /// How many completed records are stored.
    fn count(&self) -> Result<u64>;

    /// The stored outcome of `key`.
    fn outcome(&self, key: &Key) -> Result<Option<Bytes>>;
}

enum Work<L> {
    Ask(Op, Pair, oneshot::Sender<bool>),
    /// Anything else, done between two groups.
    Call(Box<dyn FnOnce(&mut L) + Send>),
}

struct Queue<L> {
    work: Mutex<(Vec<Work<L>>, bool)>,
    more: Condvar,
}

/// A ledger and the thread that owns it.
pub(super) struct Grouped<L> {
    queue: Arc<Queue<L>>,
    thread: Option<JoinHandle<()>>,
}

impl<L> Queue<L> {
    fn guard(&self) -> MutexGuard<'_, (Vec<Work<L>>, bool)> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: Work<L>) {
        self.guard().0.push(work);
        self.more.notify_one();
    }

    /// All that waits; `None` once the engine is closed and nothing does.
    fn take(&self) -> Option<Vec<Work<L>>> {
        let waiting = self.more.wait_while(self.guard(), |(work, closed)| work.is_empty() && !*closed);
        let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        if waiting.0.is_empty() { None } else { Some(std::mem::take(&mut waiting.0)) }
    }
}

impl<L: Ledger> Grouped<L> {
    pub(super) fn new(mut ledger: L) -> Result<Self> {
        let queue = Arc::new(Queue { work: Mutex::new((Vec::new(), false)), more: Condvar::new() });
        let work = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("bench-commit".into()).spawn(move || {
            while let Some(waiting) = work.take() {
                do_all(&mut ledger, waiting);
            }
        })?;
        Ok(Self { queue, thread: Some(thread) })
    }

    async fn ask(&self, op: Op, pair: &Pair) -> Result<bool> {
        let (reply, replied) = oneshot::channel();
        self.queue.push(Work::Ask(op, pair.clone(), reply));
        Ok(replied.await.map_err(|_| "the engine failed to commit")?)
    }

    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut L) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, replied) = oneshot::channel();
        self.queue.push(Work::Call(Box::new(move |ledger| {
            // Whoever asked may be gone.
            drop(reply.send(call(ledger)));
        })));
        replied.await.map_err(|_| "the engine is gone")?
    }
}

fn do_all<L: Ledger>(ledger: &mut L, waiting: Vec<Work<L>>) {
    let (mut group, mut replies, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for work in waiting {
        match work {
            Work::Ask(op, pair, reply) => {
                group.push((op, pair));
                replies.push(reply);
            }
            Work::Call(call) => calls.push(call),
        }
    }
    if !group.is_empty() {
        match ledger.commit(&group) {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Whoever asked may be gone.
                    let _ = reply.send(answer);
                }
            }
            // The callers see that nobody answers.
            Err(error) => eprintln!("committing a group: {error}"),
        }
    }
    for call in calls {
        call(ledger);
    }
}

impl<L> Drop for Grouped<L> {
    fn drop(&mut self) {
        self.queue.guard().1 = true;
        self.queue.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl<L: Ledger> Engine for Grouped<L> {
    fn claim<'a>(&'a self, pair: &'a Pair) -> Asked<'a, Option<u64>> {
        Box::pin(async move { Ok(self.ask(Op::Claim, pair).await?.then_some(0)) })
    }

    fn complete<'a>(&'a self, pair: &'a Pair, _: u64) -> Asked<'a, ()> {
        Box::pin(async move {
            let accepted = self.ask(Op::Complete, pair).await?;
            accepted.then_some(()).ok_or_else(|| "a claim that was granted is not there".into())
        })
    }

    fn load(&self, pairs: Vec<Pair>) -> Asked<'_, ()> {
        Box::pin(self.call(move |ledger| ledger.load(&pairs)))
    }

    fn load_batch(&self) -> usize {
        L::LOAD_BATCH
    }

    fn count(&self) -> Asked<'_, u64> {
        Box::pin(self.call(|ledger| ledger.count()))
    }

    fn outcome<'a>(&'a self, key: &'a Key) -> Asked<'a, Option<Bytes>> {
        let key = *key;
        Box::pin(self.call(move |ledger| ledger.outcome(&key)))
    }
}
