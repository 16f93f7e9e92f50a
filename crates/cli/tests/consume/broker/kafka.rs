//! Kafka: krafka's fake broker in the test's own process, which another process finds at its port. It is written to by
//! krafka's own client.
//!
//! A process that joins takes everything from the one that was killed, at once.

use std::time::Duration;

use krafka::Record;
use krafka::producer::Producer;
use krafka::testing::FakeBroker;
use tokio::runtime::Runtime;

use super::{Broker, GROUP, ORDERS, runtime};

const DEAD_LETTERS: &str = "orders.dead-letter";

pub(crate) struct Kafka {
    // ORDER: the client ends before the broker does, and both before the threads that they are on.
    producer: Producer,
    broker: FakeBroker,
    runtime: Runtime,
}

impl Broker for Kafka {
    fn start() -> Self {
        let runtime = runtime();
        let (broker, producer) = runtime.block_on(async {
            let broker = FakeBroker::start().await.unwrap();
            assert!(broker.create_topic(ORDERS, 1) && broker.create_topic(DEAD_LETTERS, 1));
            let producer = broker.kafka().connect().await.unwrap().producer().build().await.unwrap();
            (broker, producer)
        });
        Self { producer, broker, runtime }
    }

    fn source(&self, _: Duration) -> String {
        format!("kafka://{}/{ORDERS}?group={GROUP}", self.broker.bootstrap_servers())
    }

    fn publish(&self, id: &str, body: &str) {
        let record =
            Record::new(ORDERS, body.to_owned()).header("event-id", id.to_owned()).header("tenant", "acme");
        let _sent = self.runtime.block_on(self.producer.send(record)).unwrap();
    }

    fn left(&self) -> u64 {
        let committed = self.broker.committed_offset(GROUP, ORDERS, 0).unwrap_or_default();
        (self.broker.next_offset(ORDERS, 0).unwrap() - committed).try_into().unwrap()
    }

    fn dead_letters(&self) -> String {
        let letters = self.broker.committed_records(DEAD_LETTERS).unwrap();
        letters.iter().map(|letter| format!("{:?}", letter.headers)).collect::<Vec<_>>().join("\n")
    }
}
