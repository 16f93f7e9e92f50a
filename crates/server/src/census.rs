//! Brings every figure up to date before anybody sees it: at `/metrics`, on the dashboard, or at a collector. What happens is
//! counted when it happens; what there is must be asked for.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Engine;
use onlyonce_core::Store;
use onlyonce_core::house::count_callers;
use onlyonce_core::store::Stats;
use tokio::sync::Mutex;

use crate::clock::Stopwatch;
use crate::metrics::{Metrics, StoreFigures};
use crate::operator::Place;
use crate::store::Tiers;

/// How long a store may take to say what it holds.
const COUNT_WITHIN: Duration = Duration::from_secs(2);
/// How old the count of records may be: on some stores it is not for nothing.
const COUNT_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// Counts something into the figures.
pub(crate) type Also = Box<dyn Fn(Arc<Metrics>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Everything that is asked.
pub(crate) struct Census {
    metrics: Arc<Metrics>,
    /// Where work runs; with what stands in front of its store.
    engines: Vec<(Engine, Tiers)>,
    /// Where records are, with the figures of each.
    stores: Vec<(StoreFigures, Arc<dyn Store>)>,
    /// What else is to be counted.
    also: Option<Also>,
    counted: Mutex<Counted>,
}

/// What the last count found, and when.
#[derive(Debug, Default)]
struct Counted {
    at: Option<Stopwatch>,
    stats: Option<Stats>,
}

impl Census {
    /// Of what runs in `engines` and is stored in `places`, each of which is a namespace where there may be several.
    pub(crate) fn new(
        metrics: Arc<Metrics>,
        engines: Vec<(Engine, Tiers)>,
        places: &[Place],
        are_namespaces: bool,
    ) -> Self {
        let figures = |place: &Place| StoreFigures::new(&metrics, are_namespaces.then_some(&place.name));
        let stores = places.iter().map(|place| (figures(place), Arc::clone(&place.store))).collect();
        Self { metrics, engines, stores, also: None, counted: Mutex::default() }
    }

    /// The same, with something else that is to be counted.
    pub(crate) fn also(mut self, also: Also) -> Self {
        self.also = Some(also);
        self
    }

    pub(crate) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Brings every figure up to date, and tells what is stored.
    pub(crate) async fn take(&self) -> Option<Stats> {
        let (mut running, mut waiting) = (0, 0);
        for (engine, tiers) in &self.engines {
            running += engine.running();
            waiting += engine.waiting();
            tiers.count(&self.metrics);
        }
        self.metrics.at_work(running, waiting);
        let stats = self.count_records().await;
        if let Some(also) = &self.also {
            also(Arc::clone(&self.metrics)).await;
        }
        stats
    }

    /// Figures that cannot be had are left as they were: their age can be seen from the failures beside them.
    async fn count_records(&self) -> Option<Stats> {
        let mut counted = self.counted.lock().await;
        if counted.at.is_some_and(|watch| watch.elapsed() < COUNT_AGAIN_AFTER) {
            return counted.stats;
        }
        let mut all = Stats::default();
        for (figures, store) in &self.stores {
            match tokio::time::timeout(COUNT_WITHIN, count_callers(&**store)).await {
                Ok(Ok(stats)) => {
                    figures.stored(&stats);
                    all = sum(&all, &stats);
                }
                _ => {
                    counted.at = Some(Stopwatch::start());
                    return counted.stats;
                }
            }
        }
        *counted = Counted { at: Some(Stopwatch::start()), stats: Some(all) };
        counted.stats
    }
}

fn sum(one: &Stats, other: &Stats) -> Stats {
    Stats {
        in_flight: one.in_flight + other.in_flight,
        completed: one.completed + other.completed,
        released: one.released + other.released,
        unknown: one.unknown + other.unknown,
        unreadable: one.unreadable + other.unreadable,
        bytes: one.bytes + other.bytes,
        oldest_expired: one.oldest_expired.max(other.oldest_expired),
    }
}
