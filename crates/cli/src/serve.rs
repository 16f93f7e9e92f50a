//! `onlyonce serve`: the claims API, for any language, job runner or cron.

use std::path::PathBuf;

use clap::Args;
use onlyonce_http::rules::{Span, Unknown};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{Claims, ListenAddress, Signals};

use crate::admin::AdminArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::proxy::{environment, log_as_told, start_failure};

/// Answer "may I run this?" over HTTP, for any language
///
/// POST /v1/claims asks for a key; the answer is a grant, the recorded outcome, or that somebody else runs it.
/// /openapi.json describes every endpoint.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce serve --listen 127.0.0.1:8090 --store file:./onlyonce-data
  curl -s localhost:8090/v1/claims -H 'content-type: application/json' \\
       -d '{\"key\": \"order-7\", \"owner\": \"'$(cat /proc/sys/kernel/random/uuid)'\"}'

Off loopback a file of tokens is required; see docs/claims-api.md for its form.
SIGTERM finishes what runs, then stops. Leases of granted claims hold across a restart.

",
    exit_codes!()
))]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML); flags are fields of [serve], [tls] and [store] there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where to listen: ADDRESS:PORT or unix:PATH [default: 127.0.0.1:8090]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<ListenAddress>,

    /// The file of the tokens: who may ask, in which namespace, for what
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,

    /// Where records are kept: `memory:`, `file:DIR`, `redis://…` or `postgres://…` [default: `file:./onlyonce-data`]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// A fast tier in front of `postgres://`: `redis://` or `rediss://`
    #[arg(long = "cache", value_name = "URL")]
    fast_tier: Option<String>,

    /// Encrypt bodies and steps with the first key of this file (`onlyonce key encryption` makes one), read with any
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,

    /// The lease of claims that name none [default: 30s]
    #[arg(long, value_name = "DURATION")]
    lease: Option<Span>,

    /// How long outcomes are kept when a claim does not say [default: 24h]
    #[arg(long, value_name = "DURATION")]
    retention: Option<Span>,

    /// What to do when nobody knows whether the work happened, for claims that do not say [default: hold]
    #[arg(long, value_name = "POLICY")]
    unknown: Option<Unknown>,

    /// How many may wait for one record [default: 1000]
    #[arg(long, value_name = "N")]
    waiters_max: Option<usize>,

    /// Connections at a time [default: 10000]
    #[arg(long, value_name = "N")]
    connections_max: Option<usize>,

    /// The certificate and its chain (PEM): the listener then speaks TLS only
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,

    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Clients must show a certificate that one of these signed (PEM)
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,

    /// How long a shutdown waits for what runs [default: 30s]
    #[arg(long, value_name = "DURATION")]
    drain: Option<Span>,

    #[command(flatten)]
    admin: AdminArgs,

    /// Send spans and metrics to this OpenTelemetry collector (OTLP over HTTP), such as `http://127.0.0.1:4318` [default: none]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,

    /// One JSON object a line on standard error
    #[arg(long)]
    json_logs: bool,

    /// What is logged: info, debug, … [default: info]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

impl ServeArgs {
    fn into_sources(self) -> Sources {
        let mut flags = File::default();
        flags.serve.listen = self.listen;
        flags.serve.tokens_file = self.tokens;
        flags.serve.lease = self.lease;
        flags.serve.retention = self.retention;
        flags.serve.unknown = self.unknown;
        flags.serve.waiters_max = self.waiters_max;
        flags.serve.connections_max = self.connections_max;
        flags.serve.drain_within = self.drain;
        flags.tls.certificate = self.tls_certificate;
        flags.tls.key = self.tls_key;
        flags.tls.client_ca = self.tls_client_ca;
        flags.store.url = self.store;
        flags.store.fast_tier = self.fast_tier;
        flags.admin = self.admin.into_section();
        flags.send_to(self.otlp.as_deref());
        flags.store.encryption_key_file = self.encryption_key_file;
        flags.log.json = self.json_logs.then_some(true);
        flags.log.filter = self.log;
        Sources { file: self.config, environment: environment(std::env::vars_os()), flags }
    }
}

pub(crate) fn run(args: ServeArgs) -> Result<(), Failure> {
    let sources = args.into_sources();
    log_as_told(&sources)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System(Box::new(error)))?;
    runtime.block_on(async {
        // ORDER: before the address is told, so that whoever reads it can end us properly.
        let signals = Signals::listen().map_err(|error| Failure::System(Box::new(error)))?;
        let claims = Box::pin(Claims::start(&sources)).await.map_err(start_failure)?;
        write_line(&format!("listening on {}", claims.address()))?;
        if let Some(address) = claims.admin_address() {
            write_line(&format!("admin on {address}"))?;
        }
        write_line(claims.promise())?;
        claims.run(signals).await;
        Ok(())
    })
}
