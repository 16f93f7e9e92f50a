//! What a collector and the upstream see: of spans, who is whose child and what a replay is linked to; of figures, that they
//! are those of `/metrics`; and that nobody waits for a collector that is not well.

mod collector;
mod doors;
mod faults;
mod figures;
mod receiver;
mod series;
mod stores;

use onlyonce_core::hex::encode as hex;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use self::collector::Collector;
use self::receiver::{FIGURES, Mood, Receiver, SPANS};
use crate::binary::{Proxy, answer, onlyonce};
use crate::upstream::Upstream;

const CALLER: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER_SPAN: &str = "00f067aa0b5902b7";
const RETRY: &str = "0af7651916cd43dd8448eb211c80319c";
const RETRY_SPAN: &str = "b7ad6b7169203331";

fn traceparent(trace: &str, span: &str) -> String {
    format!("Traceparent: 00-{trace}-{span}-01\r\n")
}

/// A sidecar that traces.
fn traced(upstream: &Upstream, store: &str, otlp: &str) -> Proxy {
    Proxy::start(&["--upstream", &upstream.url(), "--store", store, "--otlp", otlp])
}

/// Ends a sidecar properly: what it made has been sent then.
fn end(proxy: Proxy) {
    proxy.signal("-TERM");
    let (status, _, log) = proxy.ended();
    assert!(status.success(), "{log}");
}

/// The value of a field of a head.
fn field(head: &str, name: &str) -> Option<String> {
    let value = |line: &str| {
        let (other, value) = line.split_once(':')?;
        other.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    };
    head.lines().find_map(value)
}

fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        other => panic!("{name} is {other:?}"),
    }
}

fn of_kind(spans: &[Span], kind: SpanKind) -> Vec<Span> {
    spans.iter().filter(|span| span.kind == kind as i32).cloned().collect()
}

#[test]
fn a_real_collector_sees_a_replay_linked_to_the_original_across_a_restart() {
    let (collector, upstream) = (Collector::start("traces"), Upstream::start());
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}", folder.path().display());
    let proxy = traced(&upstream, &store, &collector.url());
    assert_eq!(proxy.post_with("/pay", "k", &traceparent(CALLER, CALLER_SPAN)).0, 200);
    end(proxy);
    let proxy = traced(&upstream, &store, &collector.url());
    let (status, replay) = proxy.post_with("/pay", "k", &traceparent(RETRY, RETRY_SPAN));
    assert!(status == 200 && replay.to_lowercase().contains("idempotency-replayed: true"), "{replay}");
    end(proxy);

    let told = collector.told(3);
    let find = |trace: &str, kind: &str| {
        let is_it = |span: &&collector::Told| span.fields["Trace ID"] == trace && span.fields["Kind"] == kind;
        told.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} of {trace} in {told:?}"))
    };
    let (first, sent) = (find(CALLER, "SPAN_KIND_SERVER"), find(CALLER, "SPAN_KIND_CLIENT"));
    assert_eq!(first.fields["Parent ID"], CALLER_SPAN);
    assert_eq!(first.fields["Name"], "POST *");
    assert_eq!(first.attributes["onlyonce.answer"], "Str(ran)");
    assert_eq!(sent.fields["Parent ID"], first.fields["ID"]);
    let heads = upstream.heads();
    let passed_on = format!("00-{CALLER}-{}-01", sent.fields["ID"]);
    assert_eq!(field(&heads[0], "traceparent"), Some(passed_on), "the upstream is asked in that span");

    let again = find(RETRY, "SPAN_KIND_SERVER");
    assert_eq!(again.fields["Parent ID"], RETRY_SPAN);
    assert_eq!(again.attributes["onlyonce.answer"], "Str(replayed)");
    assert_eq!(again.links, [(CALLER.to_owned(), first.fields["ID"].clone())]);
    assert_eq!(again.attributes["onlyonce.record"], first.attributes["onlyonce.record"]);
    assert!(first.links.is_empty() && told.len() == 3, "{told:?}");
}

#[test]
fn what_is_refused_because_it_runs_is_linked_to_what_runs() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let proxy = traced(&upstream, "memory:", &receiver.url());
    upstream.hold(true);
    let first = proxy.begin("/pay", "k");
    upstream.wait_for_effects(1);
    assert_eq!(proxy.post("/pay", "k").0, 409);
    upstream.hold(false);
    assert_eq!(answer(first).0, 200);
    assert_eq!(proxy.post_with("/pay", "k", "Content-Type: text/plain\r\n").0, 422);
    end(proxy);

    let spans = of_kind(&receiver.spans(), SpanKind::Server);
    let find = |said: &str| {
        let mut found =
            spans.iter().filter(|span| attribute(span, "onlyonce.answer").as_deref() == Some(said));
        found.next().unwrap_or_else(|| panic!("nothing was {said}"))
    };
    let (ran, busy) = (find("ran"), find("in-flight"));
    assert_eq!(attribute(ran, "onlyonce.recorded").as_deref(), Some("completed"));
    assert_ne!(busy.trace_id, ran.trace_id);
    assert_eq!((&busy.links[0].trace_id, &busy.links[0].span_id), (&ran.trace_id, &ran.span_id));
    assert_eq!(attribute(busy, "http.response.status_code").as_deref(), Some("409"));
    assert!(find("key-reused").links.is_empty(), "whoever asks for something else is told of nothing");
}

