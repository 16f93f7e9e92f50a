//! Spans on their way to the collector: a bounded queue, batches, and a patience that ends. Nobody waits here but the one
//! task that sends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::collector::{Collector, Trouble};
use super::span::without_state;
use crate::metrics::Metrics;

/// How many spans wait at the most: some megabytes. One more is dropped.
const WAITING_MAX: usize = 8192;
/// How many are sent together.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be sent with.
const COMPANY_WITHIN: Duration = Duration::from_secs(1);
/// How often a batch is sent again that the collector could not take now, and after which pause; doubled each time.
const RETRIES: u32 = 4;
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Begins to send to `collector`: where spans are put in, and a hand on the task.
pub(super) fn begin(collector: Collector, metrics: Option<Arc<Metrics>>) -> (Queue, Exporting) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (tally, stopping) = (Arc::new(Tally { metrics, lost: AtomicU64::new(0) }), CancellationToken::new());
    let exporter = Exporter {
        collector,
        receiver,
        tally: Arc::clone(&tally),
        stopping: stopping.clone(),
        is_in_trouble: false,
    };
    let task = Mutex::new(Some(tokio::spawn(exporter.run())));
    (Queue { sender, tally: Arc::clone(&tally) }, Exporting { stopping, task, tally })
}

/// What became of spans, in numbers.
#[derive(Debug)]
struct Tally {
    metrics: Option<Arc<Metrics>>,
    /// Spans that nobody will see.
    lost: AtomicU64,
}

impl Tally {
    fn exported(&self, spans: u64) {
        self.count("exported", spans);
    }

    /// There was no room to wait in.
    fn dropped(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
        self.count("dropped", spans);
    }

    /// The collector did not take them.
    fn failed(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
        self.count("failed", spans);
    }

    fn count(&self, fate: &'static str, spans: u64) {
        if let Some(metrics) = &self.metrics {
            metrics.spans(fate, spans);
        }
    }
}

/// Where spans are put when they end.
#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<SpanData>,
    tally: Arc<Tally>,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, mut span: SpanData) {
        span.span_context = without_state(&span.span_context);
        if span.span_context.is_sampled() && self.sender.try_send(span).is_err() {
            self.tally.dropped(1);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    // Whoever ends traces waits for the task itself, see `Exporting`.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn set_resource(&mut self, _: &Resource) {}
}

/// A hand on the task that sends.
pub(super) struct Exporting {
    stopping: CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
    tally: Arc<Tally>,
}

impl Exporting {
    /// Sends what waits, and ends. What cannot be sent within `patience` is lost.
    pub(super) async fn end(&self, patience: Duration) {
        self.stopping.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut task) = task
            && tokio::time::timeout(patience, &mut task).await.is_err()
        {
            task.abort();
            tracing::warn!(?patience, "the collector did not take the last spans in time");
        }
        let lost = self.tally.lost.load(Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans were lost since the start");
        }
    }
}

/// The task that sends.
struct Exporter {
    collector: Collector,
    receiver: mpsc::Receiver<SpanData>,
    tally: Arc<Tally>,
    stopping: CancellationToken,
    /// Said once, until it is over.
    is_in_trouble: bool,
}

impl Exporter {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while self.gather(&mut batch).await {
            self.deliver(std::mem::take(&mut batch)).await;
        }
    }

    /// Waits for spans, and a little for others to join them. `false` when no more will come.
    async fn gather(&mut self, batch: &mut Vec<SpanData>) -> bool {
        let stopping = self.stopping.clone();
        let receiver = &mut self.receiver;
        let mut gathering = async || {
            receiver.recv_many(batch, BATCH_MAX).await;
            let joining = async {
                while batch.len() < BATCH_MAX && receiver.recv_many(batch, BATCH_MAX - batch.len()).await > 0
                {
                }
            };
            let _ = tokio::time::timeout(COMPANY_WITHIN, joining).await;
        };
        tokio::select! {
            biased;
            () = stopping.cancelled() => {}
            () = gathering() => {}
        }
        if stopping.is_cancelled() && batch.len() < BATCH_MAX {
            // What is there is there: nobody waits for more.
            self.receiver.close();
            self.receiver.recv_many(batch, BATCH_MAX - batch.len()).await;
        }
        !batch.is_empty()
    }

    /// Sends a batch, more than once if the collector asks for it or is not there.
    async fn deliver(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let bytes = self.collector.encode(batch);
        let mut pause = RETRY_AFTER;
        for tries_left in (0..=RETRIES).rev() {
            let is_last = tries_left == 0 || self.stopping.is_cancelled();
            match self.collector.post(bytes.clone()).await {
                Ok(rejected) => {
                    self.tally.exported(count.saturating_sub(rejected));
                    self.tally.failed(rejected.min(count));
                    return self.is_over();
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
        self.tally.failed(count);
    }

    fn say(&mut self, trouble: &Trouble) {
        if !self.is_in_trouble {
            self.is_in_trouble = true;
            tracing::warn!(why = trouble.why, "the collector takes no spans; requests are served as before");
        }
    }

    fn is_over(&mut self) {
        if self.is_in_trouble {
            self.is_in_trouble = false;
            let lost = self.tally.lost.load(Ordering::Relaxed);
            tracing::info!(lost, "the collector takes spans again");
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Tracer as _, TracerProvider as _};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[test]
    fn a_span_that_finds_no_room_is_dropped_and_counted() {
        let metrics = Arc::new(Metrics::new().expect("the buckets are in order"));
        let tally = Arc::new(Tally { metrics: Some(Arc::clone(&metrics)), lost: AtomicU64::new(0) });
        let (sender, mut receiver) = mpsc::channel(1);
        let queue = Queue { sender, tally: Arc::clone(&tally) };
        let tracer = SdkTracerProvider::builder().with_span_processor(queue).build().tracer("test");
        for name in ["first", "second", "third"] {
            drop(tracer.start(name));
        }
        assert_eq!(receiver.try_recv().expect("there was room for one").name, "first");
        assert!(receiver.try_recv().is_err());
        assert_eq!(tally.lost.load(Ordering::Relaxed), 2);
        let text = metrics.render();
        assert!(text.contains("onlyonce_spans_total{fate=\"dropped\"} 2"), "{text}");
    }
}
