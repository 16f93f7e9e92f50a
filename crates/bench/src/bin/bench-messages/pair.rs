//! Who is measured: a broker and a store, and the two ways of using them.

use clap::ValueEnum;

/// A broker and where the marks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pair {
    /// Kafka as librdkafka's mock cluster plays it, and `PostgreSQL`.
    KafkaPostgres,
    /// NATS `JetStream` and Redis.
    NatsRedis,
    /// Redis Streams and the embedded store.
    StreamsEmbedded,
}

/// How messages are handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ours,
    Naive,
}

impl Way {
    pub(crate) const ALL: [Self; 2] = [Self::Ours, Self::Naive];

    /// The topic, stream and group of its own.
    pub(crate) const fn topic(self) -> &'static str {
        match self {
            Self::Ours => "orders-ours",
            Self::Naive => "orders-naive",
        }
    }
}

impl Pair {
    pub(crate) const ALL: [Self; 3] = [Self::KafkaPostgres, Self::NatsRedis, Self::StreamsEmbedded];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::KafkaPostgres => "Kafka (librdkafka's mock cluster) + PostgreSQL",
            Self::NatsRedis => "NATS JetStream + Redis",
            Self::StreamsEmbedded => "Redis Streams + embedded",
        }
    }

    /// What `way` does with each message.
    pub(crate) const fn way(self, way: Way) -> &'static str {
        match (self, way) {
            (Self::KafkaPostgres, Way::Ours) => "onlyonce, batches in one transaction",
            (_, Way::Ours) => "onlyonce, consumer",
            (Self::KafkaPostgres, Way::Naive) => {
                "naive: BEGIN; INSERT … ON CONFLICT DO NOTHING; effect; COMMIT; ack"
            }
            (Self::NatsRedis, Way::Naive) => "naive: SET NX; effect; ack",
            (Self::StreamsEmbedded, Way::Naive) => "naive: claim; effect; complete; ack",
        }
    }

    /// Where the effect is had.
    pub(crate) const fn effect(self) -> &'static str {
        match self {
            Self::KafkaPostgres => "a row in the same transaction",
            Self::NatsRedis | Self::StreamsEmbedded => "a count in this process",
        }
    }
}
