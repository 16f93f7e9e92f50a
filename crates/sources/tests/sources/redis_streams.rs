//! Redis Streams: the suites, and what only this broker can do.

use std::time::Duration;

use onlyonce_inbox::{Horizon, Settled, Settlement, Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::servers::{RedisOptions, RedisServer, Relay};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value, cmd};

use crate::stage::{Letter, Stage, ack, bodies, fetch, hasty, patient, settle};

struct Streams {
    server: RedisServer,
}

impl Streams {
    fn new() -> Self {
        Self { server: RedisServer::start(RedisOptions::default()).expect("a server") }
    }

    fn url(&self, more: &str) -> String {
        format!("redis-stream://127.0.0.1:{}/orders{more}", self.server.port())
    }

    async fn connection(&self) -> MultiplexedConnection {
        let client = Client::open(self.server.url()).expect("a URL");
        // A loaded machine takes its time.
        let patience = Some(Duration::from_mins(1));
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
        client.get_multiplexed_async_connection_with_config(&config).await.expect("connected")
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command.query_async(&mut self.connection().await).await.expect("answered")
    }
}

impl Stage for Streams {
    async fn open(&self, options: Options) -> Box<dyn Source> {
        open(&self.url(""), &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        let mut add = cmd("XADD");
        add.arg("orders").arg("*");
        for (name, value) in headers {
            add.arg(name).arg(value);
        }
        add.arg("body").arg(body);
        let _: String = add.query_async(&mut self.connection().await).await.expect("added");
    }

    async fn dead_letters(&self) -> Vec<Letter> {
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            self.ask(&["XRANGE", "orders:dead-letter", "-", "+"]).await;
        let letter = |fields: Vec<Vec<u8>>| {
            let mut headers = Vec::new();
            let mut body = Vec::new();
            for pair in fields.chunks_exact(2) {
                let name = String::from_utf8(pair[0].clone()).expect("text");
                match name.as_str() {
                    "body" => body.clone_from(&pair[1]),
                    _ => headers.push((name, String::from_utf8(pair[1].clone()).expect("text"))),
                }
            }
            (headers, body)
        };
        entries.into_iter().map(|(_, fields)| letter(fields)).collect()
    }

    async fn restart(&self) {
        self.server.restart().expect("started again");
    }

    async fn take_away(&self) {
        self.age(|_| true).await;
    }

    async fn starting(&self) {
        self.age(|_| true).await;
    }

    /// Only what consumers have that are gone: the server no longer knows their connections.
    async fn idle(&self) {
        let clients: String = self.ask(&["CLIENT", "LIST"]).await;
        self.age(|consumer| !clients.contains(consumer)).await;
    }
}

impl Streams {
    async fn outstanding(&self) -> u64 {
        let pending: (u64, Value, Value, Value) = self.ask(&["XPENDING", "orders", "workers"]).await;
        let groups: Vec<Vec<Value>> = self.ask(&["XINFO", "GROUPS", "orders"]).await;
        let Some(Value::Int(lag)) = groups[0].last() else { return u64::MAX };
        pending.0 + u64::try_from(*lag).expect("a count")
    }

