//! Figures at a collector: what `/metrics` shows, as often as it is said, and nobody waits for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use onlyonce_testkit::servers::Port;
use opentelemetry_proto::tonic::metrics::v1::AggregationTemporality;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;

use super::collector::Collector;
use super::receiver::{FIGURES, Mood, Receiver, SPANS};
use super::series::{metrics, sent, shown};
use super::{end, field, traced};
use crate::admin::{get, start_with};
use crate::binary::{Proxy, onlyonce};
use crate::upstream::Upstream;

/// Often enough for a test.
const OFTEN: (&str, &str) = ("OTEL_METRIC_EXPORT_INTERVAL", "150");
const GRANTED: &str = "onlyonce_claims_total{answer=\"granted\"}";
const REPLAYED: &str = "onlyonce_claims_total{answer=\"replayed\"}";

/// What `/metrics` shows now.
fn at_metrics(admin: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(admin, "/metrics");
    assert_eq!(status, 200, "{text}");
    shown(&text)
}

/// Something to count: one request runs and is replayed, and another is refused.
fn ask(proxy: &Proxy) {
    assert_eq!(proxy.post("/pay", "k").0, 200);
    assert_eq!(proxy.post("/pay", "k").0, 200);
    assert_eq!(proxy.post_with("/pay", "k", "Content-Type: text/plain\r\n").0, 422);
}

#[test]
fn what_is_sent_is_what_metrics_shows() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let otlp = ["--store", "memory:", "--otlp", &receiver.url()];
    let (proxy, admin) = start_with(&upstream, &otlp, &[OFTEN]);
    ask(&proxy);
    let before = at_metrics(admin);
    // The next may have been made before that; the one after it was not.
    let tries = receiver.tries(FIGURES);
    receiver.wait_for_tries(FIGURES, tries + 2);
    let message = receiver.figures().swap_remove(tries + 1);
    let after = at_metrics(admin);
    let sent = sent(&message);
    let mut at_rest = 0;
    for (series, number) in &sent {
        let (low, high) =
            (before.get(series), after.get(series).unwrap_or_else(|| panic!("{series} is not shown")));
        if low == Some(high) {
            assert_eq!(Some(number), low, "{series}");
            at_rest += 1;
        } else if ["_total", "_bucket", "_sum", "_count"].iter().any(|end| series.contains(end)) {
            // It grew meanwhile.
            assert!(
                low.is_none_or(|low| low <= number) && number <= high,
                "{series}: {low:?} {number} {high}"
            );
        }
    }
    for series in before.keys() {
        assert!(sent.contains_key(series), "{series} is shown and not sent");
    }
    // A sweep, or a look at who sweeps, may have come in between.
    assert!(at_rest > 60, "{at_rest} of {}", sent.len());
    for (series, number) in [
        (GRANTED, 1.0),
        (REPLAYED, 1.0),
        ("onlyonce_requests_total{answer=\"key-reused\",route=\"*\"}", 1.0),
        ("onlyonce_duplicate_age_ratio_count", 1.0),
        ("onlyonce_duplicate_age_ratio_bucket{le=\"+Inf\"}", 1.0),
        ("onlyonce_records_unreadable", 0.0),
    ] {
        assert_eq!((before.get(series), sent.get(series)), (Some(&number), Some(&number)), "{series}");
    }
    assert!(after["onlyonce_metric_exports_total{result=\"ok\"}"] >= 1.0);
    end(proxy);
}

