//! What the variables of OpenTelemetry say, in the shape of our own settings.

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_http::rules::Span;
use serde::Deserialize as _;

use super::super::metrics::{INTERVAL_MIN, MetricsSection};
use super::super::traces::{Sampling, TracesSection};
use super::super::{ConfigError, File, UpstreamUrl};
use super::{Signal, headers, pairs};

/// What the standard variables say, and what is odd about them. A platform sets them for every process, so that what is
/// not for us is no error.
pub(in super::super) fn standard(variables: &[(String, String)]) -> (File, Vec<String>) {
    let mut said = Standard { variables, warnings: Vec::new() };
    let (sampler, sampler_arg) = said.sampling();
    let traces = TracesSection {
        enabled: said.enabled(Signal::Traces),
        otlp: said.endpoint(Signal::Traces),
        headers: said.headers(Signal::Traces),
        ca: said.of(Signal::Traces, "CERTIFICATE").map(|(_, path)| PathBuf::from(path)),
        service: said.value("OTEL_SERVICE_NAME").map(str::to_owned),
        resource: said.resource(),
        sampler,
        sampler_arg,
    };
    let metrics = MetricsSection {
        enabled: said.enabled(Signal::Metrics),
        otlp: said.endpoint(Signal::Metrics),
        headers: said.headers(Signal::Metrics),
        ca: said.of(Signal::Metrics, "CERTIFICATE").map(|(_, path)| PathBuf::from(path)),
        interval: said.interval(),
    };
    (File { traces, metrics, ..File::default() }, said.warnings)
}

/// The standard variables.
struct Standard<'v> {
    variables: &'v [(String, String)],
    warnings: Vec<String>,
}

