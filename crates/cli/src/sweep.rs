//! `onlyonce sweep`: removes expired records once, for cron. Whoever sweeps the store already is left to it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use onlyonce::Fence;
use onlyonce::clock::{Clock as _, SystemClock};
use onlyonce::store::Swept;
use onlyonce::sweeper::{Ended, Sweeper, Taken};
use onlyonce_http::rules::Span;
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{Signals, sweeper_alone};
use serde_json::{Value, json};

use crate::args::exit_codes;
use crate::failure::Failure;
use crate::output::write_line;
use crate::proxy::{environment, start_failure};
use crate::records::progress::bar;
use crate::times;

/// How often a process that waits for its turn looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Remove expired records, once
///
/// Processes that use a store sweep it by themselves, one of them at a time: this is for stores that nobody has open, and
/// for those whose processes say `[sweep] enabled = false`. While another process sweeps, nothing is done, and the exit
/// code is 75. An interrupt ends it after the batch under way.
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "\
Example:
  onlyonce sweep --store redis://127.0.0.1:6379
  17 3 * * *  onlyonce sweep --config /etc/onlyonce.toml --wait 10m --json

",
    exit_codes!()
))]
pub(crate) struct SweepArgs {
    /// The store: `file:DIR`, `redis://…` or `postgres://…` [default: that of the configuration]
    #[arg(long, value_name = "URL")]
    store: Option<String>,

    /// The configuration file, for its `[store]` and `[sweep]`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Sweep one batch only, and say whether there is more
    #[arg(long)]
    once: bool,

    /// How many records one batch touches at the most [default: 500]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// The shortest pause between two batches [default: 10ms]
    #[arg(long, value_name = "DURATION")]
    pause: Option<Span>,

    /// How long to wait for a process that sweeps to end [default: not at all]
    #[arg(long, value_name = "DURATION")]
    wait: Option<Span>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl SweepArgs {
    fn sources(&self) -> Sources {
        let mut flags = File::default();
        flags.store.url.clone_from(&self.store);
        flags.sweep.batch = self.batch;
        flags.sweep.pause = self.pause;
        Sources { file: self.config.clone(), environment: environment(std::env::vars_os()), flags }
    }
}

pub(crate) fn run(args: &SweepArgs) -> Result<(), Failure> {
    let sources = args.sources();
    check(&sources)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::System(Box::new(error)))?;
    runtime.block_on(async {
        let mut signals = Signals::listen().map_err(|error| Failure::System(Box::new(error)))?;
        let sweeper = Box::pin(sweeper_alone(&sources)).await.map_err(start_failure)?;
        let stopped = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stopped);
        tokio::spawn(async move {
            signals.received().await;
            told.store(true, Ordering::Relaxed);
        });
        sweep(args, &sweeper, &stopped).await
    })
}

/// A store that is not there has nothing to sweep, and must not come to be there.
fn check(sources: &Sources) -> Result<(), Failure> {
    let config = sources.read().map_err(|error| start_failure(error.into()))?;
    let url = config.store_url().unwrap_or_default();
    match url.split_once(':') {
        Some(("memory", _)) => {
            Err(Failure::Usage("memory: is inside a process, which sweeps it by itself".to_owned()))
        }
        Some(("file", folder)) if !Path::new(folder).join("meta").is_file() => {
            let source = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no store in it");
            Err(Failure::Unreadable { name: folder.to_owned(), source })
        }
        _ => Ok(()),
    }
}

async fn sweep(args: &SweepArgs, sweeper: &Sweeper, stopped: &AtomicBool) -> Result<(), Failure> {
    let clock = SystemClock::new();
    let (begun, patience) = (clock.now(), args.wait.map_or(Duration::ZERO, Span::get));
    loop {
        let bar = bar(0, "records swept");
        let batches = args.once.then_some(1);
        let told = |swept: &Swept| {
            bar.inc((swept.removed + swept.dropped) as u64);
            // How many have expired is known when they are gone.
            bar.set_length(bar.position());
            if stopped.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let ended = sweeper.sweep_once(batches, told).await;
        bar.finish_and_clear();
        let took = begun.until(clock.now());
        match ended? {
            Ended::Swept(swept) => return write_line(&told_of(swept, took, args.json)),
            Ended::Lost(swept) => {
                write_line(&told_of(swept, took, args.json))?;
                return Err(Failure::Taken(
                    "the grant to sweep was lost: another process goes on".to_owned(),
                ));
            }
            Ended::Taken(_) if took < patience && !stopped.load(Ordering::Relaxed) => {
                clock.sleep(LOOK_EVERY.min(patience.saturating_sub(took))).await;
            }
            Ended::Taken(taken) => {
                if args.json {
                    write_line(&json!({ "swept": false, "taken": shown(&taken) }).to_string())?;
                }
                return Err(Failure::Taken(told_who(&taken)));
            }
        }
    }
}

fn told_of(swept: Swept, took: Duration, json: bool) -> String {
    let Swept { removed, dropped, made_unknown, more, .. } = swept;
    if json {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let told = json!({
            "swept": true, "removed": removed, "dropped": dropped, "made_unknown": made_unknown, "more": more,
            "took_ms": took,
        });
        return told.to_string();
    }
    let rest = if more { "there is more" } else { "nothing is left" };
    format!("{} removed, {made_unknown} made unknown; {rest}", removed + dropped)
}

fn shown(taken: &Taken) -> Value {
    let left = u64::try_from(taken.left.as_millis()).unwrap_or(u64::MAX);
    json!({ "fence": taken.fence.map(Fence::get), "since": taken.since.map(times::show), "left_ms": left })
}

fn told_who(taken: &Taken) -> String {
    let fence = taken.fence.map(|fence| format!(" under fence {fence}")).unwrap_or_default();
    let since = taken.since.map(|since| format!(" since {}", times::show(since))).unwrap_or_default();
    format!(
        "another process sweeps this store{fence}{since} (its log and onlyonce_sweep_fence name it); its grant lasts {:.0} s \
         unless it is renewed",
        taken.left.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use onlyonce::clock::Timestamp;

    use super::*;

    #[test]
    fn what_was_done_and_who_is_at_it_are_told() {
        let swept = Swept { removed: 2, dropped: 3, made_unknown: 1, ..Swept::default() };
        assert_eq!(told_of(swept, Duration::ZERO, false), "5 removed, 1 made unknown; nothing is left");
        let told: Value = serde_json::from_str(&told_of(swept, Duration::from_secs(2), true)).unwrap();
        assert_eq!(
            (&told["dropped"], &told["took_ms"], &told["more"]),
            (&json!(3), &json!(2000), &json!(false))
        );
        let since = Some(Timestamp::from_millis(1_794_715_740_000));
        let taken = Taken { fence: Fence::new(7), since, left: Duration::from_secs(12) };
        let told = told_who(&taken);
        assert!(told.contains("fence 7 since 2026-11-15T04:09:00Z") && told.contains("12 s"), "{told}");
        assert_eq!(shown(&taken)["left_ms"], 12_000);
    }
}
