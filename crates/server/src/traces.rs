//! Traces: one span for each request, one for each dispatch to the upstream, and a link from a replay to the trace of the
//! original. Off unless a collector is named, and then nothing of this is on the way of a request.
//!
//! Names and attributes come from fixed sets, from the paths of routes and from what the configuration says: never a key,
//! a principal, a path, a query or a body. Spans are dropped, and counted, when the collector does not take them:
//! no request waits for one.

mod collector;
mod export;
mod message;
mod running;
mod span;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider};

use crate::config::{ConfigError, Sampling, TraceSettings};
use crate::metrics::Metrics;

use self::collector::Collector;
use self::export::Exporting;
use self::running::Running;

pub(crate) use self::message::Delivered;
pub(crate) use self::span::Sent;

/// How long the last spans may take at a shutdown.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// Makes spans, and sees them off.
pub(crate) struct Traces {
    tracer: SdkTracer,
    /// Spans end in it for as long as it lives.
    _provider: SdkTracerProvider,
    exporting: Exporting,
    running: Running,
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Traces")
    }
}

impl Traces {
    /// Begins to send spans to the collector in `settings`, if there is one. It need not be there yet.
    pub(crate) fn start(
        settings: Option<&TraceSettings>,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Option<Arc<Self>>, ConfigError> {
        let Some(settings) = settings else { return Ok(None) };
        let resource = resource(settings);
        let collector = Collector::new(settings, &resource)
            .map_err(|problem| ConfigError::field("traces.otlp", problem))?;
        let (queue, exporting) = export::begin(collector, metrics.cloned());
        let provider = SdkTracerProvider::builder()
            .with_sampler(sampler(settings))
            .with_resource(resource)
            .with_span_processor(queue)
            .build();
        let scope = InstrumentationScope::builder("onlyonce").with_version(env!("CARGO_PKG_VERSION")).build();
        let tracer = provider.tracer_with_scope(scope);
        tracing::info!(collector = %settings.url, "spans are sent");
        Ok(Some(Arc::new(Self { tracer, _provider: provider, exporting, running: Running::default() })))
    }

    /// Sends what is left, for as long as that may take.
    pub(crate) async fn end(&self) {
        self.exporting.end(FLUSH_WITHIN).await;
    }
}

/// Ends traces, where there are any.
pub(crate) async fn end(traces: Option<&Arc<Traces>>) {
    if let Some(traces) = traces {
        traces.end().await;
    }
}

fn resource(settings: &TraceSettings) -> Resource {
    let said = settings.resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    // What was said comes last, and so wins.
    Resource::builder_empty().with_attributes([version].into_iter().chain(said)).build()
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
