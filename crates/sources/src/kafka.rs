//! Kafka: `kafka://HOST:PORT,…/TOPIC,…`.
//!
//! | parameter | default | what it says |
//! |---|---|---|
//! | `group` | [`Options::group`] | the consumer group |
//! | `from` | `earliest` | where a group without offsets begins: `earliest` or `latest` |
//! | `dead_letter` | `TOPIC.dead-letter` | the topic that dead letters are sent to; refused to open when it is neither there nor made on use |
//! | `session_seconds` | 45 | how long a member may be silent before its partitions go to others |
//! | `retention_seconds` | | how long the topic keeps records: the horizon. Unbounded when it is left out |
//!
//! An offset is committed only up to the lowest record that is not finished, however many after it are: what is finished
//! out of order and not committed when this process ends is delivered again. Offsets are never compared with a highest one
//! seen: a partition that goes back delivers everything again.
//!
//! A retry waits here, and its partition is paused meanwhile, so that the records after it do not overtake it further. When
//! a partition is taken away its deliveries are Gone at once, also those that wait. There is no time within which a
//! delivery must be settled: the broker is asked for news while handlers work.
//!
//! The key of a record is the header `kafka-key`. Connections are not encrypted in this build.

mod commit;
mod context;
mod convert;
mod failure;
mod leave;
mod offsets;
mod reader;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::{Extended, Horizon, Settled, Settlement, Source, SourceError};
use rdkafka::ClientConfig;
use rdkafka::consumer::{Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedMessage;
use rdkafka::producer::{FutureProducer, Producer as _};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::ledger::Ledger;
use crate::pumped::{Broker, Pumped};
use crate::url::{SourceUrl, wrong};

use context::Watch;
use failure::{failed, refused, unavailable};
use leave::{Member, leave};
use offsets::{Offsets, Place};

/// How long a member may be silent. In seconds; the brokers' own default.
const SESSION: u64 = 45;
/// How a broker says that there is no such topic.
const NOT_THERE: RDKafkaErrorCode = RDKafkaErrorCode::UnknownTopicOrPartition;
/// How often, and how soon after each other, brokers are asked whether they have made a topic on use.
const TOPIC_ASKS_MAX: u32 = 20;
const TOPIC_PAUSE: Duration = Duration::from_millis(100);

/// One delivery of a record.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    place: Place,
    offset: i64,
    /// Which assignment of the partition it came in.
    epoch: u64,
    deliveries: u32,
    record: Arc<OwnedMessage>,
}

/// Topics, read by one member of a group.
pub(crate) struct Topics {
    settings: Settings,
    /// `None` once it is closed.
    consumer: Mutex<Option<Arc<Member>>>,
    producer: FutureProducer,
    offsets: Arc<Mutex<Offsets>>,
    /// Wakes whoever waits to hear that partitions came or went.
    changed: Arc<Notify>,
    /// Held while offsets are committed: one that was read earlier must not be committed later.
    committing: Arc<tokio::sync::Mutex<()>>,
    /// INVARIANT: as many as there are unsettled deliveries: their partitions are paused meanwhile.
    retries: UnboundedSender<(Handle, Duration)>,
    waiting: tokio::sync::Mutex<UnboundedReceiver<(Handle, Duration)>>,
}

impl std::fmt::Debug for Topics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Topics").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Settings {
    topics: Vec<String>,
    group: String,
    dead_letter: String,
    horizon: Horizon,
    timeout: Duration,
    fetch_bytes_max: usize,
}

/// Opens the topics that a URL names.
pub(crate) async fn open(mut url: SourceUrl, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let named = url.named("topic")?;
    let retention = url.value("retention_seconds")?;
    let settings = Settings {
        topics: named.split(',').map(str::to_owned).collect(),
        group: url.take("group").unwrap_or_else(|| options.group.clone()),
        dead_letter: url
            .take("dead_letter")
            .unwrap_or_else(|| format!("{}.dead-letter", named.split(',').next().unwrap_or_default())),
        horizon: retention
            .map_or(Horizon::Unbounded, |seconds| Horizon::Within(Duration::from_secs(seconds))),
        timeout: options.timeout,
        fetch_bytes_max: options.fetch_bytes_max,
    };
    let from = url.take("from").unwrap_or_else(|| "earliest".to_owned());
    let session: u64 = url.value("session_seconds")?.unwrap_or(SESSION);
    if url.authority.contains('@') {
        return Err(wrong("credentials need an encrypted connection, which this build does not have"));
    }
    let brokers = url.authority.clone();
    url.finish()?;
    if !["earliest", "latest"].contains(&from.as_str()) || session == 0 {
        return Err(wrong("from is neither earliest nor latest, or session_seconds is 0"));
    }
    if settings.topics.iter().any(|topic| topic.is_empty() || *topic == settings.dead_letter) {
        return Err(wrong("a topic has no name, or dead_letter names one that is read"));
    }
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("client.id", "onlyonce")
        .set("socket.timeout.ms", (settings.timeout.as_millis() / 2).max(100).to_string());
    let topics =
        tokio::task::spawn_blocking(move || Topics::connect(settings, &config, &from, session)).await;
    let topics = topics.map_err(|error| unavailable("opening the topics", error))??;
    // ORDER: one that is refused does not join the group, which would stop the others for a while.
    topics.find_dead_letter_topic().await?;
    topics.subscribe()?;
    Ok(Box::new(Pumped::start(topics)))
}