    /// Lets entries that are pending for these consumers count as idle for long enough.
    async fn age(&self, is_meant: impl Fn(&str) -> bool + Send) {
        let mut ask = cmd("XPENDING");
        ask.arg(&["orders", "workers", "-", "+", "1000"]);
        // There is no group before the first consumer.
        let pending: Option<Vec<(String, String, u64, u64)>> =
            ask.query_async(&mut self.connection().await).await.ok();
        for (id, consumer, ..) in pending.into_iter().flatten().filter(|(_, consumer, ..)| is_meant(consumer))
        {
            let idle = ["XCLAIM", "orders", "workers", &consumer, "0", &id, "IDLE", "86400000", "JUSTID"];
            let _: Value = self.ask(&idle).await;
        }
    }
}

crate::suites! { Streams => Streams::new() }
crate::broker_tests! { Streams::new() }

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_holds_with_transactions_on_redis_streams() {
    onlyonce_inbox::each_window!([crate::transactions_at_once] _name => Streams::new()).await;
}

/// A source whose URL says more.
async fn open_with(stage: &Streams, more: &str, options: Options) -> Box<dyn Source> {
    open(&stage.url(more), &options).await.expect("opened")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_waits_longer_than_the_idle_time_is_kept() {
    let stage = Streams::new();
    stage.publish(&[], b"a").await;
    let source = stage.open(hasty(Duration::from_millis(400))).await;
    let held = fetch(&*source, 1).await.remove(0);
    let later = Settlement::Retry { after: Duration::from_secs(2) };
    assert_eq!(settle(&*source, held.tag, later).await.expect("settled"), Settled::Settled);
    // Taken over by another on the way, or delivered again by this one: it is not lost, and its deliveries count.
    let again = fetch(&*source, 1).await.remove(0);
    assert!(again.deliveries >= Some(2) && again.message.body == held.message.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimming_removes_only_what_every_group_has_settled() {
    let stage = Streams::new();
    for body in ["a", "b", "c", "d"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let source = open_with(&stage, "?trim=true", patient()).await;
    let other = open_with(&stage, "?group=auditors", patient()).await;
    let theirs = fetch(&*other, 1).await;
    let held = fetch(&*source, 4).await;
    for delivery in &held[..3] {
        ack(&*source, delivery.tag).await;
    }
    assert_eq!(
        stage.ask::<usize>(&["XLEN", "orders"]).await,
        4,
        "the other group has read one and settled none"
    );
    ack(&*other, theirs[0].tag).await;
    let rest = fetch(&*other, 3).await;
    assert_eq!(bodies(&rest), ["b", "c", "d"], "nothing that it has not read is gone");
    ack(&*other, rest[0].tag).await;
    ack(&*source, held[3].tag).await;
    assert_eq!(stage.ask::<usize>(&["XLEN", "orders"]).await, 2, "what is not settled by both is there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trimming_leaves_what_a_group_that_was_set_back_has_to_read_again() {
    let stage = Streams::new();
    for body in ["a", "b", "c"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let source = open_with(&stage, "?trim=true", patient()).await;
    let other = open_with(&stage, "?group=auditors", patient()).await;
    let theirs = fetch(&*other, 3).await;
    for delivery in &theirs[..2] {
        ack(&*other, delivery.tag).await;
    }
    // Its third is pending, and an operator has it read the first two once more.
    let _: Value = stage.ask(&["XGROUP", "SETID", "orders", "auditors", "0"]).await;
    for delivery in fetch(&*source, 3).await {
        ack(&*source, delivery.tag).await;
    }
    assert_eq!(stage.ask::<usize>(&["XLEN", "orders"]).await, 3, "all are to be read again");
    let again = open_with(&stage, "?group=auditors", patient()).await;
    assert_eq!(bodies(&fetch(&*again, 2).await), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_trimmed_away_unsettled_does_not_stop_the_rest() {
    let stage = Streams::new();
    stage.publish(&[], b"a").await;
    let source = stage.open(hasty(Duration::from_millis(200))).await;
    let lost = fetch(&*source, 1).await.remove(0);
    let now = Settlement::Retry { after: Duration::ZERO };
    let _: Value = stage.ask(&["XTRIM", "orders", "MAXLEN", "0"]).await;
    let _ = settle(&*source, lost.tag, now).await.expect("settled");
    stage.publish(&[], b"b").await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_was_removed_is_made_again() {
    let stage = Streams::new();
    stage.publish(&[], b"a").await;
    let source = stage.open(patient()).await;
    let held = fetch(&*source, 1).await.remove(0);
    stage.server.flush();
    assert_eq!(settle(&*source, held.tag, Settlement::Ack).await.expect("answered"), Settled::Gone);
    let (found, ()) = tokio::join!(fetch(&*source, 1), stage.publish(&[], b"b"));
    assert_eq!(bodies(&found), ["b"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_survives_the_group_it_waited_in() {
    let stage = Streams::new();
    let source = stage.open(patient()).await;
    // Whoever reads and whoever delivers again both notice that the group is gone: neither may end the consumer.
    for _ in 0..20 {
        stage.publish(&[], b"a").await;
        let held = fetch(&*source, 1).await.remove(0);
        let now = Settlement::Retry { after: Duration::ZERO };
        assert_eq!(settle(&*source, held.tag, now).await.expect("settled"), Settled::Settled);
        let _: Value = stage.ask(&["XGROUP", "DESTROY", "orders", "workers"]).await;
        let again = fetch(&*source, 1).await.remove(0);
        assert_eq!(bodies(std::slice::from_ref(&again)), ["a"]);
        ack(&*source, again.tag).await;
        let _: Value = stage.ask(&["XTRIM", "orders", "MAXLEN", "0"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_whose_answer_is_lost_may_be_repeated() {
    let stage = Streams::new();
    let relay = Relay::start(stage.server.port()).expect("a relay");
    let url = format!("redis-stream://127.0.0.1:{}/orders", relay.port());
    let source = open(&url, &patient()).await.expect("opened");
    stage.publish(&[], b"a").await;
    stage.publish(&[], b"b").await;
    let held = fetch(&*source, 2).await;
    // The first call of a script also loads it: another answer than the one that is to be lost.
    ack(&*source, held[0].tag).await;
    relay.swallow_next();
    let lost = settle(&*source, held[1].tag, Settlement::Ack).await.expect_err("nobody can know");
    assert!(lost.is_retryable() && relay.swallowed() == 1, "{lost:?}");
    assert_eq!(settle(&*source, held[1].tag, Settlement::Ack).await.expect("answered"), Settled::Gone);
    assert_eq!(stage.outstanding().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_opened_is_told() {
    let stage = Streams::new();
    let error = |more: &'static str| {
        let url = stage.url(more);
        async move { open(&url, &Options::default()).await.expect_err(more).kind() }
    };
    assert_eq!(error("?grouping=g").await, SourceErrorKind::Misuse);
    assert_eq!(error("?dead_letter=orders").await, SourceErrorKind::Misuse);
    let () = stage.ask(&["SET", "orders", "no stream"]).await;
    assert_eq!(error("").await, SourceErrorKind::Refused);
    stage.server.kill();
    assert_eq!(error("").await, SourceErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_horizon_is_unbounded_and_the_idle_time_is_told() {
    let stage = Streams::new();
    let source = open_with(&stage, "?idle_seconds=7", Options::default()).await;
    assert_eq!(
        (source.horizon(), source.unsettled_max()),
        (Horizon::Unbounded, Some(Duration::from_secs(7)))
    );
}
