//! Kafka: the suites on librdkafka's mock cluster, and what only this broker does. Its groups take seconds to form, so
//! everything waits for them together.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::{Extended, Horizon, Settled, Settlement, Source, SourceErrorKind};
use onlyonce_sources::{Options, open};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{DefaultProducerContext, FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message as _, Offset, TopicPartitionList};

use crate::broker;
use crate::stage::{Letter, Stage, ack, bodies, fetch, finish_all, patient, settle};

type Mock = MockCluster<'static, DefaultProducerContext>;
type Order = Box<dyn FnOnce(&Mock) + Send>;

/// A mock cluster in a thread of its own, which is the only one that may touch it.
struct Cluster {
    servers: String,
    orders: Sender<Order>,
}

impl Cluster {
    fn start() -> Self {
        let (tell, told) = channel();
        let (orders, to_do) = channel::<Order>();
        std::thread::spawn(move || {
            let cluster = Mock::new(1).expect("a cluster");
            let _ = tell.send(cluster.bootstrap_servers());
            // Until nobody can order any more.
            for order in to_do {
                order(&cluster);
            }
        });
        Self { servers: told.recv().expect("a cluster"), orders }
    }

    fn order(&self, order: impl FnOnce(&Mock) + Send + 'static) {
        let (tell, told) = channel();
        let order = move |cluster: &Mock| {
            order(cluster);
            let _ = tell.send(());
        };
        self.orders.send(Box::new(order)).expect("a cluster");
        told.recv().expect("the cluster did as it was told");
    }
}

/// A cluster of its own, with one topic.
struct Kafka {
    cluster: Cluster,
    producer: FutureProducer,
}

impl Kafka {
    fn new(partitions: i32) -> Self {
        let cluster = Cluster::start();
        cluster.order(move |cluster| {
            cluster.create_topic("orders", partitions, 1).expect("a topic");
            cluster.create_topic("orders.dead-letter", 1, 1).expect("a topic");
        });
        let producer = Self::config(&cluster).create().expect("a producer");
        Self { cluster, producer }
    }

    fn config(cluster: &Cluster) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &cluster.servers);
        config
    }

    /// The mock lets a group that changes wait for nearly as long as a member may be silent.
    fn url(&self, more: &str) -> String {
        format!("kafka://{}/orders?session_seconds=6{more}", self.cluster.servers)
    }

    async fn publish_to(&self, partition: i32, headers: &[(&str, &str)], body: &[u8]) {
        send(&self.producer, partition, headers, body).await;
    }

    fn committed(&self) -> Vec<(i64, i64)> {
        committed(&self.cluster.servers)
    }

    fn outstanding(&self) -> u64 {
        outstanding(&self.cluster.servers)
    }
}

/// Publishes a record, and waits until the broker has it.
pub(crate) async fn send(producer: &FutureProducer, partition: i32, headers: &[(&str, &str)], body: &[u8]) {
    let mut kept = OwnedHeaders::new();
    for (key, value) in headers {
        kept = kept.insert(Header { key, value: Some(*value) });
    }
    let record: FutureRecord<'_, [u8], [u8]> =
        FutureRecord::to("orders").partition(partition).headers(kept).payload(body);
    producer.send(record, Duration::from_mins(1)).await.expect("sent");
}

/// What the group has committed in each partition, and what there is.
pub(crate) fn committed(servers: &str) -> Vec<(i64, i64)> {
    let mut config = ClientConfig::new();
    let created = config.set("bootstrap.servers", servers).set("group.id", "workers").create();
    let (consumer, timeout): (BaseConsumer, _) = (created.expect("a consumer"), Duration::from_mins(1));
    let found = consumer.fetch_metadata(Some("orders"), timeout).expect("a topic");
    let mut list = TopicPartitionList::new();
    for partition in found.topics()[0].partitions() {
        list.add_partition("orders", partition.id());
    }
    let committed = consumer.committed_offsets(list, timeout).expect("offsets");
    let high = |partition| consumer.fetch_watermarks("orders", partition, timeout).expect("watermarks").1;
    let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
    let places = committed.elements();
    places.iter().map(|place| (offset(place.offset()), high(place.partition()))).collect()
}

/// How many records the group has still to finish.
pub(crate) fn outstanding(servers: &str) -> u64 {
    let missing: i64 = committed(servers).iter().map(|(committed, high)| high - committed).sum();
    u64::try_from(missing).expect("no further than the end")
}

impl Stage for Kafka {
    const IN_ORDER: bool = true;
    /// The mock lets a group wait for seconds before it has members.
    const KILLS: u64 = 8;