impl Topics {
    /// Blocks while the brokers are asked for the topics.
    fn connect(
        settings: Settings,
        config: &ClientConfig,
        from: &str,
        session: u64,
    ) -> Result<Self, SourceError> {
        const DOING: &str = "opening the topics";
        let (offsets, changed) = (Arc::new(Mutex::new(Offsets::default())), Arc::new(Notify::new()));
        let kilobytes = (settings.fetch_bytes_max / 1024).clamp(1, 2_000_000);
        let reader: StreamConsumer<Watch> = config
            .clone()
            .set("group.id", &settings.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", from)
            .set("isolation.level", "read_committed")
            // INVARIANT: all partitions come and go at once, as `Watch` answers.
            .set("partition.assignment.strategy", "range,roundrobin")
            .set("session.timeout.ms", (session * 1000).to_string())
            .set("heartbeat.interval.ms", (session * 1000 / 3).min(3000).to_string())
            .set("queued.min.messages", (2 * FETCH_MAX).to_string())
            .set("queued.max.messages.kbytes", kilobytes.to_string())
            // As shipped, a client that has enough in hand does not fetch for a second, however soon that is used up.
            .set("fetch.queue.backoff.ms", "5")
            .create_with_context(Watch::new(Arc::clone(&offsets), Arc::clone(&changed)))
            .map_err(|error| failed(DOING, error))?;
        let producer: FutureProducer = config
            .clone()
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", settings.timeout.as_millis().max(1000).to_string())
            .create()
            .map_err(|error| failed(DOING, error))?;
        for topic in &settings.topics {
            let found = reader.fetch_metadata(Some(topic), settings.timeout);
            match topic_error(&found.map_err(|error| failed(DOING, error))?) {
                // A topic that is made later, or on use, is read once it is there.
                None | Some(NOT_THERE | RDKafkaErrorCode::LeaderNotAvailable) => {}
                Some(why) => return Err(refused(DOING, format!("{topic}: {why:?}"))),
            }
        }
        let (retries, waiting) = unbounded_channel();
        let (consumer, waiting) =
            (Mutex::new(Some(Arc::new(Member(reader)))), tokio::sync::Mutex::new(waiting));
        let committing = Arc::default();
        Ok(Self { settings, consumer, producer, offsets, changed, committing, retries, waiting })
    }

    /// Waits until there is a topic for dead letters. The producer asks: then brokers that make topics on use make it.
    async fn find_dead_letter_topic(&self) -> Result<(), SourceError> {
        const DOING: &str = "finding a topic for dead letters";
        let Settings { dead_letter: topic, timeout, .. } = &self.settings;
        let mut asks = 0;
        loop {
            let (producer, name, timeout) = (self.producer.clone(), topic.clone(), *timeout);
            let asking = tokio::task::spawn_blocking(move || {
                producer.client().fetch_metadata(Some(&name), timeout).map(|found| topic_error(&found))
            });
            let answer = asking.await.map_err(|error| unavailable(DOING, error))?;
            asks += 1;
            match answer.map_err(|error| failed(DOING, error))? {
                None => return Ok(()),
                // Brokers that make topics on use say so at first; others say it every time.
                Some(NOT_THERE | RDKafkaErrorCode::LeaderNotAvailable) if asks < TOPIC_ASKS_MAX => {
                    tokio::time::sleep(TOPIC_PAUSE).await;
                }
                Some(NOT_THERE) => {
                    let why =
                        format!("there is no topic {topic}: make it, or name another with dead_letter=");
                    return Err(refused(DOING, why));
                }
                Some(RDKafkaErrorCode::LeaderNotAvailable) => {
                    return Err(unavailable(DOING, format!("{topic} has no leader")));
                }
                Some(why) => return Err(refused(DOING, format!("{topic}: {why:?}"))),
            }
        }
    }

    /// Joins the group.
    fn subscribe(&self) -> Result<(), SourceError> {
        let names: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        let Some(consumer) = self.consumer() else { return Ok(()) };
        consumer.subscribe(&names).map_err(|error| failed("joining the group", error))
    }

    fn consumer(&self) -> Option<Arc<Member>> {
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is done before a delivery is finished: a dead letter is kept, and a retry is put aside.
    async fn prepare(&self, handle: &Handle, settlement: &Settlement) -> Result<Prepared, SourceError> {
        if !self.offsets().is_open(handle) {
            return Ok(Prepared::Gone);
        }
        match settlement {
            Settlement::Ack => Ok(Prepared::Finish),
            Settlement::DeadLetter { reason } => {
                let record =
                    convert::dead_letter(handle, &self.settings.dead_letter, &self.settings.group, reason);
                let kept = self.producer.send(record, self.settings.timeout).await;
                kept.map(|_| Prepared::Finish).map_err(|(error, _)| failed("keeping a dead letter", error))
            }
            Settlement::Retry { after } => {
                // Nobody listens once the source is closed: then its partition is somebody else's.
                let _ = self.retries.send((handle.clone(), *after));
                Ok(Prepared::Waits)
            }
        }
    }
}

/// What a broker says about a topic that it was asked for, when that is bad.
fn topic_error(found: &rdkafka::metadata::Metadata) -> Option<RDKafkaErrorCode> {
    found.topics().iter().find_map(rdkafka::metadata::MetadataTopic::error).map(RDKafkaErrorCode::from)
}

/// Blocks: how many records of `topics` the group has still to finish.
fn count(consumer: &Member, topics: &[String], timeout: Duration) -> Result<u64, KafkaError> {
    let mut list = TopicPartitionList::new();
    for topic in topics {
        for found in consumer.fetch_metadata(Some(topic), timeout)?.topics() {
            for partition in found.partitions() {
                list.add_partition(topic, partition.id());
            }
        }
    }
    let mut count = 0;
    for place in consumer.committed_offsets(list, timeout)?.elements() {
        let (low, high) = consumer.fetch_watermarks(place.topic(), place.partition(), timeout)?;
        let position = place.offset().to_raw().unwrap_or(low).max(low);
        count += u64::try_from(high - position).unwrap_or_default();
    }
    Ok(count)
}

/// How far a settlement is before offsets are committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prepared {
    Finish,
    Waits,
    Gone,
}

impl Broker for Topics {
    type Handle = Handle;

