//! The settings of a running sidecar, from a merged configuration: every default filled in, every value checked.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use onlyonce_core::sweeper::Plan;
use onlyonce_http::rules::Span;

use super::admin::AdminSettings;
use super::error::ConfigError;
use super::file::{
    File, ForwardedMode, LogSection, ProxySection, StoreSection, SyncMode, TlsSection, UpstreamHost,
    UpstreamHttp,
};
use super::{Config, Origin, OtlpSettings};
use crate::listen::ListenAddress;
use crate::listen::wire::{HeadLimits, Patience};

/// How long one execution may take when no rule says otherwise.
const RUN_MAX: Duration = Duration::from_mins(5);

/// How large a body with a key may be when no rule says otherwise.
const REQUEST_BYTES_MAX: u64 = 2 << 20;

/// What a sidecar needs to know beyond its rules.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) door: DoorSettings,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) buffered_bytes_max: u64,
    pub(crate) body_within: Duration,
    pub(crate) body_pause_max: Duration,
    pub(crate) drain_within: Duration,
    pub(crate) forwarded: ForwardedMode,
    pub(crate) auth_url: Option<UpstreamUrl>,
    pub(crate) upstream: UpstreamSettings,
    pub(crate) store: StoreSettings,
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) otlp: OtlpSettings,
}

/// How connections are taken.
#[derive(Debug, Clone)]
pub(crate) struct DoorSettings {
    pub(crate) listen: ListenAddress,
    pub(crate) connections_max: usize,
    pub(crate) head: HeadLimits,
    pub(crate) patience: Patience,
}

/// The files of the listener's TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
}

/// How the upstream is reached.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamSettings {
    pub(crate) url: UpstreamUrl,
    pub(crate) http: UpstreamHttp,
    pub(crate) host: UpstreamHost,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) connect_within: Duration,
    pub(crate) within: Duration,
    pub(crate) pause_max: Duration,
    pub(crate) idle: Duration,
}

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// `memory:`, `file:DIR`, …
    pub url: String,
    pub(crate) fast_tier: Option<String>,
    pub(crate) recent_bytes_max: usize,
    pub(crate) redis: RedisSettings,
    pub(crate) sync: SyncMode,
    pub(crate) memory_bytes_max: usize,
    pub(crate) records_max: Option<usize>,
    pub(crate) bytes_max: Option<usize>,
    pub(crate) secret_file: Option<PathBuf>,
    pub(crate) sweep: Plan,
    pub(crate) encryption: Option<EncryptionSettings>,
    pub(crate) answer_within: Duration,
}

/// How records are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EncryptionSettings {
    pub(crate) key_file: PathBuf,
    pub(crate) accept_plain: bool,
    pub(crate) accept_lost_keys: bool,
}

/// What can be set about a Redis store. What is not is the store's own to choose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RedisSettings {
    pub(crate) prefix: Option<String>,
    pub(crate) connections: Option<usize>,
    pub(crate) allow_eviction: bool,
    /// Whether a sweep begins at once, however short a time ago the last one ended.
    pub(crate) sweeps_at_once: bool,
    /// The longest lease that any rule gives.
    pub(crate) lease_max: Duration,
}

/// The root of a service: scheme, host, port and perhaps a path that all requests go below; or a unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamUrl {
    /// Where to connect instead of to the authority.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) scheme: Scheme,
    pub(crate) authority: Authority,
    /// Without a slash at its end.
    pub(crate) prefix: String,
}

impl UpstreamUrl {
    pub(crate) fn parse(field: &str, text: &str) -> Result<Self, ConfigError> {
        let wrong = |why: &str| ConfigError::field(field, format!("`{text}` {why}"));
        let example = "is neither a URL such as http://127.0.0.1:3000 nor unix:PATH";
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong("needs a path, as in unix:/run/service.sock")),
                path => Ok(Self::over(path.into())),
            };
        }
        let parts = text.parse::<Uri>().map_err(|_| wrong(example))?.into_parts();
        let scheme = parts.scheme.filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
        let (Some(scheme), Some(authority)) = (scheme, parts.authority) else { return Err(wrong(example)) };
        if authority.as_str().contains('@') {
            return Err(ConfigError::field(field, "credentials in a URL are not sent: leave them out"));
        }
        let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(wrong("has a query: only a path can stand before every request's own"));
        }
        let prefix = path.path().trim_end_matches('/').to_owned();
        Ok(Self { socket: None, scheme, authority, prefix })
    }

    /// A socket has no name of its own; where one is needed, it is this machine's.
    fn over(socket: PathBuf) -> Self {
        let authority = Authority::from_static("localhost");
        Self { socket: Some(socket), scheme: Scheme::HTTP, authority, prefix: String::new() }
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The port to connect to.
    pub(crate) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }
}

impl fmt::Display for UpstreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(socket) => write!(f, "unix:{}", socket.display()),
            None => write!(f, "{}://{}{}", self.scheme, self.authority, self.prefix),
        }
    }
}