impl<'v> Standard<'v> {
    fn value(&self, name: &str) -> Option<&'v str> {
        let found = self.variables.iter().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// What is said for one signal, or else for all, and in which variable.
    fn of(&self, signal: Signal, what: &str) -> Option<(String, &'v str)> {
        let own = format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.section().to_ascii_uppercase());
        let names = [own, format!("OTEL_EXPORTER_OTLP_{what}")];
        names.into_iter().find_map(|name| self.value(&name).map(|value| (name, value)))
    }

    /// Once: what is said for both signals is wrong for both.
    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Whether it is to leave in OTLP, where anybody says so.
    fn enabled(&self, signal: Signal) -> Option<bool> {
        let exporters = self.value(&format!("OTEL_{}_EXPORTER", signal.section().to_ascii_uppercase()))?;
        (!exporters.split(',').any(|name| name.trim() == "otlp")).then_some(false)
    }

    /// Where it is sent, if anywhere that we can reach.
    fn endpoint(&mut self, signal: Signal) -> Option<String> {
        let is_off = self.value("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if is_off || self.enabled(signal) == Some(false) {
            return None;
        }
        let (name, url) = self.of(signal, "ENDPOINT")?;
        // The one for a signal is taken as it is, the one for everything is the root.
        let is_root = name == "OTEL_EXPORTER_OTLP_ENDPOINT";
        let endpoint =
            if is_root { format!("{}{}", url.trim_end_matches('/'), signal.path()) } else { url.to_owned() };
        let without = signal.without();
        if let Some((_, protocol)) = self.of(signal, "PROTOCOL").filter(|(_, said)| *said != "http/protobuf")
        {
            self.warn(format!(
                "{without}: the environment asks for OTLP by {protocol}, and only http/protobuf is spoken"
            ));
            return None;
        }
        match UpstreamUrl::parse(&name, &endpoint) {
            Ok(_) => Some(endpoint),
            Err(error) => {
                self.warn(format!("{without}: {error}"));
                None
            }
        }
    }

    fn headers(&mut self, signal: Signal) -> Option<String> {
        let (name, text) = self.of(signal, "HEADERS")?;
        self.readable("OTLP headers", text, headers(&name, Some(text)).err())
    }

    fn resource(&mut self) -> Option<String> {
        let text = self.value("OTEL_RESOURCE_ATTRIBUTES")?;
        self.readable("resource attributes", text, pairs("OTEL_RESOURCE_ATTRIBUTES", Some(text)).err())
    }

    /// Lets go of what would be an error where it is meant for us.
    fn readable(&mut self, what: &str, text: &str, error: Option<ConfigError>) -> Option<String> {
        match error {
            None => Some(text.to_owned()),
            Some(error) => {
                self.warn(format!("{what} are ignored: {error}"));
                None
            }
        }
    }

    fn sampling(&mut self) -> (Option<Sampling>, Option<f64>) {
        let (mut sampler, mut ratio) = (None, None);
        if let Some(name) = self.value("OTEL_TRACES_SAMPLER") {
            match Sampling::deserialize(toml::Value::String(name.to_owned())) {
                Ok(sampling) => sampler = Some(sampling),
                Err(_) => self.warn(format!("OTEL_TRACES_SAMPLER is ignored: `{name}` is not known here")),
            }
        }
        if let Some(text) = self.value("OTEL_TRACES_SAMPLER_ARG") {
            match text.parse() {
                Ok(part) if (0.0..=1.0).contains(&part) => ratio = Some(part),
                _ => {
                    self.warn(format!("OTEL_TRACES_SAMPLER_ARG is ignored: `{text}` is not between 0 and 1"));
                }
            }
        }
        (sampler, ratio)
    }

    fn interval(&mut self) -> Option<Span> {
        let temporality = self.value("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE");
        if let Some(other) = temporality.filter(|said| !said.eq_ignore_ascii_case("cumulative")) {
            self.warn(format!(
                "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE is ignored: figures are cumulative, never `{other}`"
            ));
        }
        let text = self.value("OTEL_METRIC_EXPORT_INTERVAL")?;
        match text.parse().map(Duration::from_millis) {
            Ok(interval) if interval >= INTERVAL_MIN => Some(Span(interval)),
            _ => {
                let least = INTERVAL_MIN.as_millis();
                self.warn(format!(
                    "OTEL_METRIC_EXPORT_INTERVAL is ignored: `{text}` is no number of milliseconds from {least}"
                ));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(variables: &[(&str, &str)]) -> (File, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        standard(&variables.iter().map(owned).collect::<Vec<_>>())
    }

    const ROOT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");

    #[test]
    fn the_standard_variables_say_where_spans_and_figures_go() {
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:9/spans");
        let figures = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://figures:9/here");
        let otlp = |variables: &[_]| {
            let file = said(variables).0;
            [file.traces.otlp.unwrap_or_default(), file.metrics.otlp.unwrap_or_default()]
        };
        let (traces, metrics) = ("http://collector:4318/v1/traces", "http://collector:4318/v1/metrics");
        assert_eq!(otlp(&[ROOT]), [traces, metrics]);
        assert_eq!(otlp(&[ROOT, own]), ["http://traces:9/spans", metrics]);
        assert_eq!(otlp(&[own]), ["http://traces:9/spans", ""]);
        assert_eq!(otlp(&[figures]), ["", "http://figures:9/here"]);
        assert_eq!(otlp(&[("OTEL_SERVICE_NAME", "shop")]), ["", ""]);
        assert_eq!(otlp(&[ROOT, ("OTEL_SDK_DISABLED", "TRUE")]), ["", ""]);
        let (file, warnings) = said(&[ROOT, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!((file.traces.otlp, file.metrics.otlp), (None, None));
        assert!(warnings.len() == 2 && warnings.iter().all(|said| said.contains("grpc")), "{warnings:?}");
    }

    #[test]
    fn either_is_turned_off_alone() {
        for (off, enabled) in [
            (("OTEL_TRACES_EXPORTER", "none"), [Some(false), None]),
            (("OTEL_METRICS_EXPORTER", "none"), [None, Some(false)]),
            (("OTEL_METRICS_EXPORTER", "prometheus, console"), [None, Some(false)]),
            (("OTEL_METRICS_EXPORTER", "console, otlp"), [None, None]),
        ] {
            let file = said(&[ROOT, off]).0;
            assert_eq!([file.traces.enabled, file.metrics.enabled], enabled, "{off:?}");
            let names = [file.traces.otlp.is_some(), file.metrics.otlp.is_some()];
            assert_eq!(names, enabled.map(|enabled| enabled.is_none()), "{off:?}");
        }
    }

    #[test]
    fn a_sampler_or_an_interval_that_is_not_known_is_no_reason_to_stop() {
        let (file, warnings) = said(&[
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1500"),
        ]);
        assert_eq!(
            (file.traces.sampler, file.traces.sampler_arg),
            (Some(Sampling::ParentOrRatio), Some(0.25))
        );
        assert_eq!(file.metrics.interval.map(|interval| interval.to_string()).as_deref(), Some("1500ms"));
        assert!(warnings.is_empty(), "{warnings:?}");
        let (file, warnings) = said(&[
            ("OTEL_TRACES_SAMPLER", "xray"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        ]);
        assert_eq!((file.traces.sampler, file.traces.sampler_arg), (None, None));
        assert_eq!(warnings.len(), 3);
        for interval in ["0", "-1", "1", "60s"] {
            let (file, warnings) = said(&[("OTEL_METRIC_EXPORT_INTERVAL", interval)]);
            assert!(file.metrics.interval.is_none() && warnings.len() == 1, "{interval}: {warnings:?}");
        }
    }

    #[test]
    fn what_a_platform_says_wrongly_is_ignored_and_secrets_are_not_told() {
        let (file, warnings) = said(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer c2VzYW1l="),
            ("OTEL_RESOURCE_ATTRIBUTES", "alone"),
        ]);
        let section = &file.traces;
        assert_eq!((&section.otlp, &section.headers, &section.resource), (&None, &None, &None));
        assert_eq!(file.metrics.headers, None);
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(!warnings.concat().contains("c2VzYW1l"), "{warnings:?}");
    }
}
