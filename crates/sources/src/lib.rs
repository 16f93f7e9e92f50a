//! Where messages come from: Kafka, `RabbitMQ`, NATS `JetStream` and Redis Streams behind one trait.
//!
//! [`open`] turns a URL into a [`Source`]. Each broker is a feature, and none is on by default:
//!
//! | URL | feature | what it reads |
//! |---|---|---|
//! | `redis-stream://HOST:PORT/STREAM` | `redis-streams` | a stream, as one consumer of a group |
//! | `nats://HOST:PORT,…/STREAM` | `nats` | a `JetStream` stream, through a durable pull consumer |
//! | `amqp://HOST:PORT/VHOST?queue=QUEUE` | `rabbitmq` | a queue |
//! | `kafka://HOST:PORT,…/TOPIC,…` | `kafka` | topics, as one member of a group |
//!
//! Credentials stand before the host (`USER:PASSWORD@HOST`), in percent form where needed. What else a URL can say is
//! described with each broker: [`redis_streams`], [`nats`], [`rabbitmq`], [`kafka`]. A parameter that the broker does not
//! know is an error, and so is a URL whose feature is off.
//!
//! # Dead letters
//!
//! A message that is given up is kept with its own headers and body, and with those of [`dead_letter`] added: why, where
//! it lay, and whose it was. It is acknowledged only once the broker has it.

#![cfg_attr(
    not(any(feature = "redis-streams", feature = "nats", feature = "rabbitmq", feature = "kafka")),
    allow(dead_code, reason = "without a broker nothing is opened")
)]

pub mod dead_letter;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "redis-streams")]
pub mod redis_streams;

#[cfg(any(feature = "redis-streams", feature = "nats", feature = "rabbitmq", feature = "kafka"))]
mod ledger;
#[cfg(any(feature = "redis-streams", feature = "nats", feature = "rabbitmq", feature = "kafka"))]
mod pumped;
mod url;

use std::time::Duration;

use onlyonce_inbox::{Source, SourceError};

use url::{SourceUrl, wrong};

/// What a source needs to know beside its URL.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The group of consumers to be one of, when the URL does not name one: the consumer's own name. Default `onlyonce`.
    pub group: String,
    /// How long a delivery may stay unsettled before it is delivered again. Takes the place of what the URL says; the
    /// default of each broker is described there.
    pub unsettled_max: Option<Duration>,
    /// How long a broker may take to answer before it counts as away. Default 10 s: a fail-over takes some seconds.
    pub timeout: Duration,
    /// About how many bytes are fetched ahead. Default 16 MiB. A single larger message is fetched all the same.
    pub fetch_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            group: "onlyonce".to_owned(),
            unsettled_max: None,
            timeout: Duration::from_secs(10),
            fetch_bytes_max: 16 * 1024 * 1024,
        }
    }
}

impl Options {
    /// The defaults, for the group of this name.
    pub fn for_group(group: impl Into<String>) -> Self {
        Self { group: group.into(), ..Self::default() }
    }
}

/// Opens the source that `url` names. Needs a tokio runtime, and lives on it.
#[cfg_attr(
    not(any(feature = "redis-streams", feature = "nats", feature = "rabbitmq", feature = "kafka")),
    expect(clippy::unused_async, reason = "without any source nothing is opened")
)]
pub async fn open(url: &str, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let url = SourceUrl::parse(url)?;
    match url.scheme.as_str() {
        #[cfg(feature = "redis-streams")]
        "redis-stream" => redis_streams::open(url, options).await,
        #[cfg(feature = "nats")]
        "nats" => nats::open(url, options).await,
        #[cfg(feature = "kafka")]
        "kafka" => kafka::open(url, options).await,
        #[cfg(feature = "rabbitmq")]
        "amqp" | "amqps" => rabbitmq::open(url, options).await,
        scheme => {
            let _ = options;
            Err(not_here(scheme))
        }
    }
}

/// The same failure for each of `count` items.
#[cfg(any(feature = "redis-streams", feature = "nats"))]
fn each<T>(error: &SourceError, count: usize) -> Vec<Result<T, SourceError>> {
    (0..count).map(|_| Err(again(error))).collect()
}

/// The same failure of another item.
#[cfg(any(feature = "redis-streams", feature = "nats", feature = "kafka"))]
fn again(error: &SourceError) -> SourceError {
    use std::error::Error as _;

    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    SourceError::new(error.kind(), "settling deliveries").because(cause)
}

/// Which feature a scheme needs.
const SCHEMES: [(&str, &str); 5] = [
    ("redis-stream", "redis-streams"),
    ("nats", "nats"),
    ("amqp", "rabbitmq"),
    ("amqps", "rabbitmq"),
    ("kafka", "kafka"),
];

fn not_here(scheme: &str) -> SourceError {
    match SCHEMES.iter().find(|(known, _)| *known == scheme) {
        Some((_, feature)) => {
            wrong(format!("{scheme}:// is not in this build: turn on the feature `{feature}`"))
        }
        None => {
            wrong(format!("{scheme}:// is not a source (there are redis-stream, nats, amqp, amqps, kafka)"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_scheme_that_is_not_in_the_build_names_its_feature() {
        for (scheme, feature) in SCHEMES {
            let told = not_here(scheme).source().map(ToString::to_string).unwrap_or_default();
            assert!(told.contains(&format!("`{feature}`")), "{told}");
        }
        let told = not_here("http").source().map(ToString::to_string).unwrap_or_default();
        assert!(told.contains("redis-stream"), "{told}");
    }
}