/// The lowest layer.
pub(super) fn defaults() -> File {
    let seconds = |seconds| Some(Span::from_secs(seconds));
    File {
        proxy: ProxySection {
            listen: Some(ListenAddress::Tcp(([127, 0, 0, 1], 8080).into())),
            forwarded: Some(ForwardedMode::Replace),
            connections_max: Some(10_000),
            buffered_bytes_max: Some(256 << 20),
            head_bytes_max: Some(32 * 1024),
            fields_max: Some(100),
            first_byte_within: seconds(10),
            head_within: seconds(10),
            body_within: seconds(600),
            body_pause_max: seconds(30),
            idle_within: seconds(75),
            write_pause_max: seconds(30),
            drain_within: seconds(30),
            upstream_connect_within: seconds(5),
            upstream_within: seconds(60),
            upstream_pause_max: seconds(60),
            upstream_idle: seconds(4),
            upstream_http: Some(UpstreamHttp::Auto),
            upstream_host: Some(UpstreamHost::Preserve),
            ..ProxySection::default()
        },
        store: StoreSection {
            url: Some("file:./onlyonce-data".to_owned()),
            sync: Some(SyncMode::Always),
            memory_bytes_max: Some(256 << 20),
            recent_bytes_max: Some(16 << 20),
            answer_within: Some(Span(Duration::from_millis(500))),
            ..StoreSection::default()
        },
        sweep: super::sweep::defaults(),
        consume: super::consume::defaults(),
        serve: super::serve::defaults(),
        log: LogSection { json: Some(false), filter: Some("info".to_owned()) },
        ..File::default()
    }
}

impl Config {
    /// What is said about the store alone.
    pub(crate) fn store_settings(&self) -> Result<StoreSettings, ConfigError> {
        store(&self.merged)
    }

    /// Checks everything, and fills in what nobody said.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        if self.merged.defaults.path.is_some() {
            return Err(ConfigError::field(
                "defaults.path",
                "the defaults are for every path: write a [[route]]",
            ));
        }
        let proxy = &self.merged.proxy;
        let listen = needed("proxy.listen", proxy.listen.clone())?;
        let mut settings = Settings {
            door: door(proxy, listen, at_least_one("proxy.connections_max", proxy.connections_max)?)?,
            tls: tls("tls.", &self.merged.tls)?,
            buffered_bytes_max: self.buffered_bytes_max()?,
            body_within: span("proxy.body_within", proxy.body_within)?,
            body_pause_max: span("proxy.body_pause_max", proxy.body_pause_max)?,
            drain_within: proxy.drain_within.map_or(Duration::ZERO, Span::get),
            forwarded: proxy.forwarded.unwrap_or_default(),
            auth_url: proxy
                .auth_url
                .as_deref()
                .map(|url| UpstreamUrl::parse("proxy.auth_url", url))
                .transpose()?,
            upstream: upstream(proxy)?,
            store: store(&self.merged)?,
            admin: self.admin_settings()?,
            otlp: self.otlp_settings()?,
        };
        self.check_upstream_time(&settings)?;
        let leases = self.rules().into_iter().filter_map(|rules| rules.lease);
        settings.store.redis.lease_max = leases.map(Span::get).max().unwrap_or_default();
        Ok(settings)
    }

    /// Room for one body of the largest kind at least: else it could never be taken, and nobody would say why.
    fn buffered_bytes_max(&self) -> Result<u64, ConfigError> {
        let bytes = needed("proxy.buffered_bytes_max", self.merged.proxy.buffered_bytes_max)?;
        let largest =
            self.rules().iter().map(|rules| rules.request_bytes_max.unwrap_or(REQUEST_BYTES_MAX)).max();
        if bytes < largest.unwrap_or_default() {
            return Err(ConfigError::field(
                "proxy.buffered_bytes_max",
                format!(
                    "is smaller than request_bytes_max ({}): no such body could ever be taken",
                    largest.unwrap_or_default()
                ),
            ));
        }
        Ok(bytes)
    }

    /// How the log is written.
    pub fn log(&self) -> LogSection {
        self.merged.log.clone()
    }

    /// The upstream must be given up before the execution is: else nobody would say why.
    fn check_upstream_time(&self, settings: &Settings) -> Result<(), ConfigError> {
        let upstream = &settings.upstream;
        let run_max = self.rules().iter().map(|rules| rules.run_max.map_or(RUN_MAX, Span::get)).min();
        if upstream.connect_within + upstream.within >= run_max.unwrap_or(RUN_MAX) {
            let origin = self.origin("proxy.upstream_within").unwrap_or(Origin::Default);
            return Err(ConfigError::field(
                "proxy.upstream_within",
                format!("together with upstream_connect_within it is not shorter than run_max ({origin})"),
            ));
        }
        Ok(())
    }
}

pub(super) fn needed<T>(field: &str, value: Option<T>) -> Result<T, ConfigError> {
    value.ok_or_else(|| ConfigError::field(field, "is not set"))
}

