//! The brokers: started empty, filled before anything is measured, and opened as a source.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::{self, stream};
use onlyonce_bench::facts;
use onlyonce_inbox::Source;
use onlyonce_sources::Options;
use onlyonce_testkit::servers::{NatsServer, RedisOptions, RedisServer};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};

use crate::Result;
use crate::load::{Load, body};
use crate::pair::Pair;

/// The mock keeps 5 MiB of each: room for half a million messages.
const PARTITIONS: i32 = 40;
/// How many messages are on their way to a broker at a time while it is filled.
const UNANSWERED_MAX: usize = 500;
/// How long a broker may take for the last of them.
const FLUSH_MAX: Duration = Duration::from_mins(2);
/// Unsettled deliveries in the whole group, at the most: as many as ours takes.
const PENDING_MAX: u32 = 4000;

/// A broker of its own.
pub(crate) enum Broker {
    Kafka(MockCluster<'static, DefaultProducerContext>),
    Nats(NatsServer),
    Streams(RedisServer),
}

impl Broker {
    pub(crate) fn start(pair: Pair) -> Result<Self> {
        Ok(match pair {
            Pair::KafkaPostgres => Self::Kafka(MockCluster::new(1)?),
            Pair::NatsRedis => Self::Nats(NatsServer::start()?),
            Pair::StreamsEmbedded => Self::Streams(RedisServer::start(RedisOptions::default())?),
        })
    }

    /// What it is and how it keeps what it is told.
    pub(crate) fn facts(&self) -> Result<String> {
        Ok(match self {
            Self::Kafka(_) => {
                format!(
                    "Kafka is librdkafka's mock cluster in this process, {PARTITIONS} partitions in memory"
                )
            }
            Self::Nats(_) => "NATS JetStream with files, as it is shipped".to_owned(),
            Self::Streams(server) => format!("Streams: {}", facts::redis(server)?),
        })
    }

    /// Makes `topic` and publishes everything to it.
    pub(crate) async fn fill(&self, topic: &'static str, load: Load) -> Result<()> {
        match self {
            Self::Kafka(cluster) => {
                cluster.create_topic(topic, PARTITIONS, 1)?;
                cluster.create_topic(&format!("{topic}.dead-letter"), 1, 1)?;
                fill_kafka(&cluster.bootstrap_servers(), topic, load)
            }
            Self::Nats(server) => fill_nats(&server.url(), topic, load).await,
            Self::Streams(server) => fill_stream(&server.url(), topic, load).await,
        }
    }

    /// The source of `topic`.
    pub(crate) async fn open(&self, topic: &str) -> Result<Arc<dyn Source>> {
        let url = match self {
            // The mock lets a group that forms wait for nearly as long as a member may be silent.
            Self::Kafka(cluster) => {
                format!("kafka://{}/{topic}?session_seconds=6", cluster.bootstrap_servers())
            }
            Self::Nats(server) => format!("{}/{topic}?ack_pending_max={PENDING_MAX}", server.url()),
            Self::Streams(server) => format!("redis-stream://127.0.0.1:{}/{topic}", server.port()),
        };
        Ok(onlyonce_sources::open(&url, &Options::for_group("bench")).await?.into())
    }
}

fn fill_kafka(brokers: &str, topic: &str, load: Load) -> Result<()> {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", brokers).set("linger.ms", "20").create()?;
    for (id, partition) in load.ids().zip((0..PARTITIONS).cycle()) {
        let headers = OwnedHeaders::new().insert(Header { key: "event-id", value: Some(&id) });
        let payload = body(&id);
        let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition);
        let mut record = record.headers(headers).payload(&payload);
        while let Err((error, unsent)) = producer.send(record) {
            if !matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                return Err(error.into());
            }
            producer.poll(Duration::from_millis(10));
            record = unsent;
        }
    }
    Ok(producer.flush(FLUSH_MAX)?)
}

async fn fill_nats(url: &str, topic: &'static str, load: Load) -> Result<()> {
    let context = jetstream::new(async_nats::connect(url).await?);
    let config = stream::Config { name: topic.into(), subjects: vec![topic.into()], ..Default::default() };
    context.create_stream(config).await?;
    let mut unanswered = Vec::with_capacity(UNANSWERED_MAX);
    for id in load.ids() {
        let mut headers = HeaderMap::new();
        headers.insert("event-id", id.as_str());
        unanswered.push(context.publish_with_headers(topic, headers, body(&id)).await?);
        if unanswered.len() >= UNANSWERED_MAX {
            for answer in unanswered.drain(..) {
                answer.await?;
            }
        }
    }
    for answer in unanswered {
        answer.await?;
    }
    Ok(())
}

async fn fill_stream(url: &str, topic: &str, load: Load) -> Result<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let ids: Vec<String> = load.ids().collect();
    for ids in ids.chunks(UNANSWERED_MAX) {
        let mut pipe = redis::pipe();
        for id in ids {
            pipe.cmd("XADD")
                .arg(topic)
                .arg("*")
                .arg("event-id")
                .arg(id)
                .arg("body")
                .arg(&body(id)[..])
                .ignore();
        }
        pipe.query_async::<()>(&mut connection).await?;
    }
    Ok(())
}
