//! `[metrics]`: where figures are sent, and how often. Whoever reads them at `/metrics` needs none of it.

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_http::rules::Span;
use serde::{Deserialize, Serialize};

use super::otlp::{CollectorSettings, Signal};
use super::{Config, ConfigError, UpstreamUrl};

/// As OpenTelemetry has it.
const INTERVAL: Duration = Duration::from_mins(1);
/// More often would be work for nobody.
pub(super) const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// `[metrics]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSection {
    /// The collector that figures are sent to, in OTLP over HTTP (protobuf): `http://HOST:4318`, or with a path if it is not
    /// `/v1/metrics`. Default: none, and figures are only read at `/metrics`.
    pub otlp: Option<String>,
    /// Whether figures are sent to it. Default `true`.
    pub enabled: Option<bool>,
    /// Fields that are sent with every export, as in `[traces]`. Default: those of `[traces]`, where both go to the same
    /// host and port.
    pub headers: Option<String>,
    /// Certificates (PEM) that the collector's must be signed by. Default: likewise, or what this machine trusts.
    pub ca: Option<PathBuf>,
    /// How often figures are sent. Default `1m`: what is lost with a process that is killed.
    pub interval: Option<Span>,
}

/// Where figures go, and how often.
#[derive(Debug, Clone)]
pub(crate) struct MetricSettings {
    pub(crate) collector: CollectorSettings,
    pub(crate) interval: Duration,
}

impl Config {
    /// How figures are sent, if they are.
    pub(super) fn metric_settings(&self) -> Result<Option<MetricSettings>, ConfigError> {
        let (section, traces) = (&self.merged.metrics, &self.merged.traces);
        let Some(otlp) = section.otlp.as_deref().filter(|_| section.enabled != Some(false)) else {
            return Ok(None);
        };
        // Secrets for one collector are not told to another.
        let is_shared = traces.otlp.as_deref().is_some_and(|other| is_one_place(otlp, other));
        let fields = section.headers.as_deref().or(traces.headers.as_deref().filter(|_| is_shared));
        let ca = section.ca.as_ref().or(traces.ca.as_ref().filter(|_| is_shared)).cloned();
        let collector = CollectorSettings::read(Signal::Metrics, otlp, fields, ca)?;
        let interval = section.interval.map_or(INTERVAL, Span::get);
        if interval < INTERVAL_MIN {
            return Err(ConfigError::field("metrics.interval", "is shorter than 100ms"));
        }
        Ok(Some(MetricSettings { collector, interval }))
    }
}

/// Whether two URLs lead to the same listener.
fn is_one_place(one: &str, other: &str) -> bool {
    let read = |url| UpstreamUrl::parse("otlp", url).ok();
    let place =
        |url: &UpstreamUrl| (url.socket.clone(), url.scheme.clone(), url.authority.clone(), url.port());
    read(one).zip(read(other)).is_some_and(|(one, other)| place(&one) == place(&other))
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    fn settings(said: &[(&str, &str)]) -> Result<Option<MetricSettings>, ConfigError> {
        let environment =
            said.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Sources { environment, ..Sources::default() }.read()?.metric_settings()
    }

    #[test]
    fn a_secret_for_one_collector_is_not_told_to_another() {
        let figures = ("ONLYONCE_METRICS_OTLP", "http://figures:4318");
        let spans = ("ONLYONCE_TRACES_OTLP", "http://spans:4318");
        let secret = ("ONLYONCE_TRACES_HEADERS", "api-key=sesame");
        let told =
            |said: &[_]| settings(said).expect("well said").expect("a collector").collector.headers.len();
        assert_eq!(told(&[figures, spans, secret]), 0);
        assert_eq!(told(&[figures, ("ONLYONCE_TRACES_OTLP", "http://figures:4318/spans"), secret]), 1);
        assert_eq!(told(&[figures, ("ONLYONCE_TRACES_OTLP", "https://figures:4318"), secret]), 0);
        assert_eq!(told(&[figures, spans, ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=sesame")]), 1);
    }

    #[test]
    fn figures_are_sent_where_and_when_it_is_said() {
        let otlp = ("ONLYONCE_METRICS_OTLP", "http://figures:4318");
        let said = settings(&[otlp]).expect("well said").expect("a collector");
        assert_eq!((said.collector.url.prefix.as_str(), said.interval), ("/v1/metrics", INTERVAL));
        let often = ("ONLYONCE_METRICS_INTERVAL", "250ms");
        let said = settings(&[otlp, often]).expect("well said").expect("a collector");
        assert_eq!(said.interval, Duration::from_millis(250));
        assert!(settings(&[otlp, ("ONLYONCE_METRICS_ENABLED", "false")]).expect("well said").is_none());
        assert!(settings(&[("ONLYONCE_TRACES_OTLP", "http://spans:4318")]).expect("well said").is_none());
        let error =
            settings(&[otlp, ("ONLYONCE_METRICS_INTERVAL", "1ms")]).expect_err("too often").to_string();
        assert!(error.contains("metrics.interval: "), "{error}");
    }
}
