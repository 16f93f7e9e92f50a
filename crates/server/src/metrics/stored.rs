//! The figures of one store: what it holds, and how its sweeping goes.
//!
//! `serve` has a store for each namespace. Each has its own series, or the trouble of one would be hidden by the health of
//! another. Namespaces are those of the tokens file: nobody outside can make their number grow.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge};
use onlyonce_core::store::{Stats, Swept};
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::sweeper::{Observer, SweepState};
use onlyonce_core::{Fence, StoreError};

use super::{Metrics, count};
use crate::clock;

/// Counts for one store.
#[derive(Debug, Clone)]
pub(crate) struct StoreFigures {
    metrics: Arc<Metrics>,
    /// Where there may be others.
    namespace: Option<Arc<str>>,
}

impl StoreFigures {
    pub(crate) fn new(metrics: &Arc<Metrics>, namespace: Option<&Arc<str>>) -> Self {
        Self { metrics: Arc::clone(metrics), namespace: namespace.cloned() }
    }

    /// How much is stored.
    pub(crate) fn stored(&self, stats: &Stats) {
        let states = [
            ("in-flight", stats.in_flight),
            ("completed", stats.completed),
            ("released", stats.released),
            ("unknown", stats.unknown),
        ];
        for (state, records) in states {
            self.gauge("onlyonce_records", Some(("state", state))).set(count(records));
        }
        self.gauge("onlyonce_records_unreadable", None).set(count(stats.unreadable));
        self.gauge("onlyonce_store_bytes", None).set(count(stats.bytes));
        self.gauge("onlyonce_oldest_expired_seconds", None)
            .set(stats.oldest_expired.unwrap_or_default().as_secs_f64());
    }

    /// How much of each bound is used.
    fn grown(&self, growth: &Growth) {
        for used in growth.used() {
            self.gauge("onlyonce_store_used_ratio", Some(("bound", used.what))).set(used.ratio());
        }
    }

    fn gauge(&self, name: &'static str, label: Option<(&'static str, &str)>) -> Gauge {
        self.metrics.gauge(name, &self.labels(label))
    }

    fn counter(&self, name: &'static str, label: (&'static str, &str)) -> Counter {
        self.metrics.counter(name, &self.labels(Some(label)))
    }

    fn labels<'l>(&'l self, label: Option<(&'static str, &'l str)>) -> Vec<(&'static str, &'l str)> {
        let namespace = self.namespace.as_deref().map(|namespace| ("namespace", namespace));
        label.into_iter().chain(namespace).collect()
    }
}

impl Observer for StoreFigures {
    fn elected(&self, fence: Option<Fence>) {
        self.gauge("onlyonce_sweep_elected", None).set(f64::from(u8::from(fence.is_some())));
        if let Some(fence) = fence {
            self.gauge("onlyonce_sweep_fence", None).set(count(fence.get()));
        }
    }

    fn swept(&self, swept: &Swept, _: Duration, state: &SweepState) {
        let parts =
            [("removed", swept.removed), ("dropped", swept.dropped), ("made-unknown", swept.made_unknown)];
        for (what, records) in parts {
            self.counter("onlyonce_swept_total", ("what", what)).increment(records as u64);
        }
        self.counter("onlyonce_sweeps_total", ("result", "ok")).increment(1);
        self.gauge("onlyonce_last_sweep_timestamp_seconds", None).set(clock::seconds_since_1970());
        self.gauge("onlyonce_sweep_rows_per_second", None).set(state.rows_per_second);
    }

    fn failed(&self, _: &StoreError) {
        self.counter("onlyonce_sweeps_total", ("result", "failed")).increment(1);
    }

    fn counted(&self, stats: &Stats, growth: &Growth) {
        self.stored(stats);
        self.grown(growth);
        self.counter("onlyonce_store_counts_total", ("result", "ok")).increment(1);
    }

    fn uncounted(&self, _: &StoreError) {
        self.counter("onlyonce_store_counts_total", ("result", "failed")).increment(1);
    }
}

/// One of everything that is counted here.
#[cfg(test)]
pub(super) fn show_everything(figures: &StoreFigures) {
    use onlyonce_core::StoreErrorKind;
    use onlyonce_core::sweeper::growth::Bounds;

    let failure = StoreError::new(StoreErrorKind::TimedOut, "counting");
    figures.elected(Fence::new(7));
    figures.swept(&Swept::default(), Duration::ZERO, &SweepState::default());
    figures.failed(&failure);
    figures.counted(&Stats::default(), &Growth::new(Bounds { records_max: Some(1), bytes_max: Some(1) }));
    figures.uncounted(&failure);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_namespace_says_is_not_hidden_by_another() {
        let metrics = Arc::new(Metrics::new().expect("the buckets are in order"));
        let of = |name: &str| StoreFigures::new(&metrics, Some(&name.into()));
        let (sick, well) = (of("sick"), of("well"));
        sick.elected(None);
        sick.stored(&Stats { unknown: 9, oldest_expired: Some(Duration::from_hours(2)), ..Stats::default() });
        well.elected(Fence::new(1));
        well.stored(&Stats::default());
        StoreFigures::new(&metrics, None).stored(&Stats::default());
        let text = metrics.render();
        for line in [
            "onlyonce_sweep_elected{namespace=\"sick\"} 0",
            "onlyonce_sweep_elected{namespace=\"well\"} 1",
            "onlyonce_records{state=\"unknown\",namespace=\"sick\"} 9",
            "onlyonce_records{state=\"unknown\",namespace=\"well\"} 0",
            "onlyonce_records{state=\"unknown\"} 0",
            "onlyonce_oldest_expired_seconds{namespace=\"sick\"} 7200",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
    }
}
