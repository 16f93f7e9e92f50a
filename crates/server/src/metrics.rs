//! Figures for Prometheus: what happened, how often, and how long the store took.
//!
//! Labels come from fixed sets, from the paths of routes and from the namespaces that have tokens: never from keys,
//! principals or requests, so that nobody outside can make the number of series grow. There is no global recorder: two
//! sidecars in one process count apart.

#[cfg(test)]
mod deployed;
mod observed;
mod series;
mod stored;
mod text;
mod timed;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Recorder as _, SharedString, Unit};
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use onlyonce_core::store::tiered::TierFigures;
use onlyonce_core::{Fence, RecordId, observe};
use onlyonce_http::observe as http;
use onlyonce_inbox::Tally;

use self::series::Series;
use crate::clock;
use crate::events::Ring;

pub(crate) use observed::Observed;
pub(crate) use stored::StoreFigures;
pub(crate) use text::{Family, Figures, Kind, Sample, whole};
pub(crate) use timed::Timed;

const METADATA: Metadata<'static> = Metadata::new("onlyonce", Level::INFO, None);

/// From a quick store in this process to one that is about to be given up.
const SECONDS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
/// Close to 1 the question is whether retention is too short; close to 0 whether it is longer than it need be.
const RATIOS: [f64; 11] = [0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0];

/// How often what was observed is put into its buckets, so that it takes no room when nobody reads it.
const TIDY_UP_EVERY: Duration = Duration::from_secs(5);

const DUPLICATE_AGE: &str = "onlyonce_duplicate_age_ratio";
const STORE_SECONDS: &str = "onlyonce_store_seconds";

/// Everything that is counted, with its help text. The table of `docs/operating.md` is checked against it.
pub(crate) const NAMES: [(&str, &str); 27] = [
    ("onlyonce_claims_total", "Claims by their answer"),
    ("onlyonce_endings_total", "What became of grants"),
    ("onlyonce_requests_total", "Requests by route and by what the layer did with them"),
    ("onlyonce_store_failures_total", "Failures of the store by kind, as the engine saw them"),
    (STORE_SECONDS, "How long the store took to answer, by operation"),
    (
        DUPLICATE_AGE,
        "Age of suppressed duplicates as a part of retention: close to 1, retention is too short",
    ),
    ("onlyonce_running", "Executions and what else the engine is at in this process"),
    ("onlyonce_waiters", "Duplicates that wait for the one that runs, in this process"),
    ("onlyonce_records", "Records in the store by state"),
    ("onlyonce_records_unreadable", "Records in the store whose state cannot be read"),
    ("onlyonce_store_bytes", "Bytes the records take, as far as the store can tell"),
    ("onlyonce_oldest_expired_seconds", "How long the record expired longest has been waiting for a sweep"),
    ("onlyonce_swept_total", "What sweeps did with records"),
    ("onlyonce_sweeps_total", "Sweeps by result"),
    ("onlyonce_last_sweep_timestamp_seconds", "When a sweep last succeeded"),
    ("onlyonce_sweep_elected", "1 while this process is the one that sweeps the store"),
    ("onlyonce_sweep_fence", "The fence of the grant under which it sweeps, or last did"),
    (
        "onlyonce_sweep_rows_per_second",
        "How fast the last pass that removed anything was, its pauses included",
    ),
    ("onlyonce_store_counts_total", "Counts of what is stored by result"),
    ("onlyonce_store_used_ratio", "How much of a bound of the store is used"),
    ("onlyonce_tier_claims_total", "Claims that a tier in front of the store answered or passed on"),
    ("onlyonce_messages_total", "Deliveries by what became of them"),
    ("onlyonce_messages_waiting", "Messages that wait at the source"),
    ("onlyonce_lag_unknown", "1 while the source does not say how many messages wait"),
    ("onlyonce_spans_total", "Spans by what became of them; nothing is counted where nothing is traced"),
    ("onlyonce_metric_exports_total", "Times that figures were sent to a collector, by result"),
    ("onlyonce_build_info", "The version that runs"),
];

