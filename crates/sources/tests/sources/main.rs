//! Every source on its real broker, started by the tests: one set of suites for all of them, and what each does besides.
#![cfg(any(feature = "redis-streams", feature = "nats", feature = "rabbitmq", feature = "kafka"))]

mod broker;
#[cfg(feature = "kafka")]
mod fake_kafka;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_soak;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis-streams")]
mod redis_streams;
mod stage;
mod suites;
