//! NATS `JetStream`: the clauses, and what only this broker can do.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context, stream};
use futures_util::StreamExt as _;
use onlyonce_inbox::{Horizon, Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::servers::NatsServer;

use crate::stage::{Stage, patient};

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
        let context = self.context().await;
        let sent = context.publish_with_headers("orders.new", map, body.to_vec().into()).await;
        sent.expect("sent").await.expect("kept");
    }

    async fn dead_letters(&self) -> Vec<(Vec<(String, String)>, Vec<u8>)> {
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

    async fn outstanding(&self) -> u64 {
        let stream = self.context().await.get_stream("orders").await.expect("a stream");
        let info = stream.consumer_info("workers").await.expect("a consumer");
        info.num_pending + u64::try_from(info.num_ack_pending).expect("a count")
    }

    async fn restart(&self) {
        self.server.restart().expect("started again");
    }
}

crate::clauses! { Nats::new().await }

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
