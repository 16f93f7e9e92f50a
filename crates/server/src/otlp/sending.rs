//! Figures on their way to the collector: all of them, at an interval, and once more at the end. They are cumulative, so that
//! what does not arrive is lost for that interval only: the next says the same and more.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_sdk::Resource;
use prost::Message as _;
use tokio::time::{MissedTickBehavior, interval_at};

use super::delivery::{Delivery, Exporting};
use super::points::Points;
use crate::census::Census;
use crate::clock;
use crate::config::{ConfigError, MetricSettings};

/// Everything that sending figures needs, but for the figures.
pub(super) struct Sending {
    delivery: Delivery,
    every: Duration,
    points: Points,
}

/// The task that sends.
struct Sender {
    delivery: Delivery,
    every: Duration,
    points: Points,
    census: Arc<Census>,
}

impl Sending {
    pub(super) fn new(settings: &MetricSettings, resource: &Resource) -> Result<Self, ConfigError> {
        let delivery = Delivery::new("figures", &settings.collector)?;
        Ok(Self { delivery, every: settings.interval, points: Points::of(resource) })
    }

    pub(super) fn begin(self, census: Arc<Census>) -> Exporting {
        let Self { delivery, every, points } = self;
        Exporting::begin(delivery, move |delivery| Sender { delivery, every, points, census }.run())
    }
}

impl Sender {
    async fn run(mut self) {
        let (metrics, stopping) = (Arc::clone(self.census.metrics()), self.delivery.stopping().clone());
        tokio::select! {
            // What is under way is given up: the last one says the same and more.
            () = stopping.cancelled() => {}
            () = metrics.keep_tidy() => {}
            () = self.send_at_intervals() => {}
        }
        self.send().await;
    }

    async fn send_at_intervals(&mut self) {
        let mut ticks = interval_at(clock::after(self.every), self.every);
        // A collector that takes long is not sent more for it.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.send().await;
        }
    }

    async fn send(&mut self) {
        self.census.take().await;
        let metrics = self.census.metrics();
        let message = self.points.encode(&metrics.figures(), metrics.since(), clock::nanos_since_1970());
        let Some(answer) = self.delivery.send(message).await else { return metrics.sent("failed") };
        let answer = ExportMetricsServiceResponse::decode(answer).ok();
        match answer.and_then(|answer| answer.partial_success).map_or(0, |part| part.rejected_data_points) {
            0 => metrics.sent("ok"),
            rejected => {
                tracing::warn!(rejected, "the collector does not want some of the figures");
                metrics.sent("partial");
            }
        }
    }
}
