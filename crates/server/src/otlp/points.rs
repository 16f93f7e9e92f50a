//! Figures as OTLP has them: counters as monotonic cumulative sums, gauges, and histograms with their bounds. They are read
//! from the text that Prometheus reads, so that both show the same, under the same names and labels.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource as Described;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_sdk::Resource;
use prost::Message as _;

use super::SCOPE;
use crate::metrics::{Family, Figures, Kind, Sample};

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;
/// What the last word of a name says about what is counted.
const UNITS: [(&str, &str); 2] = [("_seconds", "s"), ("_bytes", "By")];

/// Makes messages of figures.
pub(super) struct Points {
    resource: Described,
}

/// When something was counted: since when, and until when.
#[derive(Clone, Copy)]
struct Times {
    since: u64,
    now: u64,
}

impl Points {
    /// Of the process that `resource` describes.
    pub(super) fn of(resource: &Resource) -> Self {
        let described = ResourceAttributesWithSchema::from(resource);
        Self { resource: Described { attributes: described.attributes.0, ..Described::default() } }
    }

    /// All figures in one message. Times are in nanoseconds since 1970.
    pub(super) fn encode(&self, figures: &Figures, since: u64, now: u64) -> Bytes {
        // A clock that was set back makes nothing end before it began.
        let times = Times { since, now: now.max(since) };
        let metrics = figures.families().iter().map(|family| metric(family, times)).collect();
        let scope = InstrumentationScope {
            name: SCOPE.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource_metrics = vec![ResourceMetrics {
            resource: Some(self.resource.clone()),
            scope_metrics,
            ..ResourceMetrics::default()
        }];
        ExportMetricsServiceRequest { resource_metrics }.encode_to_vec().into()
    }
}

fn metric(family: &Family<'_>, times: Times) -> Metric {
    let points = |point: fn(&Sample<'_>, Times) -> NumberDataPoint| {
        family.samples.iter().map(|sample| point(sample, times)).collect()
    };
    let measured = match family.kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: points(counted),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        Kind::Gauge => Data::Gauge(Gauge { data_points: points(standing) }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: distributions(family, times),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    let unit = UNITS.iter().find(|(end, _)| family.name.ends_with(end)).map_or("", |(_, unit)| unit);
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(measured),
        ..Metric::default()
    }
}

/// What a counter has come to. Counts are whole, and exact beyond what a float can hold.
fn counted(sample: &Sample<'_>, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: times.since,
        time_unix_nano: times.now,
        value: sample.number.parse().ok().map(Number::AsInt),
        ..NumberDataPoint::default()
    }
}

/// How a gauge stands.
fn standing(sample: &Sample<'_>, times: Times) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(&sample.labels),
        time_unix_nano: times.now,
        value: sample.number.parse().ok().map(Number::AsDouble),
        ..NumberDataPoint::default()
    }
}

