//! `RabbitMQ`: the clauses, and what only this broker can do. One server for all: it takes seconds to start.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onlyonce_inbox::{Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::servers::RabbitServer;
use tokio::sync::Mutex;

use crate::clauses;
use crate::stage::{Stage, ack, bodies, fetch, patient};

/// A queue of its own on a server that others use too.
struct Queue {
    server: Arc<RabbitServer>,
    name: &'static str,
    /// Publishing over a connection each would take most of the test's time.
    link: Mutex<Option<(Connection, Channel)>>,
}

impl Queue {
    async fn new(server: &Arc<RabbitServer>, name: &'static str) -> Self {
        let queue = Self { server: Arc::clone(server), name, link: Mutex::new(None) };
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let made = queue.channel().await.queue_declare(name.into(), durable, FieldTable::default()).await;
        made.expect("a queue");
        queue
    }

    async fn channel(&self) -> Channel {
        let mut link = self.link.lock().await;
        if let Some((_, channel)) = link.as_ref().filter(|(_, channel)| channel.status().connected()) {
            return channel.clone();
        }
        let connection = Connection::connect(&self.server.url(), ConnectionProperties::default()).await;
        let connection = connection.expect("connected");
        let channel = connection.create_channel().await.expect("a channel");
        channel.confirm_select(ConfirmSelectOptions::default()).await.expect("confirms");
        *link = Some((connection, channel.clone()));
        channel
    }

    fn url(&self, more: &str) -> String {
        format!("{}/?queue={}{more}", self.server.url(), self.name)
    }

    async fn count(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let found = self.channel().await.queue_declare(queue.into(), passive, FieldTable::default()).await;
        found.expect("a queue").message_count()
    }
}

impl Stage for Queue {
    async fn open(&self, options: Options) -> Box<dyn Source> {
        open(&self.url(""), &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let properties = BasicProperties::default().with_headers(table).with_delivery_mode(2);
        let channel = self.channel().await;
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = channel.basic_publish("".into(), self.name.into(), options, body, properties).await;
        assert!(sent.expect("sent").await.expect("confirmed").is_ack());
    }

    async fn dead_letters(&self) -> Vec<(Vec<(String, String)>, Vec<u8>)> {
        let (channel, queue) = (self.channel().await, format!("{}.dead-letter", self.name));
        let text = |value: &AMQPValue| match value {
            AMQPValue::LongString(text) => text.to_string(),
            other => format!("{other:?}"),
        };
        let mut letters = Vec::new();
        while let Some(letter) =
            channel.basic_get(queue.as_str().into(), BasicGetOptions { no_ack: true }).await.expect("asked")
        {
            let headers = letter.delivery.properties.headers().clone().unwrap_or_default();
            let headers =
                headers.inner().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            letters.push((headers, letter.delivery.data));
        }
        letters
    }

    async fn outstanding(&self) -> u64 {
        self.count(self.name).await.into()
    }

    async fn restart(&self) {
        self.server.restart().expect("started again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_clause_holds_on_rabbitmq() {
    let server = Arc::new(RabbitServer::start(&[]).expect("a server"));
    macro_rules! all {
        ($($clause:ident),+ $(,)?) => { tokio::join!($(async {
            clauses::$clause(&Queue::new(&server, stringify!($clause)).await).await;
        }),+) };
    }
    all!(
        s1_what_is_published_is_delivered_as_it_is,
        s3_what_a_dead_consumer_held_is_delivered_to_another,
        s4_what_is_acknowledged_is_not_delivered_again,
        s5_a_retry_comes_again_as_it_was_and_not_too_early,
        s6_a_dead_letter_is_kept_with_its_reason,
        s7_a_batch_is_answered_item_by_item,
        s9_a_delivery_in_progress_stays_ours,
        s12_closing_gives_back_what_is_not_settled,
        a_fetch_that_is_dropped_loses_nothing,
    );
    tokio::join!(
        async { no_more_is_held_than_the_prefetch(&Queue::new(&server, "prefetch").await).await },
        async { a_queue_that_is_not_there_is_refused(&server).await },
    );
    clauses::what_a_killed_broker_kept_is_delivered_again(&Queue::new(&server, "killed").await).await;
}

async fn no_more_is_held_than_the_prefetch(queue: &Queue) {
    for number in 0..5 {
        queue.publish(&[], format!("{number}").as_bytes()).await;
    }
    let source = open(&queue.url("&prefetch=2"), &patient()).await.expect("opened");
    let held = fetch(&*source, 2).await;
    assert_eq!(bodies(&held), ["0", "1"]);
    while queue.count(queue.name).await != 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(source.lag().await.expect("answered"), Some(3));
    ack(&*source, held[0].tag).await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["2"]);
    assert_eq!(source.unsettled_max(), Some(Duration::from_mins(10)));
}

async fn a_queue_that_is_not_there_is_refused(server: &RabbitServer) {
    let error = open(&format!("{}/?queue=nowhere", server.url()), &patient()).await.expect_err("no queue");
    assert_eq!(error.kind(), SourceErrorKind::Refused, "{error:?}");
}
