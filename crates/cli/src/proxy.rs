//! `onlyonce proxy`: the sidecar. All meaning is in the server; here are its flags, and its first words.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::Args;
use onlyonce_http::rules::{BodyMode, KeySource, OnStoreFailure, PrincipalRule, Profile, Span, Unknown};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{ListenAddress, Sidecar, Signals, StartError, start_logging};

use crate::admin::AdminArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;

/// How many sockets that have something to say are listened to before the next are asked.
const EVENTS_TOGETHER: usize = 32;

/// Put idempotency in front of an HTTP service
///
/// Requests with an `Idempotency-Key` run once; retries get the recorded answer. Everything else passes through.
/// Flags win over the environment (`ONLYONCE_SECTION_FIELD`), the environment over the file, the file over defaults.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce proxy --upstream http://127.0.0.1:3000 --listen 127.0.0.1:8080
  curl -H 'Idempotency-Key: order-123' -d '{\"amount\": 100}' http://127.0.0.1:8080/payments

SIGHUP, or a change of the file, reloads its rules. SIGTERM finishes what runs, then stops; a second one stops now.

",
    exit_codes!()
))]
pub(crate) struct ProxyArgs {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Threads that serve requests [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// The flags that are settings.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// The configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The service to protect, as http://HOST:PORT, https://… or unix:PATH
    #[arg(long, value_name = "URL", help_heading = "Proxy")]
    upstream: Option<String>,

    /// Where to listen: ADDRESS:PORT (port 0 takes a free one) or unix:PATH [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", help_heading = "Proxy")]
    listen: Option<ListenAddress>,

    /// Ask this URL with the caller's credentials before every replay
    #[arg(long, value_name = "URL", help_heading = "Proxy")]
    auth_url: Option<String>,

    /// How long a shutdown waits for what runs [default: 30s]
    #[arg(long, value_name = "DURATION", help_heading = "Proxy")]
    drain: Option<Span>,

    /// How long the upstream may take to begin its answer [default: 60s]
    #[arg(long, value_name = "DURATION", help_heading = "Proxy")]
    upstream_within: Option<Span>,

    /// Certificate and chain of the listener (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "TLS")]
    tls_certificate: Option<PathBuf>,

    /// Private key of the listener (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = "TLS")]
    tls_key: Option<PathBuf>,

    /// Clients must show a certificate signed by one of these (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_certificate", help_heading = "TLS")]
    tls_client_ca: Option<PathBuf>,

    /// The upstream's certificate must be signed by one of these (PEM)
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    upstream_ca: Option<PathBuf>,

    /// Where records are kept: `memory:`, `file:DIR`, `redis://…`, `redis-sentinel://…`, `redis-cluster://…`, `postgres://…`
    /// [default: `file:./onlyonce-data`]
    #[arg(long, value_name = "URL", help_heading = "Store")]
    store: Option<String>,

    /// A fast tier in front of `postgres://`: `redis://` or `rediss://`. It may lose anything without harm
    #[arg(long = "cache", value_name = "URL", help_heading = "Store")]
    fast_tier: Option<String>,

    /// Encrypt bodies and steps with the first key of this file (`onlyonce key encryption` makes one), read with any
    #[arg(long, value_name = "FILE", help_heading = "Store")]
    encryption_key_file: Option<PathBuf>,

    #[command(flatten)]
    admin: AdminArgs,

    /// Send spans and metrics to this OpenTelemetry collector (OTLP over HTTP), such as `http://127.0.0.1:4318` [default: none]
    #[arg(long, value_name = "URL", help_heading = "Operators")]
    otlp: Option<String>,

    /// One JSON object a line on standard error
    #[arg(long, help_heading = "Operators")]
    json_logs: bool,

    /// What is logged: info, debug, `onlyonce_http=debug`, … [default: info]
    #[arg(long, value_name = "FILTER", help_heading = "Operators")]
    log: Option<String>,

    #[command(flatten)]
    rules: RulesArgs,
}

/// The flags that are rules for every route that does not say otherwise.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rules")]
struct RulesArgs {
    /// Whose customs are followed: standard, ietf or stripe [default: standard]
    #[arg(long, value_name = "PROFILE")]
    profile: Option<Profile>,

    /// Refuse requests without a key
    #[arg(long)]
    required: bool,

    /// Methods that are protected; repeat for several [default: POST, PATCH]
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,

    /// Where the key is: `header:NAME` or `json:/pointer` [default: `header:Idempotency-Key`]
    #[arg(long, value_name = "SOURCE")]
    key: Option<KeySource>,

    /// Who asks: authorization, header:NAME, cookie:NAME, jwt:CLAIM, mtls or shared [default: authorization]
    #[arg(long, value_name = "RULE")]
    principal: Option<PrincipalRule>,

    /// The namespace of the keys [default: http]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// How bodies are compared: raw, json or multipart [default: raw]
    #[arg(long, value_name = "MODE")]
    body: Option<BodyMode>,

    /// How long a duplicate waits for the one that runs [default: 0s]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,

    /// How long an owner may work without renewing [default: 30s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,

