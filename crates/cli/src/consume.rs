//! `onlyonce consume`: messages of a broker, posted once each to a handler in any language.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use onlyonce_http::rules::{Span, Unknown};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{Bridge, BridgeError, Signals, StartError};
use tokio::sync::oneshot;

use crate::admin::AdminArgs;
use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::proxy::{environment, log_as_told, start_failure};

/// How often progress is shown on a terminal, and written to the log elsewhere.
const ON_A_TERMINAL: Duration = Duration::from_secs(1);
const IN_THE_LOG: Duration = Duration::from_secs(30);

/// Deliver each message of a broker once to an HTTP handler
///
/// Each message is posted with `Idempotency-Key`, `Onlyonce-Fence` and `Onlyonce-Attempt`. 2xx: done. 408, 409, 425, 429,
/// 5xx and time-outs: tried again, then to the dead letters. Other 4xx: to the dead letters at once.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce consume --source redis-stream://127.0.0.1:6379/orders --handler http://127.0.0.1:3000/orders

Sources: redis-stream://HOST:PORT/STREAM, nats://HOST:PORT/STREAM, amqp://HOST:PORT/VHOST?queue=QUEUE, and
kafka://HOST:PORT/TOPIC in builds with the feature `kafka`.
SIGTERM finishes what runs, then stops.

",
    exit_codes!()
))]
pub(crate) struct ConsumeArgs {
    /// The configuration file (TOML); flags are fields of [consume] and [store] there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where messages come from
    #[arg(long, value_name = "URL")]
    source: Option<String>,

    /// The URL that each message is posted to
    #[arg(long, value_name = "URL")]
    handler: Option<String>,

    /// Whose records these are; also the group at the broker [default: onlyonce]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Where ids are looked for: header:NAME, cloudevents, json:POINTER, position; repeat for several
    #[arg(long, value_name = "RULE")]
    id: Vec<String>,

    /// How many messages are handled at a time [default: 64]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,

    /// How often a message is tried before it goes to the dead letters [default: 5]
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// When nobody knows whether the handler did it: rerun, hold or seal [default: rerun]
    #[arg(long, value_name = "POLICY")]
    unknown: Option<Unknown>,

    /// How long a handled message is remembered [default: 30d]
    #[arg(long, value_name = "DURATION")]
    retention: Option<Span>,

    /// How long the handler may take to answer [default: 60s]
    #[arg(long, value_name = "DURATION")]
    handler_within: Option<Span>,

    /// Where records are kept: `memory:`, `file:DIR`, `redis://…` or `postgres://…` [default: `file:./onlyonce-data`]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// A fast tier in front of `postgres://`: `redis://` or `rediss://`
    #[arg(long = "cache", value_name = "URL")]
    fast_tier: Option<String>,

    /// Encrypt bodies and steps with the first key of this file (`onlyonce key encryption` makes one), read with any
    #[arg(long, value_name = "FILE")]
    encryption_key_file: Option<PathBuf>,

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

impl ConsumeArgs {
    fn into_sources(self) -> Sources {
        let mut flags = File::default();
        flags.consume.source = self.source;
        flags.consume.handler = self.handler;
        flags.consume.name = self.name;
        flags.consume.id = (!self.id.is_empty()).then_some(self.id);
        flags.consume.concurrency = self.concurrency;
        flags.consume.attempts_max = self.attempts;
        flags.consume.unknown = self.unknown;
        flags.consume.retention = self.retention;
        flags.consume.handler_within = self.handler_within;
        flags.store.url = self.store;
        flags.store.fast_tier = self.fast_tier;
        flags.store.encryption_key_file = self.encryption_key_file;
        flags.admin = self.admin.into_section();
        flags.send_to(self.otlp.as_deref());
        flags.log.json = self.json_logs.then_some(true);
        flags.log.filter = self.log;
        Sources { file: self.config, environment: environment(std::env::vars_os()), flags }
    }
}

pub(crate) fn run(args: ConsumeArgs) -> Result<(), Failure> {
    let sources = args.into_sources();
    log_as_told(&sources)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System(Box::new(error)))?;
    runtime.block_on(async {
        // ORDER: before anything is told, so that whoever reads it can end us properly.
        let signals = Signals::listen().map_err(|error| Failure::System(Box::new(error)))?;
        let (mut stopped, hurried) = told(signals);
        let bridge = tokio::select! {
            bridge = Box::pin(Bridge::start(&sources)) => bridge.map_err(failure)?,
            _ = &mut stopped => return Ok(()),
        };
        write_line("consuming")?;
        if let Some(address) = bridge.admin_address() {
            write_line(&format!("admin on {address}"))?;
        }
        write_line(bridge.promise())?;
        let progress = tokio::spawn(show_progress(bridge.source(), bridge.counts()));
        let counts = bridge.counts();
        let stop = async move { drop(stopped.await) };
        let ended = tokio::select! {
            ended = bridge.run_until(stop) => ended,
            _ = hurried => {
                tracing::warn!("told twice to stop: what runs is left to its lease");
                Ok(())
            }
        };
        progress.abort();
        let _ = progress.await;
        let tally = counts.now();
        tracing::info!(
            done = tally.done,
            duplicates = tally.duplicates,
            retried = tally.retried,
            dead_lettered = tally.dead_lettered,
            "stopped"
        );
        ended.map_err(failure)
    })
}

/// Resolve at the first signal and at the second.
fn told(mut signals: Signals) -> (oneshot::Receiver<()>, oneshot::Receiver<()>) {
    let ((stop, stopped), (hurry, hurried)) = (oneshot::channel(), oneshot::channel());
    tokio::spawn(async move {
        signals.received().await;
        let _ = stop.send(());
        signals.received().await;
        let _ = hurry.send(());
    });
    (stopped, hurried)
}

/// One line that is written over on a terminal; elsewhere the log.
async fn show_progress(source: Arc<dyn onlyonce_inbox::Source>, counts: Arc<onlyonce_inbox::Counts>) {
    let on_a_terminal = std::io::stderr().is_terminal();
    let mut every = tokio::time::interval(if on_a_terminal { ON_A_TERMINAL } else { IN_THE_LOG });
    every.tick().await;
    let mut last = 0;
    loop {
        every.tick().await;
        let lag = source.lag().await.ok().flatten();
        let tally = counts.now();
        let rate = (tally.done - last) / every.period().as_secs().max(1);
        last = tally.done;
        let waiting = lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string());
        if on_a_terminal {
            let line = format!(
                "\r\x1b[K{} done ({rate}/s), {} duplicates, {} retried, {} dead letters, {waiting} waiting",
                tally.done, tally.duplicates, tally.retried, tally.dead_lettered
            );
            let _ = std::io::stderr().write_all(line.as_bytes());
        } else {
            tracing::info!(
                done = tally.done,
                rate,
                duplicates = tally.duplicates,
                retried = tally.retried,
                dead_lettered = tally.dead_lettered,
                waiting,
                "progress"
            );
        }
    }
}

/// The exit code that fits.
fn failure(error: BridgeError) -> Failure {
    match error {
        BridgeError::Config(error) => start_failure(StartError::Config(error)),
        BridgeError::Store(error) => error.into(),
        BridgeError::Admin(error) => start_failure(error),
        BridgeError::Source(error) if !error.is_retryable() => Failure::Refused(Box::new(error)),
        error @ BridgeError::Source(_) => Failure::Unavailable(Box::new(error)),
        error => Failure::Refused(Box::new(error)),
    }
}
