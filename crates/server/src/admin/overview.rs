//! How things stand, in one answer: what the dashboard asks for every second.

use serde_json::{Map, Value, json};

use super::Admin;
use super::figures::{Figures, whole};
use crate::clock::Stopwatch;
use crate::operator::{stats, time};
use onlyonce_core::Timestamp;

/// What sweeps had done when it was last asked, for a rate.
#[derive(Debug, Default)]
pub(super) struct SweptBefore {
    at: Option<Stopwatch>,
    records: u64,
    rate: f64,
}

impl Admin {
    pub(super) async fn overview(&self) -> Value {
        let stored = self.count().await;
        let figures = Figures::new(self.metrics.render());
        let oldest_expired = stored.and_then(|stored| stored.oldest_expired).map(crate::claims::millis);
        let millis = |part| figures.quantile("onlyonce_store_seconds", part).map(|seconds| seconds * 1000.0);
        let at_work = |name| figures.plain(name).map_or(0, whole);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": time(self.started_at),
            "command": self.ground.command,
            "namespaces": self.operator.places().iter().map(|place| &*place.name).collect::<Vec<_>>(),
            "promise": (self.ground.promise)(),
            "configuration": (self.ground.configuration)(),
            "sweep": {
                // Figures of an election are there when there is one.
                "elected": figures.plain("onlyonce_sweep_elected").is_none_or(|elected| elected > 0.0),
                "last_success_at": figures.plain("onlyonce_last_sweep_timestamp_seconds").map(at_seconds),
                "failures": failures(&figures),
                "removed_total": removed(&figures),
                "rows_per_second": self.swept_per_second(removed(&figures)).await,
                "oldest_expired_ms": oldest_expired,
            },
            "answers": counts(&figures, "onlyonce_claims_total"),
            "endings": counts(&figures, "onlyonce_endings_total"),
            "running": at_work("onlyonce_running"),
            "waiters": at_work("onlyonce_waiters"),
            "store_ms": { "p50": millis(0.5), "p99": millis(0.99) },
            "store_buckets": buckets(&figures),
            "stats": stored.as_ref().map(stats),
            "warnings": self.warnings(stored.is_some()),
        })
    }

    /// How fast records were removed between this question and the one before; as it was, when that was just now.
    async fn swept_per_second(&self, records: u64) -> f64 {
        let mut before = self.swept.lock().await;
        let elapsed = before.at.map(|at| at.elapsed().as_secs_f64());
        match elapsed {
            Some(elapsed) if elapsed < 0.5 => return before.rate,
            Some(elapsed) => {
                let removed = u32::try_from(records.saturating_sub(before.records)).unwrap_or(u32::MAX);
                before.rate = f64::from(removed) / elapsed;
            }
            None => {}
        }
        (before.at, before.records) = (Some(Stopwatch::start()), records);
        before.rate
    }

    fn warnings(&self, is_counted: bool) -> Vec<String> {
        let mut warnings = self.ground.warnings.clone();
        warnings.extend(self.ground.sweeping.iter().flat_map(|sweeping| sweeping.now().warnings));
        if self.stopping.is_cancelled() {
            warnings.push("stopping: no new work is taken".to_owned());
        }
        if !is_counted {
            warnings.push("the store has not said how much it holds".to_owned());
        }
        if self.operator.audit().is_none() {
            warnings.push("no audit file is named ([admin] audit): commands are refused".to_owned());
        }
        warnings
    }
}

fn counts(figures: &Figures, name: &str) -> Map<String, Value> {
    figures.by_label(name).into_iter().map(|(label, number)| (label.to_owned(), number.into())).collect()
}

/// How many answers of the store came within each bound, in milliseconds; the last has none. Between two of these lies
/// how long it takes now.
fn buckets(figures: &Figures) -> Vec<Value> {
    let buckets = figures.buckets("onlyonce_store_seconds").into_iter();
    let bound = |seconds: f64| seconds.is_finite().then_some(seconds * 1000.0);
    buckets.map(|(seconds, count)| json!([bound(seconds), whole(count)])).collect()
}

fn failures(figures: &Figures) -> u64 {
    let by_result = figures.by_label("onlyonce_sweeps_total");
    by_result.iter().find(|(result, _)| *result == "failed").map_or(0, |(_, number)| *number)
}

/// What is gone from the store; records that became unknown are not.
fn removed(figures: &Figures) -> u64 {
    let swept = figures.by_label("onlyonce_swept_total");
    swept.iter().filter(|(what, _)| *what != "made-unknown").map(|(_, number)| number).sum()
}

fn at_seconds(seconds: f64) -> String {
    time(Timestamp::from_millis(whole(seconds * 1000.0)))
}
