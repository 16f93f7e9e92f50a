//! Handing out the answers of a group.
//!
//! To wake a task from another thread takes a system call, and a group wakes many. So one task is started among those
//! who wait, and wakes them there, where it costs next to nothing.

use onlyonce_core::store::Batch;
use onlyonce_core::transition::Answer;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Up to so many are woken from here: starting a task for them would cost as much.
const WOKEN_HERE_MAX: usize = 2;

/// Where an answer is waited for.
#[derive(Debug)]
pub(crate) struct Reply {
    sender: oneshot::Sender<Batch<Answer>>,
    /// The runtime whose task waits, if it is one's.
    runtime: Option<Handle>,
}

impl Reply {
    /// For whoever calls this, and waits for what is received.
    pub(crate) fn channel() -> (Self, oneshot::Receiver<Batch<Answer>>) {
        let (sender, received) = oneshot::channel();
        (Self { sender, runtime: Handle::try_current().ok() }, received)
    }

    pub(super) fn send(self, answers: Batch<Answer>) {
        // Whoever does not wait any more finds the answer in the record.
        drop(self.sender.send(answers));
    }
}

/// An answer, and who waits for it.
pub(super) type Waiting = (Batch<Answer>, Reply);

/// Answers that are handed out when this is dropped, wherever that is: also by a runtime that ends before its turn.
struct Round(Vec<Waiting>);

impl Drop for Round {
    fn drop(&mut self) {
        for (answers, reply) in self.0.drain(..) {
            reply.send(answers);
        }
    }
}

/// Hands out the answers of a group.
pub(super) fn hand_out(waiting: Vec<Waiting>) {
    let round = Round(waiting);
    if round.0.len() <= WOKEN_HERE_MAX {
        return;
    }
    // One that still waits, so that its runtime is at work.
    let waits = round.0.iter().map(|(_, reply)| reply).find(|reply| !reply.sender.is_closed());
    if let Some(runtime) = waits.and_then(|reply| reply.runtime.clone()) {
        runtime.spawn(async move { drop(round) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: usize = 5;

    fn group() -> (Vec<Waiting>, Vec<oneshot::Receiver<Batch<Answer>>>) {
        let waiting = (0..GROUP).map(|_| Reply::channel());
        waiting.map(|(reply, received)| ((Batch::new(), reply), received)).unzip()
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
            let thread = std::thread::spawn(|| hand_out(waiting));
            all(received).await;
            thread.join().unwrap();
        });
    }

    #[test]
    fn a_runtime_that_ended_keeps_nobody_from_an_answer() {
        let ended = runtime();
        let (waiting, received) = ended.block_on(async { group() });
        drop(ended);
        hand_out(waiting);
        runtime().block_on(all(received));
    }

    #[test]
    fn a_runtime_where_nobody_waits_any_more_is_not_asked() {
        // Nobody drives it: what is started there does not run.
        let still = runtime();
        let ((mut waiting, gone), (more, received)) = (still.block_on(async { group() }), group());
        drop(gone);
        waiting.extend(more);
        hand_out(waiting);
        runtime().block_on(all(received));
    }
}
