//! `[serve]`: where the claims API listens, who may ask, and how much.

use std::path::PathBuf;
use std::time::Duration;

use onlyonce_core::{Lease, Policy, Retention};
use onlyonce_http::rules::{Span, Unknown};
use serde::{Deserialize, Serialize};

use super::admin::AdminSettings;
use super::settings::{DoorSettings, TlsFiles, at_least_one, door, needed, span, store, tls};
use super::{Config, ConfigError, OtlpSettings, StoreSettings, SyncMode};
use crate::listen::ListenAddress;

/// The longest that anybody is kept waiting: most gateways cut a request off after a minute.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// `[serve]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeSection {
    /// Where to listen: `ADDRESS:PORT` or `unix:PATH`. Default `127.0.0.1:8090`: only this machine, until told otherwise.
    pub listen: Option<ListenAddress>,
    /// The file of the tokens (TOML, `[[token]]`). Without it only this machine is served, and everybody on it may do
    /// everything.
    pub tokens_file: Option<PathBuf>,
    /// Connections at a time. Default 10000; more wait to be accepted.
    pub connections_max: Option<usize>,
    /// Bytes of one request's body. Default 16777216.
    pub request_bytes_max: Option<usize>,
    /// Bytes of all request bodies that are held in memory at a time. Default 268435456; beyond it requests get 503.
    pub buffered_bytes_max: Option<usize>,
    /// How many may wait for one record. Default 1000; one more gets 503.
    pub waiters_max: Option<usize>,
    /// How long a shutdown waits for what runs. Default `30s`. Those who wait for a record are told at once.
    pub drain_within: Option<Span>,
    /// The lease of a claim that names none. Default `30s`.
    pub lease: Option<Span>,
    /// How long one attempt may take that names no `run_max`. Default `5m`.
    pub run_max: Option<Span>,
    /// How long outcomes are kept when a claim does not say. Default `24h`.
    pub retention: Option<Span>,
    /// What to do when nobody knows whether the work happened, for claims that do not say. Default `hold`.
    pub unknown: Option<Unknown>,
}

/// What the claims API needs to know.
#[derive(Debug, Clone)]
pub(crate) struct ServeSettings {
    pub(crate) door: DoorSettings,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) tokens_file: Option<PathBuf>,
    pub(crate) request_bytes_max: usize,
    pub(crate) buffered_bytes_max: usize,
    pub(crate) waiters_max: usize,
    pub(crate) wait_max: Duration,
    pub(crate) body_within: Duration,
    pub(crate) body_pause_max: Duration,
    pub(crate) drain_within: Duration,
    pub(crate) policy: Policy,
    pub(crate) store: StoreSettings,
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) otlp: OtlpSettings,
}

/// The lowest layer.
pub(super) fn defaults() -> ServeSection {
    ServeSection {
        listen: Some(ListenAddress::Tcp(([127, 0, 0, 1], 8090).into())),
        connections_max: Some(10_000),
        request_bytes_max: Some(16 << 20),
        buffered_bytes_max: Some(256 << 20),
        waiters_max: Some(1000),
        drain_within: Some(Span::from_secs(30)),
        lease: Some(Span::from_secs(30)),
        run_max: Some(Span::from_secs(300)),
        retention: Some(Span::from_secs(86_400)),
        unknown: Some(Unknown::Hold),
        ..ServeSection::default()
    }
}

impl Config {
    /// Checks everything that the claims API needs.
    pub(crate) fn serve_settings(&self) -> Result<ServeSettings, ConfigError> {
        let (section, proxy) = (&self.merged.serve, &self.merged.proxy);
        let policy = policy(section)?;
        let mut store = store(&self.merged)?;
        // Callers name their own leases, up to the longest there is.
        store.redis.lease_max = Duration::from_hours(1);
        if store.sync == SyncMode::Outcome {
            let problem = "`outcome` loses grants in a power cut, and owners elsewhere would not know";
            return Err(ConfigError::field("store.sync", problem));
        }
        let request_bytes_max = at_least_one("serve.request_bytes_max", section.request_bytes_max)?;
        let buffered_bytes_max = at_least_one("serve.buffered_bytes_max", section.buffered_bytes_max)?;
        if buffered_bytes_max < request_bytes_max {
            let problem = "is smaller than request_bytes_max: no such body could ever be taken";
            return Err(ConfigError::field("serve.buffered_bytes_max", problem));
        }
        let listen = needed("serve.listen", section.listen.clone())?;
        if section.tokens_file.is_none() && !listen.is_local() {
            let problem = format!("is not set, and others than this machine can reach {listen}");
            return Err(ConfigError::field("serve.tokens_file", problem));
        }
        Ok(ServeSettings {
            door: door(proxy, listen, at_least_one("serve.connections_max", section.connections_max)?)?,
            tls: tls("tls.", &self.merged.tls)?,
            tokens_file: section.tokens_file.clone(),
            request_bytes_max,
            buffered_bytes_max,
            waiters_max: at_least_one("serve.waiters_max", section.waiters_max)?,
            wait_max: WAIT_MAX,
            body_within: span("proxy.body_within", proxy.body_within)?,
            body_pause_max: span("proxy.body_pause_max", proxy.body_pause_max)?,
            drain_within: section.drain_within.map_or(Duration::ZERO, Span::get),
            policy,
            store,
            admin: self.admin_settings()?,
            otlp: self.otlp_settings()?,
        })
    }
}

fn policy(section: &ServeSection) -> Result<Policy, ConfigError> {
    let wrong = |field: &str, error: onlyonce_core::MisuseError| ConfigError::field(field, error.to_string());
    let lease = Lease::new(span("serve.lease", section.lease)?);
    let retention = Retention::new(span("serve.retention", section.retention)?);
    let policy = Policy::default()
        .lease(lease.map_err(|error| wrong("serve.lease", error))?)
        .run_max(span("serve.run_max", section.run_max)?)
        .retention(retention.map_err(|error| wrong("serve.retention", error))?)
        .unknown(section.unknown.unwrap_or_default().into())
        // Owners live elsewhere, and outlive this process.
        .remote_owners();
    policy.check().map_err(|error| wrong("serve", error))?;
    Ok(policy)
}