#[test]
fn sums_are_cumulative_since_one_start_and_the_resource_is_that_of_spans() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let arguments = ["--upstream", &upstream.url(), "--store", "memory:", "--otlp", &receiver.url()];
    let proxy = Proxy::start_with(&arguments, &[OFTEN]);
    ask(&proxy);
    receiver.wait_for_tries(FIGURES, 2);
    end(proxy);
    let cumulative = AggregationTemporality::Cumulative as i32;
    let (mut starts, mut last) = (Vec::new(), 0);
    for message in receiver.figures() {
        let mut now = 0;
        for metric in metrics(&message) {
            let name = metric.name;
            assert!(!metric.description.is_empty(), "{name}");
            match metric.data.unwrap() {
                Data::Sum(sum) => {
                    assert!(name.ends_with("_total") && sum.is_monotonic, "{name}");
                    assert_eq!(sum.aggregation_temporality, cumulative, "{name}");
                    starts.extend(sum.data_points.iter().map(|point| point.start_time_unix_nano));
                }
                Data::Histogram(histogram) => {
                    assert_eq!(histogram.aggregation_temporality, cumulative, "{name}");
                    starts.extend(histogram.data_points.iter().map(|point| point.start_time_unix_nano));
                    assert_eq!(metric.unit == "s", name == "onlyonce_store_seconds", "{name}");
                }
                Data::Gauge(gauge) => {
                    assert!(!name.ends_with("_total"), "{name}");
                    now = gauge.data_points[0].time_unix_nano;
                }
                other => panic!("{name} is {other:?}"),
            }
        }
        assert!(last < now, "each is later than the one before");
        last = now;
    }
    starts.dedup();
    assert!(starts.len() == 1 && 0 < starts[0] && starts[0] < last, "{starts:?}");
    let figures = receiver.figures().swap_remove(0).resource_metrics.swap_remove(0).resource.unwrap();
    let spans = receiver.traces().swap_remove(0).resource_spans.swap_remove(0).resource.unwrap();
    let sorted = |mut attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>| {
        attributes.sort_by(|one, other| one.key.cmp(&other.key));
        attributes
    };
    let (figures, spans) = (sorted(figures.attributes), sorted(spans.attributes));
    assert_eq!(figures, spans);
    let names: Vec<_> = figures.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(names, ["service.instance.id", "service.name", "service.version"]);
}

#[test]
fn a_real_collector_is_told_the_same_at_the_end() {
    let (collector, upstream) = (Collector::start("metrics"), Upstream::start());
    let otlp = ["--store", "memory:", "--otlp", &collector.url()];
    let (proxy, admin) = start_with(&upstream, &otlp, &[]);
    ask(&proxy);
    let (_, text) = get(admin, "/metrics");
    // Once, for an interval is longer than this takes.
    end(proxy);
    let told = collector.figures(&shown(&text));
    let mut same = 0;
    for (series, number) in shown(&text) {
        let told = told.get(&series).unwrap_or_else(|| panic!("{series} is not in {told:?}"));
        // What has nothing to do with the end of the process.
        let still =
            ["_claims_total", "_endings_total", "_requests_total", "_duplicate_age_ratio", "_build_info"];
        if still.iter().any(|part| series.contains(part)) || series.contains("operation=\"complete\"") {
            assert_eq!(Some(told), Some(&number), "{series}");
            same += 1;
        }
    }
    assert_eq!((told.get(GRANTED), told.get(REPLAYED)), (Some(&1.0), Some(&1.0)));
    assert!(same > 35, "{same} of {}", told.len());
}

#[test]
fn what_a_collector_does_not_take_is_in_the_next() {
    // For good, and for now.
    for status in [400, 503] {
        let (receiver, upstream) = (Receiver::start(Mood::Refuses(status)), Upstream::start());
        let otlp = ["--store", "memory:", "--otlp", &receiver.url()];
        let environment = [OFTEN, ("OTEL_TRACES_EXPORTER", "none")];
        let (proxy, admin) = start_with(&upstream, &otlp, &environment);
        ask(&proxy);
        receiver.wait_for_tries(FIGURES, 3);
        assert_eq!(proxy.post("/pay", "another").0, 200);
        let failed = "onlyonce_metric_exports_total{result=\"failed\"}";
        while !at_metrics(admin).contains_key(failed) {
            std::thread::yield_now();
        }
        receiver.turn(Mood::Takes);
        let has_all = |message: &_| {
            let sent = sent(message);
            sent.contains_key(failed) && (sent.get(GRANTED), sent.get(REPLAYED)) == (Some(&2.0), Some(&1.0))
        };
        while !receiver.figures().iter().any(has_all) {
            std::thread::yield_now();
        }
        proxy.signal("-TERM");
        let (ended, _, log) = proxy.ended();
        assert!(ended.success(), "{log}");
        let said = ["the collector takes no figures", "the collector takes figures again"];
        let [trouble, over] = said.map(|said| log.matches(said).count());
        assert!(over > 0 && trouble <= over + 1, "it is said once, until it is over: {log}");
    }
}

