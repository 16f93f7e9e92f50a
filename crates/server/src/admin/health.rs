//! Whether work is taken, and figures for Prometheus.

use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use onlyonce_core::RecordId;
use onlyonce_core::house::count_callers;
use onlyonce_core::store::Stats;
use onlyonce_http::{Body, ProblemKind};
use serde_json::json;

use super::Admin;
use super::router::shown;
use crate::clock::Stopwatch;
use crate::metrics::StoreFigures;
use crate::refusal::Refusal;

/// How long the store may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// How old the count of records may be: on some stores it is not for nothing.
const COUNT_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// What the last count found, and when.
#[derive(Debug, Default)]
pub(super) struct Counted {
    at: Option<Stopwatch>,
    stats: Option<Stats>,
}

impl Admin {
    pub(super) async fn ready(&self) -> Result<Response<Body>, Refusal> {
        let unready = |detail: String| Refusal::new(ProblemKind::StoreUnavailable, detail);
        if self.stopping.is_cancelled() {
            return Err(unready("stopping: no new work is taken".to_owned()));
        }
        // Any id will do: a store that can say that there is no such record can be asked for others.
        let id = RecordId::from_bytes([0; 32]);
        for (engine, _) in &self.ground.engines {
            match tokio::time::timeout(READY_WITHIN, engine.store().lookup(&id)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(unready(format!("the store fails: {}", error.code()))),
                Err(_) => return Err(unready("the store does not answer".to_owned())),
            }
        }
        Ok(shown(StatusCode::OK, &json!({ "status": "ready" })))
    }

    pub(super) async fn figures(&self) -> Response<Body> {
        self.count().await;
        let mut response = Response::new(Body::from(self.metrics.render()));
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }

    /// Brings every figure up to date, and tells what is stored.
    pub(super) async fn count(&self) -> Option<Stats> {
        let (mut running, mut waiting) = (0, 0);
        for (engine, tiers) in &self.ground.engines {
            running += engine.running();
            waiting += engine.waiting();
            tiers.count(&self.metrics);
        }
        self.metrics.at_work(running, waiting);
        let stats = self.count_records().await;
        if let Some(also) = &self.ground.also {
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
        for place in self.operator.places() {
            match tokio::time::timeout(READY_WITHIN, count_callers(&*place.store)).await {
                Ok(Ok(stats)) => {
                    let namespace = (self.ground.command == "serve").then_some(&place.name);
                    StoreFigures::new(&self.metrics, namespace).stored(&stats);
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
