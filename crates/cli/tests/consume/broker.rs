//! The brokers that the program is tried on: real ones, private to a test.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod rabbitmq;
mod streams;

use std::time::Duration;

#[cfg(feature = "kafka")]
pub(crate) use kafka::Kafka;
pub(crate) use nats::Nats;
pub(crate) use rabbitmq::Rabbit;
pub(crate) use streams::Streams;

/// The queue, stream or subject that is consumed, and the group that consumes it.
const ORDERS: &str = "orders";
const GROUP: &str = "workers";

/// A broker with one place to publish to.
pub(crate) trait Broker: Sized {
    fn start() -> Self;

    /// What `--source` is told. What a killed process had comes again after about `redelivered_after`, or at once.
    fn source(&self, redelivered_after: Duration) -> String;

    /// Publishes a message with an id and the header `tenant: acme`.
    fn publish(&self, id: &str, body: &str);

    /// How many messages the group has not settled. Asked when nobody consumes.
    fn left(&self) -> u64;

    /// Every dead letter with its headers, as a text.
    fn dead_letters(&self) -> String;
}

/// A runtime for a client of a broker.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}
