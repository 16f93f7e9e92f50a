//! `RabbitMQ`: the suites, and what only this broker can do. One server for all: it takes seconds to start.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{Settled, Settlement, Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::servers::{RabbitServer, Relay};
use tokio::sync::Mutex;

use crate::broker;
use crate::stage::{Letter, Stage, ack, bodies, fetch, patient, settle, wait_until};

/// A queue of its own on a server that others use too.
struct Queue {
    server: Arc<RabbitServer>,
    name: &'static str,
    /// Publishing over a connection each would take most of the test's time.
    link: Mutex<Option<(Connection, Channel)>>,
    /// Each source is behind one of its own, so that it can be cut off for good, as a machine that hangs is.
    relays: Mutex<Vec<Relay>>,
}

impl Queue {
    async fn new(server: &Arc<RabbitServer>, name: &'static str) -> Self {
        let (link, relays) = (Mutex::new(None), Mutex::default());
        let queue = Self { server: Arc::clone(server), name, link, relays };
        queue.declare().await;
        queue
    }

    async fn declare(&self) {
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        let made = self.channel().await.queue_declare(self.name.into(), durable, FieldTable::default()).await;
        made.expect("a queue");
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

    fn url(&self, port: u16, more: &str) -> String {
        format!("amqp://127.0.0.1:{port}/?queue={}{more}", self.name)
    }

    async fn publish_as(&self, properties: BasicProperties, body: &[u8]) {
        let channel = self.channel().await;
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        let sent = channel.basic_publish("".into(), self.name.into(), options, body, properties).await;
        assert!(sent.expect("sent").await.expect("confirmed").is_ack());
    }

    async fn count(&self, queue: &str) -> u32 {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let found = self.channel().await.queue_declare(queue.into(), passive, FieldTable::default()).await;
        found.expect("a queue").message_count()
    }
}

impl Stage for Queue {
    async fn open(&self, options: Options) -> Box<dyn Source> {
        let relay = Relay::start(self.server.port()).expect("a relay");
        let url = self.url(relay.port(), "");
        self.relays.lock().await.push(relay);
        open(&url, &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        let mut table = FieldTable::default();
        for (name, value) in headers {
            table.insert((*name).into(), AMQPValue::LongString((*value).into()));
        }
        let properties = BasicProperties::default().with_headers(table).with_delivery_mode(2);
        self.publish_as(properties, body).await;
    }

    async fn dead_letters(&self) -> Vec<Letter> {
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

    async fn restart(&self) {
        self.server.restart().expect("started again");
    }

    /// The server takes deliveries away when it loses a connection: here with the next thing it says, a heartbeat at the
    /// latest. They are in the queue again then.
    async fn take_away(&self) {
        for relay in self.relays.lock().await.drain(..) {
            relay.swallow_next();
        }
        in_time("cutting connections", async {
            while self.count(self.name).await == 0 {
                // tidy: sleep because the server speaks when it likes
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_clause_and_every_window_holds_on_rabbitmq() {
    let server = Arc::new(RabbitServer::start(&[]).expect("a server"));
    macro_rules! at_once {
        ($($test:ident),+ $(,)?) => { async { tokio::join!($(Box::pin(async {
            broker::$test(&Queue::new(&server, stringify!($test)).await).await;
        })),+) } };
    }
    let own = at_once!(
        a_message_and_its_dead_letter_are_as_published,
        a_retry_does_not_come_too_early,
        a_delivery_in_progress_stays_ours,
        a_fetch_that_is_dropped_loses_nothing,
    );
    let clauses =
        onlyonce_inbox::each_clause!([crate::clauses_at_once] name => Queue::new(&server, name).await);
    tokio::join!(
        own,
        clauses,
        no_more_is_held_than_the_prefetch(&server),
        a_queue_that_is_not_there_is_refused(&server),
        a_retry_waits_for_its_queue(&server),
        a_message_that_would_expire_is_retried_and_kept(&server),
    );
    onlyonce_inbox::each_window!([crate::windows_at_once] name => Queue::new(&server, name).await).await;
    // ORDER: last, because the server is killed.
    broker::what_a_killed_broker_kept_is_delivered_again(&Queue::new(&server, "killed").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_holds_with_transactions_on_rabbitmq() {
    let server = Arc::new(RabbitServer::start(&[]).expect("a server"));
    onlyonce_inbox::each_window!([crate::transactions_at_once] name => Queue::new(&server, name).await).await;
}

/// A retry whose queue is away when its wait ends is passed on once the queue is there again.
async fn a_retry_waits_for_its_queue(server: &Arc<RabbitServer>) {
    let queue = Queue::new(server, "away").await;
    let after = Duration::from_secs(2);
    let round = Box::pin(async {
        loop {
            let source = queue.open(patient()).await;
            queue.publish(&[], b"again").await;
            let held = fetch(&*source, 1).await.remove(0);
            let settled = settle(&*source, held.tag, Settlement::Retry { after }).await.expect("settled");
            assert_eq!(settled, Settled::Settled);
            source.close().await.expect("closed");
            let only_empty = QueueDeleteOptions { if_empty: true, ..Default::default() };
            if queue.channel().await.queue_delete(queue.name.into(), only_empty).await.is_ok() {
                break;
            }
            // This machine stalled until the wait was over.
            let source = queue.open(patient()).await;
            ack(&*source, fetch(&*source, 1).await[0].tag).await;
            source.close().await.expect("closed");
        }
    });
    in_time("a round without a stall", round).await;
    // tidy: sleep because a wait that ends meanwhile is what is tested
    tokio::time::sleep(after * 2).await;
    queue.declare().await;
    let source = queue.open(patient()).await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["again"]);
}

/// What a publisher says of its life ends with its first delivery; who published it is not forgotten.
async fn a_message_that_would_expire_is_retried_and_kept(server: &Arc<RabbitServer>) {
    let queue = Queue::new(server, "expiring").await;
    let source = queue.open(patient()).await;
    let life = Duration::from_mins(10).as_millis().to_string();
    let properties = BasicProperties::default()
        .with_expiration(life.into())
        .with_user_id("guest".into())
        .with_message_id("m1".into());
    queue.publish_as(properties, b"mortal").await;
    let first = fetch(&*source, 1).await.remove(0);
    let soon = Settlement::Retry { after: Duration::from_millis(10) };
    assert_eq!(settle(&*source, first.tag, soon).await.expect("settled"), Settled::Settled);
    let second = fetch(&*source, 1).await.remove(0);
    for header in ["user-id", "message-id"] {
        assert!(first.message.headers.text(header).is_some(), "{header}");
        assert_eq!(second.message.headers.text(header), first.message.headers.text(header), "{header}");
    }
    // Straight from a publisher, and from a retry.
    let properties = BasicProperties::default().with_expiration("600000".into());
    queue.publish_as(properties, b"mortal").await;
    let third = fetch(&*source, 1).await.remove(0);
    for delivery in [second, third] {
        let reason = "it is broken".to_owned();
        let kept = settle(&*source, delivery.tag, Settlement::DeadLetter { reason }).await.expect("kept");
        assert_eq!(kept, Settled::Settled);
    }
    assert_eq!(queue.dead_letters().await.len(), 2);
}

async fn no_more_is_held_than_the_prefetch(server: &Arc<RabbitServer>) {
    let queue = Queue::new(server, "prefetch").await;
    for number in 0..5 {
        queue.publish(&[], format!("{number}").as_bytes()).await;
    }
    let source = open(&queue.url(server.port(), "&prefetch=2"), &patient()).await.expect("opened");
    let held = fetch(&*source, 2).await;
    assert_eq!(bodies(&held), ["0", "1"]);
    wait_until("all but two", 3, async || queue.count(queue.name).await).await;
    assert_eq!(source.lag().await.expect("answered"), Some(3));
    ack(&*source, held[0].tag).await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["2"]);
    assert_eq!(source.unsettled_max(), Some(Duration::from_mins(10)));
}

async fn a_queue_that_is_not_there_is_refused(server: &RabbitServer) {
    let error = open(&format!("{}/?queue=nowhere", server.url()), &patient()).await.expect_err("no queue");
    assert_eq!(error.kind(), SourceErrorKind::Refused, "{error:?}");
}
