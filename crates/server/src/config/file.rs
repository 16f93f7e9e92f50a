//! The shape of the configuration file. Environment and flags have the same shape, so that a setting has one name,
//! one meaning and one check wherever it comes from. Every unknown field is an error.

use std::path::PathBuf;

use onlyonce_http::Rules;
use onlyonce_http::rules::Span;
use serde::{Deserialize, Serialize};

use super::admin::AdminSection;
use super::consume::ConsumeSection;
use super::metrics::MetricsSection;
use super::serve::ServeSection;
use super::sweep::SweepSection;
use super::traces::TracesSection;
use crate::listen::ListenAddress;

/// What can be configured. Nothing is set until somebody sets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Where requests come from and where they go.
    pub proxy: ProxySection,
    /// TLS towards clients.
    pub tls: TlsSection,
    /// Where records are kept.
    pub store: StoreSection,
    /// How expired records are removed.
    pub sweep: SweepSection,
    /// Where messages come from and where they go.
    pub consume: ConsumeSection,
    /// The claims API.
    pub serve: ServeSection,
    /// The operators' side.
    pub admin: AdminSection,
    /// How bearer tokens are verified, for `principal = "jwt:CLAIM"`.
    pub jwt: JwtSection,
    /// Where spans go.
    pub traces: TracesSection,
    /// Where figures are sent.
    pub metrics: MetricsSection,
    /// What is written to standard error.
    pub log: LogSection,
    /// Rules for every route that does not say otherwise, and for requests that no route names.
    pub defaults: Rules,
    /// Rules by path; the first that matches counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub route: Vec<Rules>,
}

/// `[proxy]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxySection {
    /// Where to listen: `ADDRESS:PORT` or `unix:PATH`. Default `127.0.0.1:8080`: only this machine, until told otherwise.
    pub listen: Option<ListenAddress>,
    /// The service to protect: `http://HOST:PORT`, `https://…` or `unix:PATH`. No default.
    pub upstream: Option<String>,
    /// Asked with the caller's credentials before every replay; anything but 2xx is passed on instead of it.
    pub auth_url: Option<String>,
    /// What is done with `X-Forwarded-*` and `Forwarded` from clients: `replace`, `append` (a trusted gateway is in
    /// front) or `off`. Default `replace`: a client must not name its own address.
    pub forwarded: Option<ForwardedMode>,
    /// Connections at a time. Default 10000; more wait to be accepted.
    pub connections_max: Option<usize>,
    /// Bytes of request bodies with a key that are held in memory at a time, all together. Default 268435456; beyond it
    /// requests get 503 before anything is claimed.
    pub buffered_bytes_max: Option<u64>,
    /// Bytes of a request's head. Default 32768.
    pub head_bytes_max: Option<usize>,
    /// Fields of a request's head. Default 100.
    pub fields_max: Option<usize>,
    /// How long a new connection may take to its first byte, and to its TLS handshake. Default `10s`.
    pub first_byte_within: Option<Span>,
    /// How long a head may take from its first byte to its last. Default `10s`.
    pub head_within: Option<Span>,
    /// How long a request's body may take in all. Default `10m`.
    pub body_within: Option<Span>,
    /// How long a request's body may pause. Default `30s`.
    pub body_pause_max: Option<Span>,
    /// How long a connection may be kept without a request. Default `75s`.
    pub idle_within: Option<Span>,
    /// How long a client may take to read the next bytes of an answer. Default `30s`.
    pub write_pause_max: Option<Span>,
    /// How long a shutdown waits for what runs. Default `30s`; what remains is abandoned, never released.
    pub drain_within: Option<Span>,
    /// How long connecting to the upstream may take. Default `5s`; nothing was sent then, and the key is released.
    pub upstream_connect_within: Option<Span>,
    /// How long the upstream may take to begin its answer. Default `60s`; must be shorter than `run_max`. After that
    /// the outcome is unknown.
    pub upstream_within: Option<Span>,
    /// How long the upstream's answer may pause. Default `60s`.
    pub upstream_pause_max: Option<Span>,
    /// How long an upstream connection is kept without a request. Default `4s`: shorter than servers keep theirs, so that
    /// a request rarely meets a connection that is being closed.
    pub upstream_idle: Option<Span>,
    /// `auto` (HTTP/2 where TLS negotiates it), `1` or `2` (also without TLS). Default `auto`.
    pub upstream_http: Option<UpstreamHttp>,
    /// What the upstream sees as `Host`: `preserve` (the client's) or `upstream`. Default `preserve`. HTTP/2 always sends
    /// the upstream's.
    pub upstream_host: Option<UpstreamHost>,
    /// Certificates (PEM) that the upstream's must be signed by. Default: what this machine trusts.
    pub upstream_ca: Option<PathBuf>,
}

