//! Pulls messages as they are asked for.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::StreamExt as _;
use onlyonce_core::Clock as _;
use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::{self as inbox, SourceError, SourceErrorKind};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Handle, JetStream, convert, failed, make_consumer};
use crate::ledger::{Before, Ledger};
use crate::pumped::Patience;

const DOING: &str = "pulling messages";
/// How long the server keeps a pull that found nothing. Closing waits for it, so that nothing is under way.
const WAIT: Duration = Duration::from_millis(500);
/// How the server ends a pull that took all it may.
const ENDS: [&str; 3] = ["Batch Completed", "MaxBytes", "Server Shutdown"];

impl JetStream {
    pub(super) async fn read(&self, ledger: &Ledger<Handle>, stop: &CancellationToken) {
        let mut patience = Patience::default();
        while !stop.is_cancelled() {
            let wanted = tokio::select! {
                () = stop.cancelled() => return,
                wanted = ledger.demand() => wanted,
            };
            match self.read_once(ledger, wanted).await {
                Ok(()) => {
                    ledger.recover();
                    patience.restore();
                }
                Err(error) => {
                    ledger.fail(error);
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = patience.wait() => {}
                    }
                    self.restore_consumer().await;
                }
            }
        }
    }

    /// Takes what is there, or waits for the first message: then what came with it is taken by the next pull.
    async fn read_once(&self, ledger: &Ledger<Handle>, wanted: usize) -> Result<(), SourceError> {
        let consumer = self.consumer.read().await.clone();
        // Smaller than the largest message, and that one could never be pulled.
        let bytes = self.settings.fetch_bytes_max.max(self.client.max_payload().saturating_mul(2));
        let there = consumer.fetch().max_messages(wanted).max_bytes(bytes);
        let there = there.messages().await.map_err(|error| failed(DOING, error))?;
        if self.take_all(ledger, there, self.settings.timeout).await? > 0 {
            return Ok(());
        }
        let next = consumer.batch().max_messages(1).expires(WAIT);
        let next = next.messages().await.map_err(|error| failed(DOING, error))?;
        self.take_all(ledger, next, WAIT + self.settings.timeout).await.map(|_| ())
    }

    /// Delivers what a pull brings, to its end: how many messages that were.
    async fn take_all(
        &self,
        ledger: &Ledger<Handle>,
        batch: Batch,
        wait_max: Duration,
    ) -> Result<usize, SourceError> {
        let mut count = 0;
        // Those that have come together are delivered together.
        let mut chunks = batch.ready_chunks(FETCH_MAX);
        loop {
            let next = tokio::select! {
                next = timeout(wait_max, chunks.next()) => next,
                // What a connection that broke had under way is delivered again by the server.
                () = self.link.changed.notified() => return Err(unavailable("the connection was lost")),
            };
            let chunk = match next {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(count),
                Err(_) => return Err(unavailable("no answer in time")),
            };
            let (mut delivered, mut ended) = (Vec::with_capacity(chunk.len()), None);
            for next in chunk {
                match next {
                    Ok(message) => delivered.push(message),
                    Err(error) => ended = ended.or(Some(error)),
                }
            }
            count += delivered.len();
            ledger.deliver_all(delivered.into_iter().filter_map(|message| self.delivery(message)));
            match ended {
                None => {}
                Some(error) if ENDS.iter().any(|end| error.to_string().contains(end)) => return Ok(count),
                Some(error) => return Err(unavailable(error)),
            }
        }
    }

    fn delivery(&self, delivered: Message) -> Option<(inbox::Message, Before, Handle)> {
        let Some((message, sequence, deliveries)) = convert::message(&delivered) else {
            warn!(stream = %self.settings.stream, "a message that is not from a stream was left out");
            return None;
        };
        self.newest().insert(sequence, deliveries);
        let since = Arc::new(AtomicU64::new(self.clock.now().as_millis()));
        let handle = Handle { message: Arc::new(delivered), sequence, deliveries, since };
        Some((message, Before::Counted(deliveries), handle))
    }

    /// A server that lost its consumers gets ours again; what was not acknowledged is delivered again.
    async fn restore_consumer(&self) {
        let Ok(stream) = self.context.get_stream(&self.settings.stream).await else { return };
        if let Ok(consumer) = make_consumer(&stream, &self.settings).await {
            *self.consumer.write().await = consumer;
        }
    }
}

fn unavailable(why: impl Into<onlyonce_core::BoxError>) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, DOING).because(why)
}
