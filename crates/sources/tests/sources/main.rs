//! Every source on its real broker, started by the tests: one set of clauses for all of them.

mod clauses;
#[cfg(feature = "redis-streams")]
mod crash;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
#[cfg(feature = "redis-streams")]
mod redis_streams;
mod stage;
