//! Figures by name and labels, whoever tells of them: `/metrics`, or a message to a collector.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;

/// A series in the words of Prometheus, its labels in order.
pub(crate) fn series(name: &str, labels: &[(String, String)]) -> String {
    let mut labels: Vec<_> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
    labels.sort();
    if labels.is_empty() { name.to_owned() } else { format!("{name}{{{}}}", labels.join(",")) }
}

/// What `/metrics` shows. No label of ours holds a comma in these tests.
pub(crate) fn shown(text: &str) -> BTreeMap<String, f64> {
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let lines = body.lines().filter(|line| line.starts_with("onlyonce_"));
    let read = |line: &str| {
        let (named, number) = line.rsplit_once(' ').unwrap();
        let (name, labels) = named.split_once('{').unwrap_or((named, "}"));
        let labels = labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty());
        let labels: Vec<_> = labels
            .map(|label| label.split_once('=').unwrap())
            .map(|(label, value)| (label.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        (series(name, &labels), number.parse().unwrap())
    };
    lines.map(read).collect()
}

/// All figures of one message.
pub(crate) fn metrics(message: &ExportMetricsServiceRequest) -> Vec<Metric> {
    let scopes = message.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| scope.metrics.clone()).collect()
}

/// The same as series; what a histogram counted is there up to each bound, as at `/metrics`.
pub(crate) fn sent(message: &ExportMetricsServiceRequest) -> BTreeMap<String, f64> {
    let mut sent = BTreeMap::new();
    for metric in metrics(message) {
        let name = metric.name;
        let numbers = match metric.data.unwrap() {
            Data::Sum(sum) => sum.data_points,
            Data::Gauge(gauge) => gauge.data_points,
            Data::Histogram(histogram) => {
                for point in histogram.data_points {
                    let (labels, mut count) = (labels(&point.attributes), 0);
                    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1, "{name}");
                    for (at, own) in point.bucket_counts.iter().enumerate() {
                        count += own;
                        let bound = point.explicit_bounds.get(at).map_or("+Inf".to_owned(), f64::to_string);
                        let labels = [&*labels, &[("le".to_owned(), bound)]].concat();
                        sent.insert(series(&format!("{name}_bucket"), &labels), float(count));
                    }
                    sent.insert(series(&format!("{name}_count"), &labels), float(point.count));
                    sent.insert(series(&format!("{name}_sum"), &labels), point.sum.unwrap());
                }
                continue;
            }
            other => panic!("{name} is {other:?}"),
        };
        for point in numbers {
            let number = match point.value.unwrap() {
                Number::AsInt(number) => float(u64::try_from(number).unwrap()),
                Number::AsDouble(number) => number,
            };
            let twice = sent.insert(series(&name, &labels(&point.attributes)), number);
            assert_eq!(twice, None, "{name} has a series twice");
        }
    }
    sent
}

/// Counts in tests are small.
fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}

fn labels(attributes: &[KeyValue]) -> Vec<(String, String)> {
    let label = |attribute: &KeyValue| match attribute.value.clone().unwrap().value.unwrap() {
        Value::StringValue(text) => (attribute.key.clone(), text),
        other => panic!("{} is {other:?}", attribute.key),
    };
    attributes.iter().map(label).collect()
}