#[test]
fn nobody_waits_for_a_collector_of_figures_that_hangs_or_is_away() {
    let (receiver, upstream) = (Receiver::start(Mood::Hangs), Upstream::start());
    let arguments = ["--upstream", &upstream.url(), "--store", "memory:"];
    let hanging = format!("{}/figures", receiver.url());
    let environment = [OFTEN, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", hanging.as_str())];
    let proxy = Proxy::start_with(&arguments, &environment);
    receiver.wait_for_tries("/figures", 1);
    ask(&proxy);
    // The end is bounded, although the collector never says a word.
    end(proxy);
    assert_eq!(receiver.tries(SPANS), 0);

    let port = Port::free().unwrap();
    let away = format!("http://127.0.0.1:{}", port.get());
    let environment = [OFTEN, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", away.as_str())];
    let mut proxy = Proxy::start_with(&arguments, &environment);
    proxy.wait_for_log("the collector takes no figures");
    ask(&proxy);
    end(proxy);
}

#[test]
fn either_can_be_turned_off_and_each_can_go_elsewhere() {
    let upstream = Upstream::start();
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = |text: &str, environment: &[(&str, &str)], expected: [bool; 2]| {
        let receiver = Receiver::start(Mood::Takes);
        std::fs::write(file.path(), text).unwrap();
        let config = file.path().display().to_string();
        let arguments = ["--upstream", &upstream.url(), "--store", "memory:", "--config", &config];
        let environment = [environment, &[OFTEN]].concat();
        let proxy = Proxy::start_with(&[&arguments[..], &["--otlp", &receiver.url()]].concat(), &environment);
        ask(&proxy);
        for (path, is_sent) in [SPANS, FIGURES].into_iter().zip(expected) {
            receiver.wait_for_tries(path, usize::from(is_sent));
        }
        end(proxy);
        assert_eq!([SPANS, FIGURES].map(|path| receiver.tries(path) > 0), expected, "{text} {environment:?}");
    };
    run("", &[], [true, true]);
    run("[metrics]\nenabled = false\n", &[], [true, false]);
    run("[traces]\nenabled = false\n", &[], [false, true]);
    run("", &[("OTEL_METRICS_EXPORTER", "none")], [true, false]);
    run("", &[("OTEL_TRACES_EXPORTER", "none")], [false, true]);

    let [spans, figures] = [Mood::Takes; 2].map(Receiver::start);
    let text = format!(
        "[traces]\notlp = {:?}\nheaders = \"api-key=sesame\"\n[metrics]\notlp = {:?}\n",
        spans.url(),
        figures.url()
    );
    std::fs::write(file.path(), text).unwrap();
    let config = file.path().display().to_string();
    let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:", "--config", &config]);
    ask(&proxy);
    end(proxy);
    assert_eq!([SPANS, FIGURES].map(|path| spans.tries(path) > 0), [true, false]);
    assert_eq!([SPANS, FIGURES].map(|path| figures.tries(path) > 0), [false, true]);
    assert_eq!(field(&spans.heads(SPANS)[0], "api-key").as_deref(), Some("sesame"));
    assert_eq!(field(&figures.heads(FIGURES)[0], "api-key"), None, "a secret for one is not told to another");
}

#[test]
fn what_cannot_be_sent_anywhere_is_refused_at_the_start() {
    for (name, value, said) in [
        ("ONLYONCE_METRICS_OTLP", "nonsense", "metrics.otlp: `nonsense` is neither a URL"),
        ("ONLYONCE_METRICS_INTERVAL", "1ms", "metrics.interval: "),
    ] {
        let arguments = ["proxy", "--upstream", "http://127.0.0.1:9", "--store", "memory:"];
        let mut command = onlyonce(&arguments);
        command.env("ONLYONCE_METRICS_OTLP", "http://127.0.0.1:9").env(name, value);
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{told}");
    }
}

#[test]
fn spans_and_figures_share_what_the_flag_names() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let proxy = traced(&upstream, "memory:", &format!("{}/root/v1/traces", receiver.url()));
    ask(&proxy);
    end(proxy);
    for path in [SPANS, FIGURES] {
        let head = &receiver.heads(path)[0];
        assert!(head.starts_with(&format!("POST /root{path} HTTP/1.1\r\n")), "{head}");
    }
}