#[test]
fn a_context_that_is_malformed_begins_a_new_trace() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let proxy = traced(&upstream, "memory:", &receiver.url());
    let good = traceparent(CALLER, CALLER_SPAN);
    let bad = [
        "Traceparent: 00-nonsense-01\r\nTracestate: a=b\r\n".to_owned(),
        format!("{}Tracestate: a=b\r\n", good.to_uppercase()),
        format!("{good}{good}Tracestate: a=b\r\n"),
        good.replace(CALLER_SPAN, "0000000000000000"),
        // What belongs to one connection only is not to be taken along, and not to be left out either.
        "Connection: close, traceparent, tracestate\r\n".to_owned(),
    ];
    for (number, fields) in bad.iter().enumerate() {
        assert_eq!(proxy.post_with("/pay", &format!("bad-{number}"), fields).0, 200, "{fields}");
    }
    assert_eq!(proxy.post_with("/pay", "good", &format!("{good}Tracestate: a=b,c=d\r\n")).0, 200);
    end(proxy);

    let spans = receiver.spans();
    let sent = of_kind(&spans, SpanKind::Client);
    let heads = upstream.heads();
    assert_eq!((sent.len(), heads.len()), (6, 6));
    for head in &heads {
        let told = field(head, "traceparent").expect("a new context");
        let span =
            sent.iter().find(|span| told == format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
        assert!(span.is_some(), "{told} is no span of ours");
        assert_eq!(head.to_lowercase().matches("traceparent:").count(), 1);
    }
    for (head, fields) in heads.iter().zip(&bad) {
        assert!(!field(head, "traceparent").unwrap().contains(CALLER), "{fields}");
        assert_eq!(
            field(head, "tracestate"),
            None,
            "{fields}: the state of a trace that is not gone on with"
        );
    }
    assert_eq!(field(&heads[5], "tracestate").as_deref(), Some("a=b,c=d"));
    assert!(field(&heads[5], "traceparent").unwrap().contains(CALLER));
    let roots =
        of_kind(&spans, SpanKind::Server).iter().filter(|span| span.parent_span_id.is_empty()).count();
    assert_eq!(roots, 5);
}

#[test]
fn what_the_caller_does_not_record_is_not_sent_and_not_linked_to() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let proxy = traced(&upstream, "memory:", &receiver.url());
    let quiet = traceparent(CALLER, CALLER_SPAN).replace("-01\r", "-00\r");
    assert_eq!(proxy.post_with("/pay", "k", &quiet).0, 200);
    assert_eq!(proxy.post_with("/pay", "k", &traceparent(RETRY, RETRY_SPAN)).0, 200);
    end(proxy);
    let told = field(&upstream.heads()[0], "traceparent").unwrap();
    assert!(told.starts_with(&format!("00-{CALLER}-")) && told.ends_with("-00"), "{told}");
    let spans = receiver.spans();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert!(hex(&spans[0].trace_id) == RETRY && spans[0].links.is_empty(), "{spans:?}");
}

#[test]
fn without_a_collector_headers_pass_untouched() {
    let upstream = Upstream::start();
    // Names and samplers alone are no reason to trace.
    let environment = [("OTEL_SERVICE_NAME", "shop"), ("OTEL_TRACES_SAMPLER", "always_on")];
    let proxy = Proxy::start_with(&["--upstream", &upstream.url(), "--store", "memory:"], &environment);
    let context = "Traceparent: 00-nonsense-01\r\nTracestate: a=b\r\n";
    assert_eq!(proxy.post("/pay", "bare").0, 200);
    assert_eq!(proxy.post_with("/pay", "with", context).0, 200);
    let heads = upstream.heads();
    assert_eq!(field(&heads[0], "traceparent"), None);
    assert_eq!(field(&heads[0], "tracestate"), None);
    assert_eq!(field(&heads[1], "traceparent").as_deref(), Some("00-nonsense-01"));
    assert_eq!(field(&heads[1], "tracestate").as_deref(), Some("a=b"));
}

#[test]
fn the_standard_variables_name_the_collector_and_the_service() {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let root = format!("{}/some/root/", receiver.url());
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", root.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=open%20sesame"),
        ("OTEL_SERVICE_NAME", "checkout"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test"),
    ];
    let arguments = ["--upstream", &upstream.url(), "--store", "memory:"];
    let proxy = Proxy::start_with(&arguments, &environment);
    assert_eq!(proxy.post("/pay", "k").0, 200);
    end(proxy);
    for path in [SPANS, FIGURES] {
        let head = &receiver.heads(path)[0];
        assert!(head.starts_with(&format!("POST /some/root{path} HTTP/1.1\r\n")), "{head}");
        assert_eq!(field(head, "api-key").as_deref(), Some("open sesame"));
    }
    for body in receiver.bodies() {
        let body = String::from_utf8_lossy(&body).into_owned();
        for said in ["checkout", "deployment.environment.name"] {
            assert!(body.contains(said), "{said} is not said of the process");
        }
    }
    let mut show = onlyonce(&["config", "show"]);
    let shown = show.envs(environment).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("/some/root/v1/traces") && shown.contains("/some/root/v1/metrics"), "{shown}");
    assert!(!shown.contains("sesame"), "{shown}");
}

#[test]
fn a_collector_that_cannot_be_is_refused_at_the_start() {
    for (otlp, said) in [
        ("nonsense", "traces.otlp: `nonsense` is neither a URL"),
        ("ftp://127.0.0.1:4318", "traces.otlp: "),
        ("http://user:sesame@127.0.0.1:4318", "traces.otlp: credentials in a URL are not sent"),
    ] {
        let arguments = ["proxy", "--upstream", "http://127.0.0.1:9", "--store", "memory:", "--otlp", otlp];
        let output = onlyonce(&arguments).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{otlp}: {told}");
        assert!(!told.contains("sesame"), "{told}");
    }
}