    async fn open(&self, options: Options) -> Box<dyn Source> {
        open(&self.url(""), &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        self.publish_to(0, headers, body).await;
    }

    async fn dead_letters(&self) -> Vec<Letter> {
        let consumer: BaseConsumer = Self::config(&self.cluster)
            .set("group.id", "operators")
            .set("enable.partition.eof", "true")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("orders.dead-letter", 0, Offset::Beginning).expect("a place");
        consumer.assign(&list).expect("assigned");
        let mut letters = Vec::new();
        // The end of the partition is an error.
        while let Some(Ok(letter)) = consumer.poll(Duration::from_mins(1)) {
            let text = |value: Option<&[u8]>| String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
            let headers = letter.headers().into_iter().flat_map(|headers| headers.iter());
            let headers = headers.map(|header| (header.key.to_owned(), text(header.value))).collect();
            letters.push((headers, letter.payload().unwrap_or_default().to_vec()));
        }
        letters
    }

    async fn restart(&self) {
        self.cluster.order(|cluster| {
            cluster.broker_down(1).expect("down");
            cluster.broker_up(1).expect("up");
        });
    }

    /// Whoever joins the group next takes everything away: its partitions are given out anew.
    async fn take_away(&self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_clause_and_every_window_holds_on_kafka() {
    macro_rules! at_once {
        ($($test:ident),+ $(,)?) => {
            async { tokio::join!($(Box::pin(async { broker::$test(&Kafka::new(1)).await; })),+) }
        };
    }
    let own = at_once!(
        a_message_and_its_dead_letter_are_as_published,
        a_retry_does_not_come_too_early,
        a_fetch_that_is_dropped_loses_nothing,
        the_lag_is_what_waits,
    );
    tokio::join!(
        own,
        onlyonce_inbox::each_clause!([crate::clauses_at_once] _name => Kafka::new(1)),
        onlyonce_inbox::each_window!([crate::windows_at_once] _name => Kafka::new(1)),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_holds_with_transactions_on_kafka() {
    onlyonce_inbox::each_window!([crate::transactions_at_once] _name => Kafka::new(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_kafka_does() {
    tokio::join!(
        no_further_than_the_first_unfinished_is_committed(),
        a_retry_holds_up_its_partition_and_no_other(),
        a_revoked_delivery_is_gone(),
        a_commit_that_is_refused_is_made_when_it_may_be(),
        a_broker_that_was_away_costs_no_record(),
        who_has_read_enough_ahead_hears_of_rebalances_and_reads_on(),
        what_cannot_be_opened_is_told(),
    );
}

async fn no_further_than_the_first_unfinished_is_committed() {
    let stage = Kafka::new(1);
    for body in ["a", "b", "c"] {
        stage.publish(&[("event-id", body)], body.as_bytes()).await;
    }
    let source = stage.open(patient()).await;
    let held = fetch(&*source, 3).await;
    assert_eq!(held[0].message.position.as_deref(), Some("orders:0:0"));
    ack(&*source, held[1].tag).await;
    assert_eq!(stage.committed(), [(0, 3)]);
    ack(&*source, held[0].tag).await;
    assert_eq!(stage.committed(), [(2, 3)]);
    source.close().await.expect("closed");
    let other = stage.open(patient()).await;
    assert_eq!(bodies(&fetch(&*other, 1).await), ["c"]);
    assert_eq!((other.unsettled_max(), other.horizon()), (None, Horizon::Unbounded));
    other.close().await.expect("closed");
}

async fn a_retry_holds_up_its_partition_and_no_other() {
    let stage = Kafka::new(2);
    stage.publish_to(0, &[], b"a").await;
    let source = stage.open(patient()).await;
    let first = fetch(&*source, 1).await.remove(0);
    let later = Settlement::Retry { after: Duration::from_secs(2) };
    assert_eq!(settle(&*source, first.tag, later).await.expect("settled"), Settled::Settled);
    stage.publish_to(0, &[], b"b").await;
    stage.publish_to(1, &[], b"other").await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["other"]);
    let again = fetch(&*source, 1).await.remove(0);
    assert_eq!((&again.message.body[..], again.deliveries), (&b"a"[..], Some(2)));
    ack(&*source, again.tag).await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["b"]);
    source.close().await.expect("closed");
}

async fn a_revoked_delivery_is_gone() {
    let stage = Kafka::new(2);
    for partition in [0, 1] {
        stage.publish_to(partition, &[], format!("{partition}").as_bytes()).await;
    }
    let first = stage.open(patient()).await;
    let held = fetch(&*first, 2).await;
    let second = stage.open(patient()).await;
    // Each member has one partition now, and what was not finished is delivered again to whoever has it.
    let (mine, theirs) = tokio::join!(fetch(&*first, 1), fetch(&*second, 1));
    for delivery in &held {
        assert_eq!(settle(&*first, delivery.tag, Settlement::Ack).await.expect("answered"), Settled::Gone);
        let extended = first.extend(&[delivery.tag]).await.expect("answered").remove(0).expect("answered");
        assert_eq!(extended, Extended::Gone);
    }
    assert_eq!(stage.outstanding(), 2, "nothing was finished in another's place");
    finish_all(vec![(&*first, mine), (&*second, theirs)], async || stage.outstanding()).await;
    first.close().await.expect("closed");
    second.close().await.expect("closed");
}

async fn a_commit_that_is_refused_is_made_when_it_may_be() {
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    let stage = Kafka::new(1);
    for body in ["a", "b", "c"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let source = stage.open(patient()).await;
    let held = fetch(&*source, 3).await;
    let refusals = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE,
    ];
    for (delivery, refusal) in held.iter().zip(refusals) {
        let before = stage.committed()[0].0;
        stage.cluster.order(move |cluster| cluster.request_errors(RDKafkaApiKey::OffsetCommit, &[refusal]));
        let error = settle(&*source, delivery.tag, Settlement::Ack).await.expect_err("refused");
        assert_eq!(error.kind(), SourceErrorKind::Refused, "{error:?}");
        let extended = source.extend(&[delivery.tag]).await.expect("answered").remove(0).expect("answered");
        assert_eq!(extended, Extended::Extended, "nobody took it away");
        assert_eq!(stage.committed(), [(before, 3)]);
        // Somebody gave us the right.
        ack(&*source, delivery.tag).await;
        assert_eq!(stage.committed(), [(before + 1, 3)]);
    }
    source.close().await.expect("closed");
}

async fn a_broker_that_was_away_costs_no_record() {
    let stage = Kafka::new(1);
    stage.publish(&[], b"a").await;
    let source = stage.open(patient()).await;
    let found = fetch(&*source, 1).await;
    stage.restart().await;
    stage.publish(&[], b"b").await;
    finish_all(vec![(&*source, found)], async || stage.outstanding()).await;
    source.close().await.expect("closed");
}

/// Nobody fetches from the first of two members, which has read as far ahead as it may.
async fn who_has_read_enough_ahead_hears_of_rebalances_and_reads_on() {
    const EACH: usize = 3 * FETCH_MAX;
    let stage = Kafka::new(2);
    let bodies: Vec<_> = (0..2 * EACH).map(|number| format!("{number}")).collect();
    join_all(
        bodies
            .iter()
            .zip([0, 1].into_iter().cycle())
            .map(|(body, partition)| stage.publish_to(partition, &[], body.as_bytes())),
    )
    .await;
    let first = stage.open(patient()).await;
    let held = fetch(&*first, 1).await;
    let second = stage.open(patient()).await;
    let theirs = fetch(&*second, 1).await;
    assert_eq!((held.len(), theirs.len()), (1, 1));
    let members = vec![(&*first, held), (&*second, theirs)];
    let seen = finish_all(members, async || stage.outstanding()).await;
    assert_eq!(seen.len(), bodies.len(), "none is left out");
    first.close().await.expect("closed");
    second.close().await.expect("closed");
}

async fn what_cannot_be_opened_is_told() {
    let stage = Kafka::new(1);
    for more in ["&grouping=g", "&from=middle", "&dead_letter=orders"] {
        let error = open(&stage.url(more), &patient()).await.expect_err(more);
        assert_eq!(error.kind(), SourceErrorKind::Misuse, "{more}: {error:?}");
    }
    // One that no broker makes on use.
    stage.cluster.order(|cluster| {
        cluster.create_topic("nowhere", 1, 1).expect("a topic");
        let unknown = rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
        cluster.topic_error("nowhere", unknown).expect("an error");
    });
    let error = open(&stage.url("&dead_letter=nowhere"), &patient()).await.expect_err("no topic");
    assert_eq!(error.kind(), SourceErrorKind::Refused, "{error:?}");
    let told = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(told.contains("no topic nowhere") && told.contains("dead_letter="), "{told}");
    let made = open(&stage.url("&dead_letter=made-on-use"), &patient()).await.expect("opened");
    made.close().await.expect("closed");
    let within = open(&stage.url("&retention_seconds=60"), &patient()).await.expect("opened");
    assert_eq!(within.horizon(), Horizon::Within(Duration::from_mins(1)));
    within.close().await.expect("closed");
}