/// How connections to `listen` are taken; those of every door keep to the same limits.
pub(super) fn door(
    proxy: &ProxySection,
    listen: ListenAddress,
    connections_max: usize,
) -> Result<DoorSettings, ConfigError> {
    Ok(DoorSettings {
        listen,
        connections_max,
        head: HeadLimits {
            bytes_max: at_least_one("proxy.head_bytes_max", proxy.head_bytes_max)?,
            fields_max: at_least_one("proxy.fields_max", proxy.fields_max)?,
        },
        patience: Patience {
            first_byte: span("proxy.first_byte_within", proxy.first_byte_within)?,
            head: span("proxy.head_within", proxy.head_within)?,
            idle: span("proxy.idle_within", proxy.idle_within)?,
            write: span("proxy.write_pause_max", proxy.write_pause_max)?,
        },
    })
}

pub(super) fn at_least_one(field: &str, value: Option<usize>) -> Result<usize, ConfigError> {
    match needed(field, value)? {
        0 => Err(ConfigError::field(field, "is zero: nothing could ever be served")),
        value => Ok(value),
    }
}

pub(super) fn span(field: &str, value: Option<Span>) -> Result<Duration, ConfigError> {
    match needed(field, value)?.get() {
        Duration::ZERO => Err(ConfigError::field(field, "is zero: it would be over before it began")),
        value => Ok(value),
    }
}

/// The files of a listener's TLS; what their fields are called begins with `prefix`.
pub(super) fn tls(prefix: &str, section: &TlsSection) -> Result<Option<TlsFiles>, ConfigError> {
    let missing = |field: &str, because: &str| {
        ConfigError::field(format!("{prefix}{field}"), format!("is not set, but {prefix}{because} is"))
    };
    match (section.certificate.clone(), section.key.clone()) {
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate, key, client_ca: section.client_ca.clone() }))
        }
        (None, None) if section.client_ca.is_none() => Ok(None),
        (None, None) => Err(missing("certificate", "client_ca")),
        (None, Some(_)) => Err(missing("certificate", "key")),
        (Some(_), None) => Err(missing("key", "certificate")),
    }
}

fn upstream(proxy: &ProxySection) -> Result<UpstreamSettings, ConfigError> {
    let Some(url) = &proxy.upstream else {
        return Err(ConfigError::field("proxy.upstream", "is not set: which service is to be protected?"));
    };
    Ok(UpstreamSettings {
        url: UpstreamUrl::parse("proxy.upstream", url)?,
        http: proxy.upstream_http.unwrap_or_default(),
        host: proxy.upstream_host.unwrap_or_default(),
        ca: proxy.upstream_ca.clone(),
        connect_within: span("proxy.upstream_connect_within", proxy.upstream_connect_within)?,
        within: span("proxy.upstream_within", proxy.upstream_within)?,
        pause_max: span("proxy.upstream_pause_max", proxy.upstream_pause_max)?,
        idle: span("proxy.upstream_idle", proxy.upstream_idle)?,
    })
}

fn encryption(section: &StoreSection) -> Result<Option<EncryptionSettings>, ConfigError> {
    let (accept_plain, accept_lost_keys) =
        (section.accept_plain.unwrap_or(false), section.accept_lost_keys.unwrap_or(false));
    let alone = |field| Err(ConfigError::field(field, "is set, but store.encryption_key_file is not"));
    match &section.encryption_key_file {
        Some(key_file) => {
            Ok(Some(EncryptionSettings { key_file: key_file.clone(), accept_plain, accept_lost_keys }))
        }
        None if accept_plain => alone("store.accept_plain"),
        None if accept_lost_keys => alone("store.accept_lost_keys"),
        None => Ok(None),
    }
}

pub(super) fn store(file: &File) -> Result<StoreSettings, ConfigError> {
    let section = &file.store;
    let url = needed("store.url", section.url.clone())?;
    // Redis in front of Redis costs a round trip, and the stores of one machine need none.
    if section.fast_tier.is_some() && !url.starts_with("postgres") {
        return Err(ConfigError::field("store.cache", "only a postgres:// store has a cache tier"));
    }
    let of_redis = [
        ("store.redis_prefix", section.redis_prefix.is_some()),
        ("store.redis_connections", section.redis_connections.is_some()),
        ("store.allow_eviction", section.allow_eviction.is_some()),
    ];
    if let Some((field, _)) = of_redis.iter().find(|(_, set)| *set && !url.starts_with("redis")) {
        return Err(ConfigError::field(*field, "is for a Redis store only"));
    }
    Ok(StoreSettings {
        url,
        fast_tier: section.fast_tier.clone(),
        recent_bytes_max: needed("store.recent_bytes_max", section.recent_bytes_max)?,
        redis: RedisSettings {
            prefix: section.redis_prefix.clone(),
            connections: section.redis_connections,
            allow_eviction: section.allow_eviction.unwrap_or(false),
            sweeps_at_once: false,
            lease_max: Duration::ZERO,
        },
        sync: section.sync.unwrap_or_default(),
        memory_bytes_max: at_least_one("store.memory_bytes_max", section.memory_bytes_max)?,
        records_max: section.records_max,
        bytes_max: section.bytes_max,
        secret_file: section.secret_file.clone(),
        sweep: super::sweep::plan(&file.sweep)?,
        encryption: encryption(section)?,
        answer_within: span("store.answer_within", section.answer_within)?,
    })
}
