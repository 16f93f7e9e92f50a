//! `[traces]`: where spans go, under which name, and how many. The variables of OpenTelemetry say the same.

use std::path::PathBuf;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::hex;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, UpstreamUrl};

/// What collectors take spans under.
const PATH: &str = "/v1/traces";

/// `[traces]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracesSection {
    /// The collector, spoken to in OTLP over HTTP (protobuf): `http://HOST:4318`, or with a path if it is not
    /// `/v1/traces`. Default: none, and nothing is traced.
    pub otlp: Option<String>,
    /// Fields that are sent with every export, as `NAME=VALUE,NAME=VALUE` with values in URL form. Never shown.
    pub headers: Option<String>,
    /// Certificates (PEM) that the collector's must be signed by. Default: what this machine trusts.
    pub ca: Option<PathBuf>,
    /// What this process is called in traces. Default `onlyonce`.
    pub service: Option<String>,
    /// What else is said of it, as `NAME=VALUE,NAME=VALUE` with values in URL form.
    pub resource: Option<String>,
    /// Which requests are traced. Default `parentbased_always_on`: as the caller says, and all that say nothing.
    pub sampler: Option<Sampling>,
    /// For the samplers with `traceidratio`: which part of the traces, from 0 to 1. Default 1.
    pub sampler_arg: Option<f64>,
}

/// Which requests are traced, under OpenTelemetry's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// All.
    AlwaysOn,
    /// None.
    AlwaysOff,
    /// A part, by the trace's number.
    #[serde(rename = "traceidratio")]
    Ratio,
    /// What the caller says; all that say nothing.
    #[default]
    #[serde(rename = "parentbased_always_on")]
    ParentOrAll,
    /// What the caller says; none that say nothing.
    #[serde(rename = "parentbased_always_off")]
    ParentOrNone,
    /// What the caller says; a part of those that say nothing.
    #[serde(rename = "parentbased_traceidratio")]
    ParentOrRatio,
}

/// How spans are made and where they go.
#[derive(Debug, Clone)]
pub(crate) struct TraceSettings {
    pub(crate) url: UpstreamUrl,
    /// Marked as secrets: they are left out where things are printed.
    pub(crate) headers: HeaderMap,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) sampling: Sampling,
    pub(crate) ratio: f64,
}

impl Config {
    /// How requests are traced, if they are.
    pub(crate) fn trace_settings(&self) -> Result<Option<TraceSettings>, ConfigError> {
        let section = &self.merged.traces;
        let Some(otlp) = &section.otlp else { return Ok(None) };
        let mut url = UpstreamUrl::parse("traces.otlp", otlp)?;
        if url.prefix.is_empty() {
            PATH.clone_into(&mut url.prefix);
        }
        let ratio = section.sampler_arg.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(ConfigError::field("traces.sampler_arg", "is not between 0 and 1"));
        }
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
        Ok(Some(TraceSettings {
            url,
            headers: headers(section.headers.as_deref())?,
            ca: section.ca.clone(),
            resource,
            sampling: section.sampler.unwrap_or_default(),
            ratio,
        }))
    }
}

const SERVICE_NAME: &str = "service.name";

