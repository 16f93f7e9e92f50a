//! Traces: one span for each request, one for each dispatch to the upstream, and a link from a replay to the trace of the
//! original. Off unless a collector is named, and then nothing of this is on the way of a request.
//!
//! Names and attributes come from fixed sets, from the paths of routes and from what the configuration says: never a key,
//! a principal, a path, a query or a body. Spans are dropped, and counted, when the collector does not take them:
//! no request waits for one.

mod export;
mod message;
mod running;
mod span;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::config::{ConfigError, Sampling, TraceSettings};
use crate::metrics::Metrics;
use crate::otlp::SCOPE;

use self::export::Spans;
use self::running::Running;

pub(crate) use self::message::Delivered;
pub(crate) use self::span::Sent;

/// Makes spans, and sees them off.
pub(crate) struct Traces {
    tracer: SdkTracer,
    /// Spans end in it for as long as it lives.
    _provider: SdkTracerProvider,
    spans: Spans,
    running: Running,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

impl Traces {
    /// Begins to send spans of the process that `resource` describes to the collector in `settings`. It need not be there
    /// yet.
    pub(crate) fn start(
        settings: &TraceSettings,
        resource: Resource,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Arc<Self>, ConfigError> {
        let (queue, spans) = export::begin(&settings.collector, &resource, metrics.cloned())?;
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(settings))
            .with_resource(resource)
            .with_span_processor(queue)
            .build();
        let scope = InstrumentationScope::builder(SCOPE).with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        Ok(Arc::new(Self { tracer, _provider: provider, spans, running: Running::default() }))
    }

    /// Sends what is left, for `patience` at the most.
    pub(crate) async fn end(&self, patience: Duration) {
        self.spans.end(patience).await;
    }
}

fn sampler(settings: &TraceSettings) -> Sampler {
    let parent_or = |root| Sampler::ParentBased(Box::new(root));
    match settings.sampling {
        Sampling::AlwaysOn => Sampler::AlwaysOn,
        Sampling::AlwaysOff => Sampler::AlwaysOff,
        Sampling::Ratio => Sampler::TraceIdRatioBased(settings.ratio),
        Sampling::ParentOrAll => parent_or(Sampler::AlwaysOn),
        Sampling::ParentOrNone => parent_or(Sampler::AlwaysOff),
        Sampling::ParentOrRatio => parent_or(Sampler::TraceIdRatioBased(settings.ratio)),
    }
}
