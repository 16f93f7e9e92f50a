//! Lets what is ready be read before any of it is sent.
//!
//! Whoever is sent to must be woken if it sleeps, and to wake another processor takes about as long as half a send. With
//! the work of a request between two sends, each of them finds the other side asleep again; one right after the other, only
//! the first does.

use std::cell::{Cell, OnceCell};
use std::future::poll_fn;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};

/// How many wait for the others together, on one thread. What they are to send was just made, and is to be still at hand for
/// the processor when they send it.
const TOGETHER_MAX: usize = 32;

/// So many do not wait because others do before those others are taken for gone.
const PASSED_MAX: usize = 1024;

thread_local! {
    /// How many have come since the last of those who waited went on.
    static COME: Cell<usize> = const { Cell::new(0) };
    /// How many have ever begun to wait.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
    /// Whether this thread is its runtime's only one.
    static ALONE: OnceCell<bool> = const { OnceCell::new() };
}

/// Resolves when what was ready before has had its turn: at once, or nearly so, where that is nothing.
///
/// At once, too, on a runtime of many threads: another one would be woken to take up whoever waits.
pub(crate) fn others_first() -> impl Future<Output = ()> {
    let mut waits = false;
    poll_fn(move |cx| {
        if waits {
            COME.set(0);
            return Poll::Ready(());
        }
        let others = COME.get() % (TOGETHER_MAX + PASSED_MAX);
        COME.set(others + 1);
        waits = others < TOGETHER_MAX && is_alone();
        if !waits {
            return Poll::Ready(());
        }
        BEGUN.set(BEGUN.get().wrapping_add(1));
        // A task that is woken while it runs goes to the end of the queue.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// How many on this thread have begun to wait for others. If it is another number after a poll, what was polled goes on by
/// itself.
pub(crate) fn begun() -> u64 {
    BEGUN.get()
}

fn is_alone() -> bool {
    let look = || {
        Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread)
    };
    ALONE.with(|alone| *alone.get_or_init(look))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Waker};

    use super::*;

    /// What tasks do that are started together: each reads, lets the others go first, and sends.
    async fn order(tasks: usize) -> Vec<(&'static str, usize)> {
        let done = Arc::new(Mutex::new(Vec::new()));
        let started: Vec<_> = (0..tasks)
            .map(|number| {
                let done = Arc::clone(&done);
                tokio::spawn(async move {
                    done.lock().unwrap().push(("read", number));
                    others_first().await;
                    done.lock().unwrap().push(("sent", number));
                })
            })
            .collect();
        for task in started {
            task.await.unwrap();
        }
        Arc::into_inner(done).unwrap().into_inner().unwrap()
    }

    #[tokio::test]
    async fn all_that_is_ready_is_read_before_any_of_it_is_sent() {
        let expected = (0..3).map(|number| ("read", number)).chain((0..3).map(|number| ("sent", number)));
        assert_eq!(order(3).await, expected.collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn only_so_many_wait_together_and_all_are_sent() {
        let order = order(3 * TOGETHER_MAX).await;
        let first = order.iter().position(|(what, _)| *what == "sent");
        assert_eq!(first, Some(TOGETHER_MAX + 1), "the one that finds so many does not wait");
        let last: Vec<_> = order.iter().skip(5 * TOGETHER_MAX).copied().collect();
        assert_eq!(last, (0..TOGETHER_MAX).map(|number| ("sent", number)).collect::<Vec<_>>());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn where_there_are_other_threads_nobody_waits() {
        let begun = tokio::spawn(async {
            others_first().await;
            begun()
        });
        assert_eq!(begun.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn those_who_are_gone_keep_nobody_from_waiting_for_ever() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut waits = || pin!(others_first()).poll(&mut cx).is_pending();
        for _ in 0..2 {
            assert!((0..TOGETHER_MAX).all(|_| waits()));
            assert!((0..PASSED_MAX).all(|_| !waits()));
        }
    }
}
