//! The link holds between processes, whichever store they share.

use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::receiver::{Mood, Receiver};
use super::{CALLER, CALLER_SPAN, attribute, end, of_kind, traced, traceparent};
use crate::binary::onlyonce;
use crate::upstream::Upstream;

/// One process runs it, another replays it.
fn links_between_processes(store: &str) {
    let (receiver, upstream) = (Receiver::start(Mood::Takes), Upstream::start());
    let (one, other) = (traced(&upstream, store, &receiver.url()), traced(&upstream, store, &receiver.url()));
    assert_eq!(one.post_with("/pay", "k", &traceparent(CALLER, CALLER_SPAN)).0, 200);
    // The second from what the process remembers, where it does.
    for _ in 0..2 {
        assert_eq!(other.post("/pay", "k").0, 200);
    }
    end(one);
    end(other);
    assert_eq!(upstream.effects(), 1);
    let spans = of_kind(&receiver.spans(), SpanKind::Server);
    let said = |span| attribute(span, "onlyonce.answer").unwrap();
    let original = spans.iter().find(|span| said(span) == "ran").unwrap();
    let replays: Vec<_> = spans.iter().filter(|span| said(span) == "replayed").collect();
    assert_eq!(replays.len(), 2, "{spans:?}");
    for replay in replays {
        let link = &replay.links[0];
        assert_eq!((&link.trace_id, &link.span_id), (&original.trace_id, &original.span_id));
    }
}

#[test]
fn links_hold_over_redis() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    links_between_processes(&server.url());
}

#[test]
fn links_hold_over_postgres() {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = onlyonce(&["store", "migrate", "--store", &server.url()]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    links_between_processes(&server.url());
}
