//! NATS `JetStream`: the suites, and what only this broker can do.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, FromConsumer as _, PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream};
use futures_util::StreamExt as _;
use onlyonce_inbox::{Horizon, Settled, Settlement, Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::servers::NatsServer;

use crate::stage::{Letter, Stage, fetch, hasty, patient, settle};

/// Long for a consumer that is alive to stall, and short enough to wait for.
const ACK_WAIT: Duration = Duration::from_secs(20);
/// How long the server takes to look for deliveries whose ack wait, made shorter, is over.
const NOTICED: Duration = Duration::from_millis(300);

struct Nats {
    server: NatsServer,
}

impl Nats {
    async fn new() -> Self {
        let nats = Self { server: NatsServer::start().expect("a server") };
        let config =
            stream::Config { name: "orders".into(), subjects: vec!["orders.>".into()], ..Default::default() };
        nats.context().await.create_stream(config).await.expect("a stream");
        nats
    }

    fn url(&self, more: &str) -> String {
        format!("{}/orders{more}", self.server.url())
    }

    async fn context(&self) -> Context {
        jetstream::new(async_nats::connect(self.server.url()).await.expect("connected"))
    }
}

impl Stage for Nats {
    async fn open(&self, options: Options) -> Box<dyn Source> {
        open(&self.url(""), &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, *value);
        }
        let (context, body) = (self.context().await, body.to_vec().into());
        let sent = match headers {
            [] => context.publish("orders.new", body).await,
            _ => context.publish_with_headers("orders.new", map, body).await,
        };
        sent.expect("sent").await.expect("kept");
    }

    async fn dead_letters(&self) -> Vec<Letter> {
        let stream = self.context().await.get_stream("orders-dead-letter").await.expect("a stream");
        let count = stream.cached_info().state.messages;
        let consumer: PullConsumer =
            stream.create_consumer(pull::Config::default()).await.expect("a consumer");
        let mut letters = Vec::new();
        let mut found = consumer.messages().await.expect("messages");
        while u64::try_from(letters.len()).expect("few") < count {
            let letter = found.next().await.expect("a letter").expect("read");
            let headers = letter.headers.iter().flat_map(HeaderMap::iter);
            let headers = headers.map(|(name, values)| (name.to_string(), values[0].to_string())).collect();
            letters.push((headers, letter.payload.to_vec()));
        }
        letters
    }

    async fn restart(&self) {
        self.server.restart().expect("started again");
    }

    async fn take_away(&self) {
        // tidy: sleep because nothing but the end of its ack wait takes a delivery away
        tokio::time::sleep(ACK_WAIT + NOTICED).await;
    }

    fn options(&self) -> Options {
        hasty(ACK_WAIT)
    }

    /// What the dead had is delivered again without waiting for as long as the living may take.
    async fn starting(&self) {
        if self.set_ack_wait(Duration::from_millis(1)).await {
            // tidy: sleep because the server does not tell when it has looked
            tokio::time::sleep(NOTICED).await;
            self.set_ack_wait(ACK_WAIT).await;
        }
    }
}

impl Nats {
    /// False: there is no consumer yet.
    async fn set_ack_wait(&self, ack_wait: Duration) -> bool {
        let stream = self.context().await.get_stream("orders").await.expect("a stream");
        let Ok(info) = stream.consumer_info("workers").await else { return false };
        let config = pull::Config::try_from_consumer_config(info.config).expect("a pull consumer");
        stream.update_consumer(pull::Config { ack_wait, ..config }).await.expect("updated");
        true
    }
}

crate::suites! { Nats => Nats::new().await }
crate::broker_tests! { Nats::new().await }

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_holds_with_transactions_on_nats() {
    onlyonce_inbox::each_window!([crate::transactions_at_once] _name => Nats::new().await).await;
}

/// A message as large as the server takes leaves no room for what a dead letter says beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dead_letter_of_a_message_that_fills_the_limit_is_kept() {
    let stage = Nats::new().await;
    let largest = stage.context().await.client().max_payload();
    let source = stage.open(patient()).await;
    // With no headers, and with a little room beside its own.
    for (headers, bytes) in [(&[][..], largest), (&[("event-id", "e1")][..], largest - 150)] {
        stage.publish(headers, &vec![7; bytes]).await;
        let held = fetch(&*source, 1).await.remove(0);
        let how = Settlement::DeadLetter { reason: "it is broken ".repeat(40) };
        assert_eq!(settle(&*source, held.tag, how).await.expect("kept"), Settled::Settled);
        let letters = stage.dead_letters().await;
        let (kept, body) = letters.last().expect("a letter");
        assert_eq!(body.len(), bytes);
        assert!(headers.iter().all(|(name, _)| kept.iter().any(|(known, _)| known == name)));
    }
    assert_eq!(stage.dead_letters().await.len(), 2);
    // One that the stream for dead letters does not take is refused in words, and not tried again for ever.
    let context = stage.context().await;
    let stream = context.get_stream("orders-dead-letter").await.expect("a stream");
    let config = stream::Config { max_message_size: 10, ..stream.cached_info().config.clone() };
    context.update_stream(config).await.expect("updated");
    stage.publish(&[], b"small").await;
    let held = fetch(&*source, 1).await.remove(0);
    let how = Settlement::DeadLetter { reason: "it is broken".into() };
    let refused = settle(&*source, held.tag, how).await.expect_err("too large");
    assert_eq!((refused.kind(), refused.is_retryable()), (SourceErrorKind::Refused, false), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_horizon_is_that_of_the_consumer_or_the_stream() {
    let stage = Nats::new().await;
    let unbounded = stage.open(patient()).await;
    assert_eq!(unbounded.horizon(), Horizon::Unbounded);
    let context = stage.context().await;
    let stream = context.get_stream("orders").await.expect("a stream");
    let config = pull::Config {
        durable_name: Some("few".into()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: Duration::from_secs(7),
        max_deliver: 3,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.expect("a consumer");
    // A consumer that is there is taken as it is.
    let few = open(&stage.url("?group=few"), &patient()).await.expect("opened");
    assert_eq!(few.unsettled_max(), Some(Duration::from_secs(7)));
    assert_eq!(few.horizon(), Horizon::Within(Duration::from_secs(21)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_opened_is_told() {
    let stage = Nats::new().await;
    let context = stage.context().await;
    let stream = context.get_stream("orders").await.expect("a stream");
    let config = pull::Config {
        durable_name: Some("careless".into()),
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    stream.create_consumer(config).await.expect("a consumer");
    let kind = |url: String| async move { open(&url, &patient()).await.expect_err(&url).kind() };
    assert_eq!(kind(stage.url("?group=careless")).await, SourceErrorKind::Misuse);
    assert_eq!(kind(stage.url("?dead_letter=orders.dead")).await, SourceErrorKind::Misuse);
    assert_eq!(kind(stage.url("?grouping=g")).await, SourceErrorKind::Misuse);
    assert_eq!(kind(format!("{}/nowhere", stage.server.url())).await, SourceErrorKind::Refused);
    stage.server.kill();
    assert_eq!(kind(stage.url("")).await, SourceErrorKind::Unavailable);
}