/// One point for each set of labels. What Prometheus counts up to a bound, OTLP counts between two.
fn distributions(family: &Family<'_>, times: Times) -> Vec<HistogramDataPoint> {
    let mut points: Vec<HistogramDataPoint> = Vec::new();
    for sample in &family.samples {
        let (bounds, labels): (Vec<_>, Vec<_>) =
            sample.labels.iter().cloned().partition(|(name, _)| *name == "le");
        let attributes = attributes(&labels);
        let at = points.iter().position(|point| point.attributes == attributes).unwrap_or_else(|| {
            points.push(HistogramDataPoint {
                attributes,
                start_time_unix_nano: times.since,
                time_unix_nano: times.now,
                ..HistogramDataPoint::default()
            });
            points.len() - 1
        });
        let point = &mut points[at];
        match (sample.name.strip_prefix(family.name), bounds.first()) {
            (Some("_bucket"), Some((_, bound))) => {
                point.bucket_counts.push(sample.number.parse().unwrap_or_default());
                // The last bucket has none.
                point.explicit_bounds.extend(bound.parse().ok().filter(|bound: &f64| bound.is_finite()));
            }
            (Some("_sum"), _) => point.sum = sample.number.parse().ok(),
            (Some("_count"), _) => point.count = sample.number.parse().unwrap_or_default(),
            _ => {}
        }
    }
    for point in &mut points {
        for at in (1..point.bucket_counts.len()).rev() {
            point.bucket_counts[at] = point.bucket_counts[at].saturating_sub(point.bucket_counts[at - 1]);
        }
    }
    points
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let attribute = |(name, value): &(&str, String)| KeyValue {
        key: (*name).to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.clone())) }),
        ..KeyValue::default()
    };
    labels.iter().map(attribute).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total What happened\n# TYPE a_total counter\na_total{b=\"c\"} 9007199254740993\na_total 2\n\n\
        # TYPE e_bytes gauge\ne_bytes 0.5\n\n\
        # TYPE s_seconds histogram\n\
        s_seconds_bucket{op=\"x\",le=\"0.1\"} 2\ns_seconds_bucket{op=\"x\",le=\"1\"} 2\n\
        s_seconds_bucket{op=\"x\",le=\"+Inf\"} 5\ns_seconds_sum{op=\"x\"} 31.5\ns_seconds_count{op=\"x\"} 5\n\
        s_seconds_bucket{op=\"y\",le=\"0.1\"} 0\ns_seconds_bucket{op=\"y\",le=\"1\"} 1\n\
        s_seconds_bucket{op=\"y\",le=\"+Inf\"} 1\ns_seconds_sum{op=\"y\"} 0.75\ns_seconds_count{op=\"y\"} 1\n";

    fn metrics(now: u64) -> Vec<Metric> {
        let points = Points::of(&Resource::builder_empty().build());
        let message = points.encode(&Figures::new(TEXT.to_owned()), 7, now);
        let request = ExportMetricsServiceRequest::decode(message).expect("as it was encoded");
        request.resource_metrics[0].scope_metrics[0].metrics.clone()
    }

    #[test]
    fn counters_are_monotonic_sums_since_the_start_and_gauges_are_not() {
        let metrics = metrics(9);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        assert_eq!((metrics[0].name.as_str(), metrics[0].description.as_str()), ("a_total", "What happened"));
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(Number::AsInt(9_007_199_254_740_993)), "one more than 2^53");
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (7, 9));
        assert_eq!(point.attributes, attributes(&[("b", "c".to_owned())]));
        assert!(sum.data_points[1].attributes.is_empty());
        let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
        assert_eq!(
            (gauge.data_points[0].value, metrics[1].unit.as_str()),
            (Some(Number::AsDouble(0.5)), "By")
        );
        assert_eq!((gauge.data_points[0].start_time_unix_nano, gauge.data_points[0].time_unix_nano), (0, 9));
    }

    #[test]
    fn buckets_are_counted_between_bounds_and_each_set_of_labels_is_a_point() {
        let metrics = metrics(9);
        let Some(Data::Histogram(histogram)) = &metrics[2].data else { panic!("{:?}", metrics[2]) };
        assert_eq!((metrics[2].unit.as_str(), histogram.aggregation_temporality), ("s", CUMULATIVE));
        let [x, y] = &*histogram.data_points else { panic!("{histogram:?}") };
        assert_eq!((&*x.explicit_bounds, &*x.bucket_counts), (&[0.1, 1.0][..], &[2, 0, 3][..]));
        assert_eq!((x.count, x.sum, x.start_time_unix_nano), (5, Some(31.5), 7));
        assert_eq!((&*y.bucket_counts, y.count, y.sum), (&[0, 1, 0][..], 1, Some(0.75)));
        assert_eq!(y.attributes, attributes(&[("op", "y".to_owned())]));
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_end_before_it_began() {
        let metrics = metrics(3);
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
        assert_eq!(sum.data_points[0].time_unix_nano, 7);
    }
}
