//! What the sidecar is told to do: read from a file, the environment and flags, checked, and shown again.
//!
//! Flags win over the environment, the environment over the file, the file over defaults. What cannot work is refused
//! here, with the place where it was said, before anything listens.

mod admin;
mod consume;
mod error;
mod file;
mod layers;
mod metrics;
mod nearest;
mod otlp;
mod serve;
mod settings;
mod show;
mod sweep;
mod traces;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use onlyonce_http::Rules;

pub use admin::AdminSection;
pub(crate) use admin::AdminSettings;
pub(crate) use consume::CONNECT_WITHIN;
pub use consume::{ConsumeSection, ConsumeSettings, Mismatch, MissingId, ShortRetention};
pub use error::ConfigError;
pub use file::{
    File, ForwardedMode, JwtSection, LogSection, ProxySection, StoreSection, SyncMode, TlsSection,
    UpstreamHost, UpstreamHttp,
};
pub use layers::Origin;
pub(crate) use metrics::MetricSettings;
pub use metrics::MetricsSection;
pub(crate) use otlp::{CollectorSettings, OtlpSettings};
pub use serve::ServeSection;
pub(crate) use serve::ServeSettings;
pub(crate) use settings::DoorSettings;
pub(crate) use settings::EncryptionSettings;
pub(crate) use settings::RedisSettings;
pub(crate) use settings::TlsFiles;
pub(crate) use settings::UpstreamSettings;
pub use settings::{Settings, StoreSettings, UpstreamUrl};
pub(crate) use show::without_password;
pub use sweep::SweepSection;
pub(crate) use traces::TraceSettings;
pub use traces::{Sampling, TracesSection};

use layers::Layers;

/// The largest configuration file that is read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where a configuration is read from. Reading it again gives the configuration after a change of the file.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The environment.
    pub environment: Vec<(String, String)>,
    /// The flags, in the shape of the file.
    pub flags: File,
}

/// A configuration, all layers in one.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) merged: File,
    origins: BTreeMap<String, Origin>,
    warnings: Vec<String>,
}

impl Sources {
    /// Reads all layers.
    pub fn read(&self) -> Result<Config, ConfigError> {
        let mut layers = Layers::default();
        layers.lay(&settings::defaults(), Origin::Default)?;
        if let Some(path) = &self.file {
            layers.lay(&layers::read_file(path, &read_text(path)?)?, Origin::File)?;
        }
        let (standard, odd) = otlp::standard(&self.environment);
        layers.lay(&standard, Origin::Environment)?;
        let (environment, unknown) = layers::read_environment(self.environment.iter().cloned())?;
        layers.lay(&environment, Origin::Environment)?;
        layers.lay(&self.flags, Origin::Flag)?;
        let merged = layers.finish()?;
        let warnings = unknown.iter().map(|name| layers::about_unknown(name)).chain(odd);
        let warnings = warnings.chain(sweep::about_nobody(&merged)).collect();
        Ok(Config { merged, origins: layers.origins, warnings })
    }
}

impl Config {
    /// What is odd but not wrong.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The store that is named.
    pub fn store_url(&self) -> Option<&str> {
        self.merged.store.url.as_deref()
    }

    /// Where `section.field` was set.
    pub fn origin(&self, field: &str) -> Option<Origin> {
        self.origins.get(field).copied()
    }

    /// The sections that cannot change while a sidecar runs, and that differ in `other`.
    pub(crate) fn sections_that_differ(&self, other: &Self) -> Vec<&'static str> {
        let (one, other) = (&self.merged, &other.merged);
        let sections = [
            ("proxy", one.proxy != other.proxy),
            ("tls", one.tls != other.tls),
            ("store", one.store != other.store),
            ("sweep", one.sweep != other.sweep),
            ("consume", one.consume != other.consume),
            ("admin", one.admin != other.admin),
            ("serve", one.serve != other.serve),
            ("jwt", one.jwt != other.jwt),
            ("traces", one.traces != other.traces),
            ("metrics", one.metrics != other.metrics),
            ("log", one.log != other.log),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(section, _)| section).collect()
    }

    /// The rules of `newer`, and of everything that only a start changes what this one says.
    pub(crate) fn with_rules_of(&self, newer: &Self) -> Self {
        let of_rules = |field: &str| field == "route" || field.starts_with("defaults.");
        let mut changed = self.clone();
        changed.merged.defaults = newer.merged.defaults.clone();
        changed.merged.route.clone_from(&newer.merged.route);
        changed.origins.retain(|field, _| !of_rules(field));
        let newer = newer.origins.iter().filter(|(field, _)| of_rules(field));
        changed.origins.extend(newer.map(|(field, origin)| (field.clone(), *origin)));
        changed
    }

    /// The routes in order, each with the defaults filled in; the last is the defaults alone and matches everything.
    pub fn rules(&self) -> Vec<Rules> {
        let defaults = &self.merged.defaults;
        let routes = self.merged.route.iter().map(|route| route.clone().or(defaults));
        routes.chain([defaults.clone()]).collect()
    }
}

fn read_text(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::unreadable(path, source);
    if fs::metadata(path).map_err(unreadable)?.len() > FILE_BYTES_MAX {
        return Err(unreadable(std::io::Error::other("it has more than 4 MiB")));
    }
    fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
#[path = "config/tests.rs"]
mod tests;