/// What is done with forwarding headers that a client sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedMode {
    /// They are dropped, and ours are set.
    #[default]
    Replace,
    /// Ours are added to them.
    Append,
    /// They pass untouched.
    Off,
}

/// Which HTTP the upstream is spoken to in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpstreamHttp {
    /// HTTP/2 where TLS negotiates it, else HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1")]
    Http1,
    /// HTTP/2, also without TLS.
    #[serde(rename = "2")]
    Http2,
}

/// What the upstream sees as `Host`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamHost {
    /// What the client sent.
    #[default]
    Preserve,
    /// The upstream's own name.
    Upstream,
}

/// `[tls]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    /// The certificate and its chain (PEM). With it, the listener speaks TLS only.
    pub certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
    /// Clients must show a certificate that one of these signed. Needed by `principal = "mtls"`.
    pub client_ca: Option<PathBuf>,
}

/// `[store]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// `memory:`, `file:DIR`, … Default `file:./onlyonce-data`: durable with nothing to install.
    pub url: Option<String>,
    /// A fast tier in front of `postgres://`: `redis://` or `rediss://`. It answers what is completed; it may lose anything.
    #[serde(rename = "cache")]
    pub fast_tier: Option<String>,
    /// How much memory answers that were replayed lately may take, in bytes; 0 for none. Default 16 MiB.
    pub recent_bytes_max: Option<usize>,
    /// What the keys of a Redis store begin with. Default `onlyonce`. Stores with different ones can share a server.
    pub redis_prefix: Option<String>,
    /// How many connections each Redis server gets. Default 2.
    pub redis_connections: Option<usize>,
    /// Start although a Redis server may evict records, which runs their work again. Default `false`.
    pub allow_eviction: Option<bool>,
    /// What an answered command of a `file:` store survives: `always`, `outcome` or `none`. Default `always`: a power cut.
    pub sync: Option<SyncMode>,
    /// How much memory a `file:` store may take, in bytes. Default 256 MiB.
    pub memory_bytes_max: Option<usize>,
    /// How many records the store may hold: an alarm at 80 %, no new claims at 100 %. Default: no bound; one million for
    /// `memory:`.
    pub records_max: Option<usize>,
    /// How many bytes they may take, as far as the store can tell; likewise. Default: no bound; 256 MiB for `memory:`.
    pub bytes_max: Option<usize>,
    /// A file with the 64 hexadecimal digits of the secret of the keyed hashes. Default: the store makes one and keeps it.
    pub secret_file: Option<PathBuf>,
    /// A file of keys, `NAME = BASE64` a line: bodies and steps are encrypted with the first, and read with any of them.
    /// Default: nothing is encrypted. SIGHUP reads it again.
    pub encryption_key_file: Option<PathBuf>,
    /// With `encryption_key_file`: also read records that are not encrypted, from before. Default `false`: they are damage.
    pub accept_plain: Option<bool>,
    /// With `encryption_key_file`: start although the store was written with keys that are lost. Default `false`: a file of
    /// other keys is most likely the wrong file.
    pub accept_lost_keys: Option<bool>,
    /// How long an answer is kept from its caller because it is not on record yet. Default `500ms`; after that the caller
    /// gets it marked `Onlyonce-Unrecorded`, and recording goes on.
    pub answer_within: Option<Span>,
}

/// See the embedded store's `Sync`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncMode {
    /// Everything survives a power cut.
    #[default]
    Always,
    /// Outcomes survive a power cut, grants need not.
    Outcome,
    /// Nothing is synced.
    None,
}

/// `[jwt]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtSection {
    /// The one algorithm that is accepted: `HS256`, `RS256`, `ES256`, `EdDSA`, … No default: a token must not choose.
    pub algorithm: Option<String>,
    /// The file with the key: the secret itself for `HS…`, else a public key (PEM).
    pub key_file: Option<PathBuf>,
    /// Only tokens of this issuer.
    pub issuer: Option<String>,
    /// Only tokens for this audience.
    pub audience: Option<String>,
}

/// `[log]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    /// One JSON object a line. Default `false`.
    pub json: Option<bool>,
    /// What is logged, as `tracing` filters are written. Default `info`.
    pub filter: Option<String>,
}
