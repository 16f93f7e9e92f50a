//! Spans on their way to the collector: a bounded queue, and batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Span, SpanData, SpanProcessor};
use prost::Message as _;
use tokio::sync::mpsc;

use super::span::without_state;
use crate::config::{CollectorSettings, ConfigError};
use crate::metrics::Metrics;
use crate::otlp::{Delivery, Exporting};

/// How many spans wait at the most: some megabytes. One more is dropped.
const WAITING_MAX: usize = 8192;
/// How many are sent together.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to be sent with.
const COMPANY_WITHIN: Duration = Duration::from_secs(1);

/// Begins to send to a collector: where spans are put in, and a hand on the task.
pub(super) fn begin(
    settings: &CollectorSettings,
    resource: &Resource,
    metrics: Option<Arc<Metrics>>,
) -> Result<(Queue, Spans), ConfigError> {
    let delivery = Delivery::new("spans", settings)?;
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let tally = Arc::new(Tally { metrics, lost: AtomicU64::new(0) });
    let (queue, resource) = (Queue { sender, tally: Arc::clone(&tally) }, resource.into());
    let counting = Arc::clone(&tally);
    let exporting = Exporting::begin(delivery, move |delivery| {
        Exporter { delivery, receiver, resource, tally: counting }.run()
    });
    Ok((queue, Spans { exporting, tally }))
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

    // Whoever ends traces waits for the task itself, see `Spans`.
    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }

    fn set_resource(&mut self, _: &Resource) {}
}

/// A hand on the task that sends.
pub(super) struct Spans {
    exporting: Exporting,
    tally: Arc<Tally>,
}

impl Spans {
    /// Sends what waits, and ends. What cannot be sent within `patience` is lost.
    pub(super) async fn end(&self, patience: Duration) {
        self.exporting.end(patience).await;
        let lost = self.tally.lost.load(Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "spans were lost since the start");
        }
    }
}

/// The task that sends.
struct Exporter {
    delivery: Delivery,
    receiver: mpsc::Receiver<SpanData>,
    resource: ResourceAttributesWithSchema,
    tally: Arc<Tally>,
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
        let stopping = self.delivery.stopping().clone();
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

    /// Sends a batch, and counts what became of it.
    async fn deliver(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let message = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let Some(answer) = self.delivery.send(message.into()).await else { return self.tally.failed(count) };
        let answer = ExportTraceServiceResponse::decode(answer).ok();
        let rejected = answer.and_then(|answer| answer.partial_success).map_or(0, |part| part.rejected_spans);
        let rejected = u64::try_from(rejected).unwrap_or(0).min(count);
        self.tally.exported(count - rejected);
        self.tally.failed(rejected);
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
