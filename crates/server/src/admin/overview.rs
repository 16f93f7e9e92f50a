//! How things stand, in one answer: what the dashboard asks for every second.

use onlyonce_core::store::Stats;
use onlyonce_core::sweeper::Sweeping;
use serde_json::{Map, Value, json};

use super::Admin;
use crate::metrics::{Figures, whole};
use crate::operator::{stats, time};

impl Admin {
    pub(super) async fn overview(&self) -> Value {
        let stored = self.census.take().await;
        let figures = self.census.metrics().figures();
        let millis = |part| figures.quantile("onlyonce_store_seconds", part).map(|seconds| seconds * 1000.0);
        let at_work = |name| figures.plain(name).map_or(0, whole);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "started_at": time(self.started_at),
            "command": self.ground.command,
            "namespaces": self.operator.places().iter().map(|place| &*place.name).collect::<Vec<_>>(),
            "promise": (self.ground.promise)(),
            "configuration": (self.ground.configuration)(),
            "sweep": self.sweep(stored.as_ref()),
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

    /// How sweeping goes. Of several stores the one that fares worst counts, so that none hides another's trouble.
    fn sweep(&self, stored: Option<&Stats>) -> Value {
        let stores: Vec<_> = self.ground.sweeping.iter().map(Sweeping::now).collect();
        let last_success: Option<Vec<_>> = stores.iter().map(|state| state.last_success).collect();
        let oldest_expired = stored.and_then(|stored| stored.oldest_expired);
        json!({
            "elected": stores.iter().all(|state| state.elected),
            "last_success_at": last_success.and_then(|all| all.into_iter().min()).map(time),
            "failures": stores.iter().map(|state| state.failures).sum::<u64>(),
            "removed_total": stores.iter().map(|state| state.removed_total).sum::<u64>(),
            "rows_per_second": stores.iter().map(|state| state.rows_per_second).sum::<f64>(),
            "oldest_expired_ms": oldest_expired.map(crate::claims::millis),
        })
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
    figures.by_label(name).into_iter().map(|(label, number)| (label, number.into())).collect()
}

/// How many answers of the store came within each bound, in milliseconds; the last has none. Between two of these lies
/// how long it takes now.
fn buckets(figures: &Figures) -> Vec<Value> {
    let buckets = figures.buckets("onlyonce_store_seconds").into_iter();
    let bound = |seconds: f64| seconds.is_finite().then_some(seconds * 1000.0);
    buckets.map(|(seconds, count)| json!([bound(seconds), whole(count)])).collect()
}