    async fn pump(&self, ledger: &Ledger<Handle>, stop: &CancellationToken) {
        // What a read that is cut off had taken is not committed.
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.read(ledger) => {}
        }
    }

    async fn settle(
        &self,
        _: &Ledger<Handle>,
        items: &[(Handle, Settlement)],
    ) -> Vec<Result<Settled, SourceError>> {
        let prepared = join_all(items.iter().map(|(handle, how)| self.prepare(handle, how))).await;
        let mut finished = Vec::new();
        let mut results = Vec::with_capacity(items.len());
        for (at, ((handle, _), prepared)) in items.iter().zip(prepared).enumerate() {
            results.push(match prepared {
                Ok(Prepared::Finish) if self.offsets().finish(handle) => {
                    finished.push(at);
                    Ok(Settled::Settled)
                }
                Ok(Prepared::Waits) => Ok(Settled::Settled),
                Ok(Prepared::Finish | Prepared::Gone) => Ok(Settled::Gone),
                Err(error) => Err(error),
            });
        }
        let handles: Vec<_> = finished.iter().map(|at| &items[*at].0).collect();
        for (at, committed) in finished.iter().zip(self.commit(&handles).await) {
            results[*at] = committed;
        }
        results
    }

    async fn extend(&self, handles: &[Handle]) -> Vec<Result<Extended, SourceError>> {
        let offsets = self.offsets();
        let extended = |handle| Ok(if offsets.is_open(handle) { Extended::Extended } else { Extended::Gone });
        handles.iter().map(extended).collect()
    }

    async fn give_back(&self, _: Vec<Handle>) -> Result<(), SourceError> {
        self.offsets().clear();
        self.changed.notify_waiters();
        let member = self.consumer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match member {
            Some(member) => leave(member, self.settings.timeout).await,
            None => Ok(()),
        }
    }

    async fn lag(&self) -> Result<Option<u64>, SourceError> {
        const DOING: &str = "asking for the lag";
        let Some(consumer) = self.consumer() else { return Ok(None) };
        let (topics, timeout) = (self.settings.topics.clone(), self.settings.timeout);
        let counting = tokio::task::spawn_blocking(move || count(&consumer, &topics, timeout));
        let counted = counting.await.map_err(|error| unavailable(DOING, error))?;
        counted.map(Some).map_err(|error| failed(DOING, error))
    }

    fn unsettled_max(&self) -> Option<Duration> {
        None
    }

    fn horizon(&self) -> Horizon {
        self.settings.horizon
    }
}
