//! Sends to a collector, again if it is not there or asks for it, with a patience that ends; and says so once. Nobody waits
//! here but the one task that sends.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Trouble};
use crate::config::{CollectorSettings, ConfigError};

/// How often something is sent again that the collector could not take now, and after which pause; doubled each time.
const RETRIES: u32 = 4;
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A way to one collector.
pub(crate) struct Delivery {
    /// In the words of the log.
    what: &'static str,
    collector: Collector,
    /// Once it is cancelled, nothing is sent a second time.
    stopping: CancellationToken,
    /// Said once, until it is over.
    is_in_trouble: bool,
}

impl Delivery {
    /// For `what`. The collector need not be there yet.
    pub(crate) fn new(what: &'static str, settings: &CollectorSettings) -> Result<Self, ConfigError> {
        let collector = Collector::new(settings)?;
        tracing::info!(collector = %settings.url, "{what} are sent");
        Ok(Self { what, collector, stopping: CancellationToken::new(), is_in_trouble: false })
    }

    pub(crate) const fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Sends a message, more than once if the collector asks for it or is not there: what it answered, or nothing when it
    /// did not take it.
    pub(crate) async fn send(&mut self, message: Bytes) -> Option<Bytes> {
        let mut pause = RETRY_AFTER;
        for tries_left in (0..=RETRIES).rev() {
            let is_last = tries_left == 0 || self.stopping.is_cancelled();
            match self.collector.post(message.clone()).await {
                Ok(answer) => {
                    self.is_over();
                    return Some(answer);
                }
                Err(trouble) => {
                    self.say(&trouble);
                    if is_last || !trouble.may_pass {
                        break;
                    }
                }
            }
            tokio::select! {
                () = self.stopping.cancelled() => {}
                () = tokio::time::sleep(pause) => pause *= 2,
            }
        }
        None
    }

    fn say(&mut self, trouble: &Trouble) {
        if !self.is_in_trouble {
            self.is_in_trouble = true;
            let what = self.what;
            tracing::warn!(why = trouble.why, "the collector takes no {what}; requests are served as before");
        }
    }

    fn is_over(&mut self) {
        if self.is_in_trouble {
            self.is_in_trouble = false;
            let what = self.what;
            tracing::info!("the collector takes {what} again");
        }
    }
}

/// A hand on a task that sends.
pub(crate) struct Exporting {
    what: &'static str,
    stopping: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Exporting {
    /// Begins `task`, which sends by `delivery` what is left when that is to stop, and ends.
    pub(crate) fn begin<F: Future<Output = ()> + Send + 'static>(
        delivery: Delivery,
        task: impl FnOnce(Delivery) -> F,
    ) -> Self {
        let (what, stopping) = (delivery.what, delivery.stopping.clone());
        Self { what, stopping, task: Mutex::new(Some(tokio::spawn(task(delivery)))) }
    }

    /// Sends what is left, and ends. What cannot be sent within `patience` is lost.
    pub(crate) async fn end(&self, patience: Duration) {
        self.stopping.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(patience, &mut task).await.is_err()
        {
            task.abort();
            let what = self.what;
            tracing::warn!(?patience, "the collector did not take the last {what} in time");
            // Waited for: it may hold a store open.
            let _ = task.await;
        }
    }
}

impl Drop for Exporting {
    /// Whoever does not wait for what is left does not want it: nothing that it holds outlives this.
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
    }
}