fn headers(text: Option<&str>) -> Result<HeaderMap, ConfigError> {
    // The values may be secrets: what is wrong is said without them.
    let wrong = |why| ConfigError::field("traces.headers", why);
    let mut headers = HeaderMap::new();
    for (name, value) in pairs("traces.headers", text)? {
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

/// What the standard variables say, and what is odd about them. A platform sets them for every process, so that what is
/// not for us is no error.
pub(super) fn standard(variables: &[(String, String)]) -> (TracesSection, Vec<String>) {
    let value = |name: &str| {
        let found = variables.iter().rev().find(|(other, _)| other == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    };
    let first = |names: [&str; 2]| names.into_iter().find_map(value).map(str::to_owned);
    let mut warnings = Vec::new();
    let mut section = TracesSection {
        otlp: endpoint(&value, &mut warnings),
        headers: first(["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]),
        ca: first(["OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"])
            .map(PathBuf::from),
        service: value("OTEL_SERVICE_NAME").map(str::to_owned),
        resource: value("OTEL_RESOURCE_ATTRIBUTES").map(str::to_owned),
        ..TracesSection::default()
    };
    drop_unreadable(&mut section, &mut warnings);
    if let Some(name) = value("OTEL_TRACES_SAMPLER") {
        match Sampling::deserialize(toml::Value::String(name.to_owned())) {
            Ok(sampling) => section.sampler = Some(sampling),
            Err(_) => warnings.push(format!("OTEL_TRACES_SAMPLER is ignored: `{name}` is not known here")),
        }
    }
    if let Some(text) = value("OTEL_TRACES_SAMPLER_ARG") {
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => section.sampler_arg = Some(ratio),
            _ => {
                warnings.push(format!("OTEL_TRACES_SAMPLER_ARG is ignored: `{text}` is not between 0 and 1"));
            }
        }
    }
    (section, warnings)
}

/// Lets go of what would be an error where it is meant for us.
fn drop_unreadable(section: &mut TracesSection, warnings: &mut Vec<String>) {
    let mut warn =
        |what: &str, error: ConfigError| warnings.push(format!("{what} of the environment: {error}"));
    if let Some(error) =
        section.otlp.as_deref().and_then(|url| UpstreamUrl::parse("OTLP endpoint", url).err())
    {
        warn("nothing is traced", error);
        section.otlp = None;
    }
    if let Err(error) = headers(section.headers.as_deref()) {
        warn("OTLP headers are ignored", error);
        section.headers = None;
    }
    if let Err(error) = pairs("OTEL_RESOURCE_ATTRIBUTES", section.resource.as_deref()) {
        warn("resource attributes are ignored", error);
        section.resource = None;
    }
}

/// Where the standard variables send spans, if anywhere that we can reach.
fn endpoint<'a>(value: &impl Fn(&str) -> Option<&'a str>, warnings: &mut Vec<String>) -> Option<String> {
    let is_off = value("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let exporter = value("OTEL_TRACES_EXPORTER").unwrap_or("otlp");
    if is_off || !exporter.split(',').any(|name| name.trim() == "otlp") {
        return None;
    }
    // The one for traces is taken as it is, the one for everything is the root.
    let own = value("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").map(str::to_owned);
    let root =
        || value("OTEL_EXPORTER_OTLP_ENDPOINT").map(|url| format!("{}{PATH}", url.trim_end_matches('/')));
    let endpoint = own.or_else(root)?;
    let protocol =
        value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| value("OTEL_EXPORTER_OTLP_PROTOCOL"));
    match protocol {
        None | Some("http/protobuf") => Some(endpoint),
        Some(protocol) => {
            warnings.push(format!(
                "nothing is traced: the environment asks for OTLP by {protocol}, and only http/protobuf is spoken"
            ));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(variables: &[(&str, &str)]) -> (TracesSection, Vec<String>) {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        standard(&variables.iter().map(owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_standard_variables_say_where_spans_go() {
        let root = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:9/spans");
        let otlp = |variables: &[_]| said(variables).0.otlp;
        assert_eq!(otlp(&[root]).as_deref(), Some("http://collector:4318/v1/traces"));
        assert_eq!(otlp(&[root, own]).as_deref(), Some("http://traces:9/spans"));
        assert_eq!(otlp(&[("OTEL_SERVICE_NAME", "shop")]), None);
        for off in [("OTEL_SDK_DISABLED", "TRUE"), ("OTEL_TRACES_EXPORTER", "none")] {
            assert_eq!(otlp(&[root, off]), None, "{off:?}");
        }
        let (section, warnings) = said(&[root, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(section.otlp, None);
        assert!(warnings[0].contains("grpc"), "{warnings:?}");
    }

    #[test]
    fn a_sampler_that_is_not_known_is_no_reason_to_stop() {
        let (section, warnings) =
            said(&[("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.25")]);
        assert_eq!((section.sampler, section.sampler_arg), (Some(Sampling::ParentOrRatio), Some(0.25)));
        assert!(warnings.is_empty());
        let (section, warnings) = said(&[("OTEL_TRACES_SAMPLER", "xray"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert_eq!((section.sampler, section.sampler_arg), (None, None));
        assert_eq!(warnings.len(), 2);
    }

    #[test]
    fn what_a_platform_says_wrongly_is_ignored_and_secrets_are_not_told() {
        let (section, warnings) = said(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization: Bearer c2VzYW1l="),
            ("OTEL_RESOURCE_ATTRIBUTES", "alone"),
        ]);
        assert_eq!((&section.otlp, &section.headers, &section.resource), (&None, &None, &None));
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(!warnings.concat().contains("c2VzYW1l"), "{warnings:?}");
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
        assert!(headers(Some("a b=c")).is_err());
        let secret = headers(Some("api-key=sesame")).expect("a header");
        assert!(!format!("{secret:?}").contains("sesame"));
    }
}
