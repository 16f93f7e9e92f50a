//! The other doors: the claims API, and the consumer.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use onlyonce_core::hex::encode as hex;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::receiver::{Mood, Receiver};
use super::series::sent;
use super::{CALLER, CALLER_SPAN, RETRY, RETRY_SPAN, attribute, end, field, of_kind, traceparent};
use crate::binary::{Proxy, answer, onlyonce, patient};
use crate::upstream::Upstream;

const KEY: &str = "a-key-that-nobody-is-to-see";

#[test]
fn the_claims_api_names_its_routes_and_no_keys() {
    let receiver = Receiver::start(Mood::Takes);
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--otlp", &receiver.url()];
    let service = Proxy::listening(patient(&mut onlyonce(&arguments)));
    let ask = |method: &str, path: &str, body: &str| {
        let mut stream = service.connect();
        let parent = traceparent(CALLER, CALLER_SPAN);
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{parent}Content-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .unwrap();
        answer(stream)
    };
    let claim = format!(r#"{{"key": "{KEY}", "owner": "6c3f0d2e-8d39-4d0a-9e43-0c5f6e2b7a11"}}"#);
    let (status, granted) = ask("POST", "/v1/claims", &claim);
    assert_eq!(status, 200, "{granted}");
    let id = granted.split("\"id\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    assert_eq!(ask("GET", &format!("/v1/claims/{id}"), "").0, 200);
    assert_eq!(ask("GET", &format!("/{KEY}"), "").0, 404);
    end(service);

    let spans = receiver.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["POST /v1/claims", "GET /v1/claims/{id}", "GET"]);
    for span in &spans {
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (CALLER.into(), CALLER_SPAN.into()));
    }
    // Figures are sent at the end, if not before.
    let figures = sent(receiver.figures().last().unwrap());
    assert_eq!(figures.get("onlyonce_claims_total{answer=\"granted\"}"), Some(&1.0), "{figures:?}");
    assert!(
        figures.contains_key("onlyonce_records{namespace=\"default\",state=\"in-flight\"}"),
        "{figures:?}"
    );
    let bodies = receiver.bodies().concat();
    let bodies = String::from_utf8_lossy(&bodies);
    assert!(!bodies.contains(KEY) && !bodies.contains(&id), "{bodies}");
}

/// A consumer; it is killed when this value goes.
struct Consuming(Child);

impl Drop for Consuming {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_handler_is_asked_in_the_span_of_its_message() {
    let (receiver, handler) = (Receiver::start(Mood::Takes), Upstream::start());
    let broker = RedisServer::start(RedisOptions::default()).unwrap();
    let context = format!("00-{CALLER}-{CALLER_SPAN}-01");
    let publish = |context: &str| {
        broker.ask(&["XADD", "orders", "*", "event-id", KEY, "traceparent", context, "body", "pay"]).unwrap()
    };
    publish(&context);
    let source = format!("redis-stream://127.0.0.1:{}/orders?group=workers", broker.port());
    let mut command = onlyonce(&["consume", "--source", &source, "--handler", &handler.url()]);
    command.args(["--store", "memory:", "--otlp", &receiver.url()]);
    command.env("ONLYONCE_CONSUME_ON_SHORT_RETENTION", "warn").stdin(Stdio::null()).stdout(Stdio::null());
    let mut consuming = Consuming(command.spawn().unwrap());
    handler.wait_for_effects(1);
    // The same again, in another trace; once each has its span, nothing is left to do.
    publish(&format!("00-{RETRY}-{RETRY_SPAN}-01"));
    let processed = || of_kind(&receiver.spans(), SpanKind::Consumer);
    while processed().len() < 2 {
        std::thread::yield_now();
    }
    let id = consuming.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(consuming.0.wait().unwrap().success());

    let mut spans = processed();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let [span, again] = &*spans else { panic!("{spans:?}") };
    assert_eq!((span.name.as_str(), hex(&span.parent_span_id)), ("process onlyonce", CALLER_SPAN.to_owned()));
    assert_eq!(attribute(span, "onlyonce.handled").as_deref(), Some("done"));
    assert_eq!(attribute(span, "onlyonce.attempt").as_deref(), Some("1"));
    assert_eq!((hex(&again.trace_id), hex(&again.parent_span_id)), (RETRY.to_owned(), RETRY_SPAN.to_owned()));
    assert_eq!(attribute(again, "onlyonce.handled").as_deref(), Some("duplicate"));
    assert_eq!(attribute(again, "onlyonce.record"), attribute(span, "onlyonce.record"));
    assert_eq!((&again.links[0].trace_id, &again.links[0].span_id), (&span.trace_id, &span.span_id));
    assert!(span.links.is_empty() && handler.effects() == 1);
    let told = format!("00-{CALLER}-{}-01", hex(&span.span_id));
    assert_eq!(field(&handler.heads()[0], "traceparent"), Some(told));
    let figures = sent(receiver.figures().last().unwrap());
    for (series, number) in [
        ("onlyonce_messages_total{fate=\"done\"}", 1.0),
        ("onlyonce_claims_total{answer=\"granted\"}", 1.0),
        ("onlyonce_messages_total{fate=\"duplicate\"}", 1.0),
    ] {
        assert_eq!(figures.get(series), Some(&number), "{series} in {figures:?}");
    }
    assert!(!String::from_utf8_lossy(&receiver.bodies().concat()).contains(KEY));
}
