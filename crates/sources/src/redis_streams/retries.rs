//! Deliveries that wait to be made once more. Each stays pending for this consumer meanwhile.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onlyonce_inbox::SourceError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, Notify};
use tokio_util::time::DelayQueue;

use super::{Handle, RedisStream, Settings, entry, link};
use crate::ledger::Ledger;
use crate::pumped::expired;

/// Nothing new is read while so many wait.
const WAITING_MAX: usize = 10_000;
/// How soon it is tried again when the server was away.
const AGAIN: Duration = Duration::from_millis(100);

/// What waits.
#[derive(Debug)]
pub(super) struct Retries {
    /// INVARIANT: never longer than `WAITING_MAX` and one fetch: nothing is read while it is.
    sender: UnboundedSender<Waiting>,
    receiver: Mutex<UnboundedReceiver<Waiting>>,
    count: AtomicUsize,
    fewer: Notify,
}

#[derive(Debug)]
struct Waiting {
    handle: Handle,
    left: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        let (sender, receiver) = unbounded_channel();
        Self { sender, receiver: Mutex::new(receiver), count: AtomicUsize::new(0), fewer: Notify::new() }
    }
}

impl Retries {
    pub(super) fn add(&self, handle: Handle, after: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        // Nobody listens once the source is closed: then it is given back.
        let _ = self.sender.send(Waiting { handle, left: after });
    }

    /// Waits until there is room for more.
    pub(super) async fn room(&self) {
        loop {
            let mut fewer = std::pin::pin!(self.fewer.notified());
            fewer.as_mut().enable();
            if self.count.load(Ordering::Relaxed) < WAITING_MAX {
                return;
            }
            fewer.await;
        }
    }

    fn remove(&self, count: usize) {
        self.count.fetch_sub(count, Ordering::Relaxed);
        self.fewer.notify_waiters();
    }
}

impl RedisStream {
    /// Delivers again what has waited long enough, as somebody asks for it.
    pub(super) async fn deliver_again(&self, ledger: &Ledger<Handle>) {
        let mut receiver = self.retries.receiver.lock().await;
        let mut queue = DelayQueue::new();
        let mut due: Vec<Handle> = Vec::new();
        loop {
            tokio::select! {
                Some(waiting) = receiver.recv() => self.postpone(&mut queue, waiting),
                expired = poll_fn(|context| expired(&mut queue, context)) => {
                    let (over, early): (Vec<_>, Vec<_>) =
                        expired.into_iter().partition(|waiting| waiting.left.is_zero());
                    due.extend(over.into_iter().map(|waiting| waiting.handle));
                    self.keep(&mut queue, early).await;
                }
                wanted = ledger.demand(), if !due.is_empty() => {
                    let now: Vec<_> = due.drain(..wanted.min(due.len())).collect();
                    if let Err(error) = self.take_again(ledger, &now).await {
                        ledger.fail(error);
                        for handle in now {
                            queue.insert(Waiting { handle, left: Duration::ZERO }, AGAIN);
                        }
                    }
                }
            }
        }
    }

    /// Waits for no longer than half the idle time at once: then the entry's time is reset.
    fn postpone(&self, queue: &mut DelayQueue<Waiting>, waiting: Waiting) {
        let wait = waiting.left.min(self.settings.idle / 2);
        queue.insert(Waiting { left: waiting.left.saturating_sub(wait), ..waiting }, wait);
    }

    /// Resets the time of entries that have to wait on. What is gone is somebody else's.
    async fn keep(&self, queue: &mut DelayQueue<Waiting>, early: Vec<Waiting>) {
        let items = early.iter().map(|waiting| (&waiting.handle, "keep", String::new()));
        match self.settle_by(items).await {
            Ok(answers) => {
                for (waiting, answer) in early.into_iter().zip(answers) {
                    match answer {
                        Ok(false) => self.retries.remove(1),
                        _ => self.postpone(queue, waiting),
                    }
                }
            }
            Err(_) => {
                for waiting in early {
                    queue.insert(waiting, AGAIN);
                }
            }
        }
    }

    async fn take_again(&self, ledger: &Ledger<Handle>, handles: &[Handle]) -> Result<(), SourceError> {
        let Settings { stream, group, consumer, .. } = &self.settings;
        let script = &self.scripts.again;
        let mut call = script.key(stream);
        call.arg(group).arg(consumer);
        for handle in handles {
            call.arg(&handle.id).arg(handle.deliveries);
        }
        let answer = match self.link.call(&call, "delivering entries again").await {
            // Somebody removed the group: whoever reads makes it again, and everything that is left is delivered again.
            Err(error) if link::has_code(&error, "NOGROUP") => {
                self.retries.remove(handles.len());
                return Ok(());
            }
            answered => answered?,
        };
        let (entries, trimmed) = entry::again(answer)?;
        self.report_trimmed(&trimmed);
        self.retries.remove(handles.len());
        self.deliver(ledger, entries);
        Ok(())
    }
}
