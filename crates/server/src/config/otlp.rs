//! What spans and figures have in common on their way out: a collector, what is sent along, and what this process is called.

mod standard;

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::hex;

use super::metrics::MetricSettings;
use super::traces::{TraceSettings, TracesSection};
use super::{Config, ConfigError, File, UpstreamUrl};

pub(super) use self::standard::standard;

/// What is sent to a collector.
#[derive(Debug, Clone, Copy)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// What collectors take it under.
    const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    const fn section(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    /// What there is none of without a collector.
    const fn without(self) -> &'static str {
        match self {
            Self::Traces => "nothing is traced",
            Self::Metrics => "no figures are sent",
        }
    }

    /// Where it goes when one root is named for everything.
    fn below(self, root: &str) -> String {
        let root = root.trim_end_matches('/');
        let root = [Self::Traces, Self::Metrics]
            .iter()
            .find_map(|other| root.strip_suffix(other.path()))
            .unwrap_or(root);
        match root.split_once("://") {
            Some((_, rest)) if rest.contains('/') => format!("{root}{}", self.path()),
            // Without a path it gets its own where it is read.
            _ => root.to_owned(),
        }
    }
}

impl File {
    /// Names one collector for spans and figures, as `--otlp` does. A path is the root of both.
    pub fn send_to(&mut self, collector: Option<&str>) {
        self.traces.otlp = collector.map(|root| Signal::Traces.below(root));
        self.metrics.otlp = collector.map(|root| Signal::Metrics.below(root));
    }
}

/// One collector.
#[derive(Debug, Clone)]
pub(crate) struct CollectorSettings {
    /// The field that names it.
    pub(crate) field: String,
    pub(crate) url: UpstreamUrl,
    /// Marked as secrets: they are left out where things are printed.
    pub(crate) headers: HeaderMap,
    pub(crate) ca: Option<PathBuf>,
}

impl CollectorSettings {
    pub(super) fn read(
        signal: Signal,
        otlp: &str,
        fields: Option<&str>,
        ca: Option<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let field = format!("{}.otlp", signal.section());
        let mut url = UpstreamUrl::parse(&field, otlp)?;
        if url.prefix.is_empty() {
            signal.path().clone_into(&mut url.prefix);
        }
        let headers = headers(&format!("{}.headers", signal.section()), fields)?;
        Ok(Self { field, url, headers, ca })
    }
}

/// What leaves this process in OTLP.
#[derive(Debug, Clone)]
pub(crate) struct OtlpSettings {
    /// What is said of this process.
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) traces: Option<TraceSettings>,
    pub(crate) metrics: Option<MetricSettings>,
}

impl Config {
    /// What is sent to collectors, if there are any.
    pub(crate) fn otlp_settings(&self) -> Result<OtlpSettings, ConfigError> {
        let (traces, metrics) = (self.trace_settings()?, self.metric_settings()?);
        let is_anything = traces.is_some() || metrics.is_some();
        let resource = if is_anything { resource(&self.merged.traces)? } else { Vec::new() };
        Ok(OtlpSettings { resource, traces, metrics })
    }
}

const SERVICE_NAME: &str = "service.name";

fn resource(section: &TracesSection) -> Result<Vec<(String, String)>, ConfigError> {
    let mut resource = pairs("traces.resource", section.resource.as_deref())?;
    let named = |name: &str| resource.iter().any(|(other, _)| other == name);
    match &section.service {
        None if named(SERVICE_NAME) => {}
        service => {
            resource.retain(|(name, _)| name != SERVICE_NAME);
            let service = service.clone().unwrap_or_else(|| "onlyonce".to_owned());
            resource.push((SERVICE_NAME.to_owned(), service));
        }
    }
    Ok(resource)
}

fn headers(field: &str, text: Option<&str>) -> Result<HeaderMap, ConfigError> {
    // The values may be secrets: what is wrong is said without them.
    let wrong = |why| ConfigError::field(field, why);
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(field, text)? {
        // Nor the name: with a colon in place of `=` it is all of the secret but its end.
        let name: HeaderName =
            name.parse().map_err(|_| wrong("has a name that is none for a header".to_owned()))?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| wrong(format!("the value of {name} is none for a header")))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// `NAME=VALUE,NAME=VALUE`, as W3C Baggage writes it: blanks around count for nothing, values are in URL form.
fn pairs(field: &str, text: Option<&str>) -> Result<Vec<(String, String)>, ConfigError> {
    let items = text.unwrap_or_default().split(',').map(str::trim).filter(|item| !item.is_empty());
    items
        .map(|item| {
            let wrong = |why| ConfigError::field(field, why);
            let (name, value) =
                item.split_once('=').ok_or_else(|| wrong("is not written as NAME=VALUE,NAME=VALUE"))?;
            let value = decoded(value.trim()).ok_or_else(|| wrong("has a value that is not in URL form"))?;
            match name.trim() {
                "" => Err(wrong("has a value without a name")),
                name => Ok((name.to_owned(), value)),
            }
        })
        .collect()
}

/// `%2C` is a comma.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        bytes.extend(hex::decode(part.get(..2)?)?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flag_is_for_both() {
        for (root, traces, metrics) in [
            ("http://c:4318", "http://c:4318", "http://c:4318"),
            ("http://c:4318/", "http://c:4318", "http://c:4318"),
            ("http://c:4318/v1/traces", "http://c:4318", "http://c:4318"),
            ("https://c/some/root/", "https://c/some/root/v1/traces", "https://c/some/root/v1/metrics"),
            ("https://c/root/v1/metrics", "https://c/root/v1/traces", "https://c/root/v1/metrics"),
            ("unix:/run/c.sock", "unix:/run/c.sock", "unix:/run/c.sock"),
            ("nonsense", "nonsense", "nonsense"),
        ] {
            let mut file = File::default();
            file.send_to(Some(root));
            assert_eq!(
                (file.traces.otlp.as_deref(), file.metrics.otlp.as_deref()),
                (Some(traces), Some(metrics))
            );
        }
    }

    #[test]
    fn lists_are_read_as_baggage_is_written() {
        let read = |text| pairs("traces.headers", Some(text));
        let expected = [("api-key".to_owned(), "a,b=c".to_owned()), ("x".to_owned(), String::new())];
        assert_eq!(read(" api-key = a%2Cb=c , x=,").expect("well written"), expected);
        for text in ["alone", "=value", "a=%2", "a=%zz", "a=%ff"] {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with("traces.headers: "), "{error}");
        }
        assert!(headers("traces.headers", Some("a b=c")).is_err());
        let secret = headers("traces.headers", Some("api-key=sesame")).expect("a header");
        assert!(!format!("{secret:?}").contains("sesame"));
    }
}
