//! What leaves this process in OTLP: spans and figures, each to a collector that nobody waits for. Off unless one is named.

mod collector;
mod delivery;
mod points;
mod sending;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{BoxError, hex};
use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

use crate::census::Census;
use crate::config::OtlpSettings;
use crate::metrics::Metrics;
use crate::sidecar::StartError;
use crate::traces::Traces;

pub(crate) use self::delivery::{Delivery, Exporting};
use self::sending::Sending;

/// Who makes spans and figures, for those who receive them.
pub(crate) const SCOPE: &str = "onlyonce";
/// How long the last spans and figures may take at a shutdown.
const LAST_WITHIN: Duration = Duration::from_secs(5);

/// Everything that is sent.
pub(crate) struct Otlp {
    traces: Option<Arc<Traces>>,
    /// Until there are figures to send.
    ready: Option<Sending>,
    figures: Option<Exporting>,
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Otlp")
    }
}

impl Otlp {
    /// Begins to send spans, if there is a collector for them. What cannot work is refused, also for figures.
    pub(crate) fn start(settings: &OtlpSettings, metrics: Option<&Arc<Metrics>>) -> Result<Self, StartError> {
        let resource = resource(&settings.resource).map_err(StartError::System)?;
        let figures = settings.metrics.as_ref();
        let ready = figures.map(|figures| Sending::new(figures, &resource)).transpose()?;
        let traces = settings.traces.as_ref();
        let traces = traces.map(|traces| Traces::start(traces, resource, metrics)).transpose()?;
        Ok(Self { traces, ready, figures: None })
    }

    /// Whoever makes spans, if they are sent.
    pub(crate) fn traces(&self) -> Option<Arc<Traces>> {
        self.traces.clone()
    }

    /// Begins to send figures, if there is a collector for them.
    pub(crate) fn send_figures(&mut self, census: Option<&Arc<Census>>) {
        if let (Some(ready), Some(census)) = (self.ready.take(), census) {
            self.figures = Some(ready.begin(Arc::clone(census)));
        }
    }

    /// Sends what is left, for as long as that may take.
    pub(crate) async fn end(&self) {
        let spans = async {
            if let Some(traces) = &self.traces {
                traces.end(LAST_WITHIN).await;
            }
        };
        let figures = async {
            if let Some(figures) = &self.figures {
                figures.end(LAST_WITHIN).await;
            }
        };
        tokio::join!(spans, figures);
    }
}

/// What is said of this process, the same with spans and with figures.
fn resource(said: &[(String, String)]) -> Result<Resource, BoxError> {
    // Two processes that count the same must not be taken for one.
    let mut instance = [0; 16];
    getrandom::fill(&mut instance)?;
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", hex::encode(&instance)),
    ];
    let said = said.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    // What was said comes last, and so wins.
    Ok(Resource::builder_empty().with_attributes(own.into_iter().chain(said)).build())
}
