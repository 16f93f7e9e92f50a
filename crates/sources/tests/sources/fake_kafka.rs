//! Kafka on krafka's fake broker, which has nothing in common with librdkafka but the protocol: the suites, and what only
//! this broker can do. It fails when and how it is told.
//!
//! It lets one member into a group at a time: whoever joins takes everything away from who was there, who learns of it
//! later, joins again, and takes everything back.

mod faults;

use krafka::testing::{ApiKey, Control, FakeBroker};
use onlyonce_inbox::{Settled, Settlement, Source};
use onlyonce_sources::{Options, open};
use rdkafka::ClientConfig;
use rdkafka::producer::FutureProducer;

use crate::kafka::send;
use crate::stage::{Letter, Stage, ack, bodies, fetch, finish_all, patient, settle_surely};

/// The only node of a cluster.
const NODE: i32 = 0;
const DEAD_LETTERS: &str = "orders.dead-letter";

/// A broker of its own, with one topic.
struct Fake {
    broker: FakeBroker,
    partitions: i32,
    producer: FutureProducer,
}

impl Fake {
    async fn new(partitions: i32) -> Self {
        let broker = FakeBroker::start().await.expect("a broker");
        assert!(broker.create_topic("orders", partitions) && broker.create_topic(DEAD_LETTERS, 1));
        let producer = ClientConfig::new().set("bootstrap.servers", broker.bootstrap_servers()).create();
        Self { broker, partitions, producer: producer.expect("a producer") }
    }

    async fn publish_to(&self, partition: i32, headers: &[(&str, &str)], body: &[u8]) {
        send(&self.producer, partition, headers, body).await;
    }

    /// What the group has committed in a partition.
    fn committed(&self, partition: i32) -> i64 {
        self.broker.committed_offset("workers", "orders", partition).unwrap_or_default()
    }

    fn outstanding(&self) -> u64 {
        let missing = |partition| {
            self.broker.next_offset("orders", partition).expect("a partition") - self.committed(partition)
        };
        let missing: i64 = (0..self.partitions).map(missing).sum();
        u64::try_from(missing).expect("no further than the end")
    }
}

impl Stage for Fake {
    const IN_ORDER: bool = true;

    async fn open(&self, options: Options) -> Box<dyn Source> {
        let url = format!("kafka://{}/orders", self.broker.bootstrap_servers());
        open(&url, &options).await.expect("opened")
    }

    async fn publish(&self, headers: &[(&str, &str)], body: &[u8]) {
        self.publish_to(0, headers, body).await;
    }

    async fn dead_letters(&self) -> Vec<Letter> {
        let text =
            |value: Option<bytes::Bytes>| String::from_utf8_lossy(&value.unwrap_or_default()).into_owned();
        let letters = self.broker.committed_records(DEAD_LETTERS).expect("a topic").into_iter();
        letters
            .map(|letter| {
                let headers = letter.headers.into_iter().map(|(key, value)| (key, text(value))).collect();
                (headers, letter.value.unwrap_or_default().to_vec())
            })
            .collect()
    }

    async fn restart(&self) {
        self.broker.crash(NODE);
        self.broker.restart(NODE);
    }

    /// Whoever joins the group next takes everything away.
    async fn take_away(&self) {}
}

crate::suites!(Fake => Fake::new(1).await);

crate::broker_tests! { Fake::new(1).await;
    a_message_and_its_dead_letter_are_as_published,
    a_retry_does_not_come_too_early,
    a_fetch_that_is_dropped_loses_nothing,
    the_lag_is_what_waits,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_window_holds_with_transactions_on_a_fake_broker() {
    onlyonce_inbox::each_window!([crate::transactions_at_once] _name => Fake::new(1).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashed_member_is_replaced_from_the_last_commit() {
    let stage = Fake::new(1).await;
    for body in ["a", "b", "c", "d"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let source = stage.open(patient()).await;
    let held = fetch(&*source, 4).await;
    for done in [0, 2] {
        ack(&*source, held[done].tag).await;
    }
    assert_eq!(stage.committed(0), 1, "no further than the first unfinished");
    // The broker does not hear that it leaves.
    stage.broker.on_once(ApiKey::LeaveGroup, |_| Control::Disconnect);
    source.close().await.expect("closed");
    drop(source);
    let other = stage.open(patient()).await;
    let again = fetch(&*other, 3).await;
    assert_eq!(bodies(&again), ["b", "c", "d"]);
    for delivery in again {
        ack(&*other, delivery.tag).await;
    }
    assert_eq!(stage.outstanding(), 0);
    other.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_take_partitions_from_each_other_lose_nothing() {
    const EACH: i64 = 20;
    let stage = Fake::new(2).await;
    for (number, partition) in (0..2 * EACH).zip([0, 1].into_iter().cycle()) {
        stage.publish_to(partition, &[], format!("{number}").as_bytes()).await;
    }
    let first = stage.open(patient()).await;
    let held = fetch(&*first, 1).await.remove(0);
    let second = stage.open(patient()).await;
    // It has everything now, and the first does not know.
    let theirs = fetch(&*second, 1).await;
    let settled = settle_surely(&*first, held.tag, &Settlement::Ack).await;
    assert_eq!(settled.expect("answered"), Settled::Gone);
    assert_eq!((stage.committed(0), stage.committed(1)), (0, 0), "nothing was finished in another's place");
    // The first joins again, and takes everything back. Two would take turns for ever here: it goes, and the second gets
    // everything once more.
    fetch(&*first, 5).await;
    first.close().await.expect("closed");
    let seen = finish_all(vec![(&*second, theirs)], async || stage.outstanding()).await;
    assert_eq!(seen.len(), 2 * usize::try_from(EACH).expect("small"), "none is left out");
    second.close().await.expect("closed");
}