    /// How long answers are kept, from completion [default: 24h]
    #[arg(long, value_name = "DURATION")]
    retention: Option<Span>,

    /// What to do when nobody knows whether the work happened: hold, seal, query or rerun [default: hold]
    #[arg(long, value_name = "POLICY")]
    unknown: Option<Unknown>,

    /// Under `--unknown query`: the path of the upstream that is asked by GET whether it happened, as in /by-key/{key}
    #[arg(long, value_name = "PATH")]
    query_url: Option<String>,

    /// When the store cannot be reached: closed (503) or open (run unprotected) [default: closed]
    #[arg(long, value_name = "HOW")]
    on_store_failure: Option<OnStoreFailure>,

    /// Enforce nothing, count and log what would have happened
    #[arg(long)]
    shadow: bool,
}

impl SettingsArgs {
    /// The layers that this process sees.
    pub(crate) fn into_sources(self) -> Sources {
        let file = self.config.clone();
        Sources { file, environment: environment(std::env::vars_os()), flags: self.into_file() }
    }

    fn into_file(self) -> File {
        let set = |flag: bool| flag.then_some(true);
        let mut file = File::default();
        file.proxy.upstream = self.upstream;
        file.proxy.listen = self.listen;
        file.proxy.auth_url = self.auth_url;
        file.proxy.drain_within = self.drain;
        file.proxy.upstream_within = self.upstream_within;
        file.proxy.upstream_ca = self.upstream_ca;
        file.tls.certificate = self.tls_certificate;
        file.tls.key = self.tls_key;
        file.tls.client_ca = self.tls_client_ca;
        file.store.url = self.store;
        file.store.fast_tier = self.fast_tier;
        file.store.encryption_key_file = self.encryption_key_file;
        file.admin = self.admin.into_section();
        file.send_to(self.otlp.as_deref());
        file.log.json = set(self.json_logs);
        file.log.filter = self.log;
        let rules = self.rules;
        file.defaults.profile = rules.profile;
        file.defaults.required = set(rules.required);
        file.defaults.methods = (!rules.method.is_empty()).then_some(rules.method);
        file.defaults.key = rules.key;
        file.defaults.principal = rules.principal;
        file.defaults.namespace = rules.namespace;
        file.defaults.body = rules.body;
        file.defaults.wait = rules.wait;
        file.defaults.lease = rules.lease;
        file.defaults.retention = rules.retention;
        file.defaults.unknown = rules.unknown;
        file.defaults.query_url = rules.query_url;
        file.defaults.on_store_failure = rules.on_store_failure;
        file.defaults.shadow = set(rules.shadow);
        file
    }
}

/// Variables that are text; one that is not cannot be a setting.
pub(crate) fn environment(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<(String, String)> {
    variables
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Starts logging as the configuration says, for every command that serves.
pub(crate) fn log_as_told(sources: &Sources) -> Result<(), Failure> {
    let config = sources.read().map_err(|error| start_failure(error.into()))?;
    let log = config.log();
    start_logging(log.json.unwrap_or_default(), log.filter.as_deref().unwrap_or("info"))
        .map_err(|error| Failure::Refused(format!("log.filter: {error}").into()))
}

pub(crate) fn run(args: ProxyArgs) -> Result<(), Failure> {
    let sources = args.settings.into_sources();
    log_as_told(&sources)?;
    let mut runtime = match args.threads {
        // One thread has nobody to share its tasks with, and need not be ready to.
        Some(1) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    if let Some(threads) = args.threads {
        runtime.worker_threads(threads.into());
    }
    if args.threads == Some(1) {
        // So much is taken up at a time that it is still at hand for the processor when it is sent on.
        runtime.max_io_events_per_tick(EVENTS_TOGETHER);
    }
    let runtime = runtime.enable_all().build().map_err(|error| Failure::System(Box::new(error)))?;
    runtime.block_on(async {
        // ORDER: before the address is told, so that whoever reads it can end us properly.
        let signals = Signals::listen().map_err(|error| Failure::System(Box::new(error)))?;
        let sidecar = Sidecar::start(sources).await.map_err(start_failure)?;
        write_line(&format!("listening on {}", sidecar.address()))?;
        if let Some(address) = sidecar.admin_address() {
            write_line(&format!("admin on {address}"))?;
        }
        write_line(&sidecar.promise().to_string())?;
        Box::pin(sidecar.run(signals)).await;
        Ok(())
    })
}

/// The exit code that fits.
pub(crate) fn start_failure(error: StartError) -> Failure {
    match error {
        StartError::Store { source, .. } => source.into(),
        StartError::Config(error) => match error.unreadable_file() {
            Some((path, source)) => {
                let source = io::Error::new(source.kind(), source.to_string());
                Failure::Unreadable { name: path.display().to_string(), source }
            }
            None => Failure::Refused(Box::new(error)),
        },
        error @ (StartError::Listen { .. } | StartError::System(_) | StartError::Engine(_)) => {
            Failure::System(Box::new(error))
        }
        error => Failure::Refused(Box::new(error)),
    }
}
