//! `[traces]`: where spans go, under which name, and how many.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::otlp::{CollectorSettings, Signal};
use super::{Config, ConfigError};

/// `[traces]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracesSection {
    /// The collector, spoken to in OTLP over HTTP (protobuf): `http://HOST:4318`, or with a path if it is not
    /// `/v1/traces`. Default: none, and nothing is traced.
    pub otlp: Option<String>,
    /// Whether spans are sent to it. Default `true`.
    pub enabled: Option<bool>,
    /// Fields that are sent with every export, as `NAME=VALUE,NAME=VALUE` with values in URL form. Never shown.
    pub headers: Option<String>,
    /// Certificates (PEM) that the collector's must be signed by. Default: what this machine trusts.
    pub ca: Option<PathBuf>,
    /// What this process is called, for figures too. Default `onlyonce`.
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
    pub(crate) collector: CollectorSettings,
    pub(crate) sampling: Sampling,
    pub(crate) ratio: f64,
}

impl Config {
    /// How requests are traced, if they are.
    pub(super) fn trace_settings(&self) -> Result<Option<TraceSettings>, ConfigError> {
        let section = &self.merged.traces;
        let Some(otlp) = section.otlp.as_deref().filter(|_| section.enabled != Some(false)) else {
            return Ok(None);
        };
        let fields = section.headers.as_deref();
        let collector = CollectorSettings::read(Signal::Traces, otlp, fields, section.ca.clone())?;
        let ratio = section.sampler_arg.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(ConfigError::field("traces.sampler_arg", "is not between 0 and 1"));
        }
        Ok(Some(TraceSettings { collector, sampling: section.sampler.unwrap_or_default(), ratio }))
    }
}