/// The figures of one process. Cheap to record into, whether or not anybody reads them.
pub(crate) struct Metrics {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
    /// What the engine saw, by name and label.
    seen: Series<Counter>,
    /// How long the store took, by operation and result.
    took: Series<Histogram>,
    /// What the layer did, by route and answer.
    did: Series<Counter>,
    /// How old duplicates are.
    ages: OnceLock<Histogram>,
    /// The last events, for whoever looks on.
    events: Arc<Ring>,
    /// When counting began, in nanoseconds since 1970.
    since: u64,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, BuildError> {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Full(STORE_SECONDS.to_owned()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full(DUPLICATE_AGE.to_owned()), &RATIOS)?
            .build_recorder();
        for (name, help) in NAMES {
            let help = SharedString::const_str(help);
            match name {
                STORE_SECONDS => recorder.describe_histogram(name.into(), Some(Unit::Seconds), help),
                DUPLICATE_AGE => recorder.describe_histogram(name.into(), None, help),
                _ if name.ends_with("_total") => recorder.describe_counter(name.into(), None, help),
                _ => recorder.describe_gauge(name.into(), None, help),
            }
        }
        let metrics = Self {
            handle: recorder.handle(),
            recorder,
            seen: Series::new(),
            took: Series::new(),
            did: Series::new(),
            ages: OnceLock::new(),
            events: Arc::new(Ring::new()),
            since: clock::nanos_since_1970(),
        };
        metrics.gauge("onlyonce_build_info", &[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        Ok(metrics)
    }

    /// What was seen last.
    pub(crate) fn events(&self) -> Arc<Ring> {
        Arc::clone(&self.events)
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// The same, to be read here.
    pub(crate) fn figures(&self) -> Figures {
        Figures::new(self.render())
    }

    /// When counting began, in nanoseconds since 1970.
    pub(crate) const fn since(&self) -> u64 {
        self.since
    }

    /// Puts what was observed into its buckets, again and again. Without it, observations pile up for as long as nobody
    /// reads them.
    pub(crate) async fn keep_tidy(&self) {
        let mut every = tokio::time::interval(TIDY_UP_EVERY);
        loop {
            every.tick().await;
            self.handle.run_upkeep();
        }
    }

    fn counter(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Counter {
        self.recorder.register_counter(&key(name, labels), &METADATA)
    }

    fn gauge(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Gauge {
        self.recorder.register_gauge(&key(name, labels), &METADATA)
    }

    fn histogram(&self, name: &'static str, labels: &[(&'static str, &str)]) -> Histogram {
        self.recorder.register_histogram(&key(name, labels), &METADATA)
    }

    /// What this process is at.
    pub(crate) fn at_work(&self, running: usize, waiting: usize) {
        self.gauge("onlyonce_running", &[]).set(count(running as u64));
        self.gauge("onlyonce_waiters", &[]).set(count(waiting as u64));
    }

    /// What a tier has been good for since the start.
    pub(crate) fn tier(&self, tier: &'static str, figures: TierFigures) {
        for (what, claims) in [("answered", figures.answered), ("passed-on", figures.asked)] {
            self.counter("onlyonce_tier_claims_total", &[("tier", tier), ("what", what)]).absolute(claims);
        }
    }

    /// What a consumer has done since the start.
    pub(crate) fn messages(&self, tally: &Tally) {
        let fates = [
            ("fetched", tally.fetched),
            ("done", tally.done),
            ("duplicate", tally.duplicates),
            ("busy", tally.busy),
            ("retried", tally.retried),
            ("given-back", tally.given_back),
            ("dead-lettered", tally.dead_lettered),
            ("mismatched", tally.mismatched),
            ("nameless", tally.nameless),
            ("store-failed", tally.store_failed),
            ("unrecorded", tally.unrecorded),
            ("settled", tally.settled),
            ("gone", tally.gone),
            ("refused", tally.refused),
        ];
        for (fate, deliveries) in fates {
            self.counter("onlyonce_messages_total", &[("fate", fate)]).absolute(deliveries);
        }
    }

    /// What became of spans.
    pub(crate) fn spans(&self, fate: &'static str, spans: u64) {
        self.counter("onlyonce_spans_total", &[("fate", fate)]).increment(spans);
    }

    /// How it went to send figures to a collector.
    pub(crate) fn sent(&self, result: &'static str) {
        self.counter("onlyonce_metric_exports_total", &[("result", result)]).increment(1);
    }

    /// How many messages wait, as far as the source says.
    pub(crate) fn waiting(&self, lag: Option<u64>) {
        self.gauge("onlyonce_lag_unknown", &[]).set(f64::from(u8::from(lag.is_none())));
        if let Some(lag) = lag {
            self.gauge("onlyonce_messages_waiting", &[]).set(count(lag));
        }
    }

    fn answered_in(&self, operation: &'static str, result: &'static str, took: Duration) {
        self.took.put(
            [operation, result],
            || self.histogram(STORE_SECONDS, &[("operation", operation), ("result", result)]),
            |series| series.record(took.as_secs_f64()),
        );
    }
}

/// Beyond 2^53 a count is no longer exact, and no longer needs to be.
#[expect(clippy::cast_precision_loss, reason = "see above")]
fn count(number: u64) -> f64 {
    number as f64
}

fn key(name: &'static str, labels: &[(&'static str, &str)]) -> Key {
    let labels = labels.iter().map(|(label, value)| Label::new(*label, (*value).to_owned()));
    Key::from_parts(name, labels.collect::<Vec<_>>())
}

impl observe::Observer for Metrics {
    fn event(&self, id: &RecordId, fence: Fence, event: observe::Event) {
        use observe::Event;
        observe::Traced.event(id, fence, event);
        self.events.event(id, fence, event);
        let (name, (label, value)) = match event {
            Event::Granted { .. }
            | Event::Replayed { .. }
            | Event::Busy
            | Event::Held
            | Event::Mismatched
            | Event::Recovering
            | Event::OverQuota => ("onlyonce_claims_total", ("answer", event.name())),
            Event::StoreFailed(kind) => ("onlyonce_store_failures_total", ("kind", kind.code())),
            _ => ("onlyonce_endings_total", ("ending", event.name())),
        };
        let find = || self.counter(name, &[(label, value)]);
        self.seen.put([name, value], find, |series| series.increment(1));
    }
}

impl http::Observer for Metrics {
    fn event(&self, route: &str, event: http::Event) {
        use http::Event;
        http::Traced.event(route, event);
        let did = match event {
            Event::Refused { kind, .. } => kind.name(),
            Event::Replayed { age, left, .. } => {
                let kept = age.as_secs_f64() + left.as_secs_f64();
                if kept > 0.0 {
                    let ages = self.ages.get_or_init(|| self.histogram(DUPLICATE_AGE, &[]));
                    ages.record(age.as_secs_f64() / kept);
                }
                event.name()
            }
            _ => event.name(),
        };
        let find = || self.counter("onlyonce_requests_total", &[("route", route), ("answer", did)]);
        self.did.put([route, did], find, |series| series.increment(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_read() {
        let metrics = Metrics::new().expect("the buckets are in order");
        let id = RecordId::from_bytes([7; 32]);
        observe::Observer::event(&metrics, &id, Fence::default(), observe::Event::Granted { attempt: 1 });
        observe::Observer::event(&metrics, &id, Fence::default(), observe::Event::Completed);
        let replayed = http::Event::Replayed {
            id,
            status: ::http::StatusCode::OK,
            age: Duration::from_secs(18),
            left: Duration::from_secs(2),
        };
        http::Observer::event(&metrics, "/v1/\"payments\"\n", replayed);
        metrics.answered_in("claim", "ok", Duration::from_millis(3));
        metrics.waiting(None);

        let text = metrics.render();
        for line in [
            "onlyonce_claims_total{answer=\"granted\"} 1",
            "onlyonce_endings_total{ending=\"completed\"} 1",
            "onlyonce_requests_total{route=\"/v1/\\\"payments\\\"\\n\",answer=\"replayed\"} 1",
            "onlyonce_duplicate_age_ratio_bucket{le=\"0.75\"} 0",
            "onlyonce_duplicate_age_ratio_bucket{le=\"0.9\"} 1",
            "onlyonce_store_seconds_bucket{operation=\"claim\",result=\"ok\",le=\"0.0025\"} 0",
            "onlyonce_store_seconds_bucket{operation=\"claim\",result=\"ok\",le=\"0.005\"} 1",
            "onlyonce_lag_unknown 1",
            "# HELP onlyonce_claims_total Claims by their answer",
        ] {
            assert!(text.lines().any(|written| written == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(&id.short()), "an id would be a series for each record");
    }

    #[test]
    fn every_figure_is_documented() {
        let page = include_str!("../../../docs/operating.md");
        for (name, _) in NAMES {
            assert!(page.contains(&format!("| `{name}` |")), "docs/operating.md does not know {name}");
        }
    }

    /// One of everything that is counted.
    pub(super) fn show_everything(metrics: &Arc<Metrics>) {
        use onlyonce_core::StoreErrorKind;
        let id = RecordId::from_bytes([7; 32]);
        for kind in [StoreErrorKind::Unavailable, StoreErrorKind::TimedOut, StoreErrorKind::Full] {
            observe::Observer::event(&**metrics, &id, Fence::default(), observe::Event::StoreFailed(kind));
        }
        for event in [observe::Event::Busy, observe::Event::Abandoned, observe::Event::LeaseLost] {
            observe::Observer::event(&**metrics, &id, Fence::default(), event);
        }
        http::Observer::event(&**metrics, "/v1/*", http::Event::SteeringIgnored);
        metrics.answered_in("claim", "ok", Duration::from_millis(3));
        metrics.histogram(DUPLICATE_AGE, &[]).record(0.5);
        metrics.waiting(Some(1));
        metrics.messages(&Tally::default());
        metrics.at_work(1, 2);
        for namespace in [None, Some(&"pay".into())] {
            stored::show_everything(&StoreFigures::new(metrics, namespace));
        }
        metrics.tier("recent", TierFigures::default());
        metrics.spans("dropped", 1);
        metrics.sent("ok");
    }

    #[test]
    fn nothing_is_counted_under_a_name_that_is_not_described() {
        let metrics = Arc::new(Metrics::new().expect("the buckets are in order"));
        show_everything(&metrics);
        for line in metrics.render().lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).expect("a name");
            assert!(NAMES.iter().any(|(described, _)| *described == name), "{name} has no help");
        }
    }
}
