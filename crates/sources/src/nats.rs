//! NATS `JetStream`: `nats://HOST:PORT,…/STREAM`.
//!
//! | parameter | default | what it says |
//! |---|---|---|
//! | `group` | [`Options::group`] | the durable pull consumer; made when it is not there |
//! | `subject` | all | which subjects of the stream, when the consumer is made |
//! | `dead_letter` | `dead-letter.STREAM` | the subject that dead letters are published to; a stream `STREAM-dead-letter` is made for it when no stream takes it |
//! | `ack_wait_seconds` | 30 | how long a delivery may stay unsettled, when the consumer is made |
//! | `ack_pending_max` | 1000 | how many deliveries may be unsettled in the whole group, when the consumer is made |
//! | `tls` | `false` | whether the connection must be encrypted |
//!
//! The stream must be there. A consumer that is there is taken as it is: its own ack wait is in force. It must acknowledge
//! explicitly; one that gives up after so many deliveries (`max_deliver`) is warned about, because the server then drops
//! messages without a dead letter.
//!
//! Every settlement waits for the server's word; acknowledgements that are sent together wait for its word on the last of
//! them, because it takes them in the order in which a connection brings them. A retry waits in the server. The server takes a late acknowledgement for
//! that of a newer delivery, so one that is near the end of its ack wait is not sent any more: the delivery is Gone.
//!
//! The horizon is the ack wait times `max_deliver`, or the stream's `max_age`, whichever is shorter; unbounded when it has
//! neither. The waits of retries come on top of the first.

mod convert;
mod reader;
mod settle;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, Context, Message, stream};
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use futures_util::future::join_all;
use onlyonce_core::{Clock as _, SystemClock, Timestamp};
use onlyonce_inbox::{Extended, Horizon, Settled, Settlement, Source, SourceError, SourceErrorKind};
use tokio::sync::{Notify, RwLock};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::Options;
use crate::ledger::Ledger;
use crate::pumped::{Broker, Pumped};
use crate::url::{SourceUrl, wrong};

const ACK_WAIT: Duration = Duration::from_secs(30);
const ACK_PENDING_MAX: i64 = 1000;

/// One delivery of a message.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    message: Arc<Message>,
    sequence: u64,
    deliveries: u32,
    /// When its ack wait began, as far as we know. In milliseconds.
    since: Arc<AtomicU64>,
}

/// A stream, read through a durable consumer.
#[derive(Debug)]
pub(crate) struct JetStream {
    settings: Settings,
    client: Client,
    context: Context,
    /// Made again when the server has lost it.
    consumer: RwLock<PullConsumer>,
    horizon: Horizon,
    clock: SystemClock,
    link: Arc<LinkState>,
    /// The newest delivery of each message that is not settled, by sequence: an older one is gone.
    newest: Mutex<HashMap<u64, u32>>,
}

#[derive(Debug, Clone)]
struct Settings {
    stream: String,
    group: String,
    subject: String,
    dead_letter: String,
    ack_wait: Duration,
    ack_pending_max: i64,
    timeout: Duration,
    fetch_bytes_max: usize,
}

/// What the client told about its connection.
#[derive(Debug, Default)]
struct LinkState {
    /// The connection was made, or lost.
    changed: Notify,
}

/// Opens the stream that a URL names.
pub(crate) async fn open(mut url: SourceUrl, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let stream = url.named("stream")?;
    let wait = url.value("ack_wait_seconds")?.map_or(ACK_WAIT, Duration::from_secs);
    let settings = Settings {
        group: url.take("group").unwrap_or_else(|| options.group.clone()),
        subject: url.take("subject").unwrap_or_default(),
        dead_letter: url.take("dead_letter").unwrap_or_else(|| format!("dead-letter.{stream}")),
        ack_wait: options.unsettled_max.unwrap_or(wait),
        ack_pending_max: url.value("ack_pending_max")?.unwrap_or(ACK_PENDING_MAX),
        timeout: options.timeout,
        fetch_bytes_max: options.fetch_bytes_max,
        stream,
    };
    let tls = url.value("tls")?.unwrap_or(false);
    let servers = servers(&url.authority)?;
    url.finish()?;
    if settings.group.is_empty() || settings.ack_wait.is_zero() {
        return Err(wrong("group is empty, or ack_wait_seconds is 0"));
    }
    Ok(Box::new(Pumped::start(JetStream::connect(settings, servers, tls).await?)))
}

fn servers(authority: &str) -> Result<Vec<ServerAddr>, SourceError> {
    let (credentials, hosts) = match authority.rsplit_once('@') {
        Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
        None => (String::new(), authority),
    };
    let server = |host| format!("nats://{credentials}{host}").parse();
    // Our own text, and not the error's: it could show the URL.
    hosts
        .split(',')
        .map(server)
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("a host, port or password is not one"))
}

impl JetStream {
    async fn connect(settings: Settings, servers: Vec<ServerAddr>, tls: bool) -> Result<Self, SourceError> {
        const DOING: &str = "opening the stream";
        let link = Arc::new(LinkState::default());
        let told = Arc::clone(&link);
        let client = ConnectOptions::new()
            .name("onlyonce")
            .require_tls(tls)
            .connection_timeout(settings.timeout)
            .request_timeout(Some(settings.timeout))
            .event_callback(move |event| {
                if matches!(event, Event::Connected | Event::Disconnected) {
                    told.changed.notify_waiters();
                }
                async {}
            })
            .connect(servers)
            .await
            .map_err(|error| failed(DOING, error))?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(settings.timeout);
        let stream = context.get_stream(&settings.stream).await.map_err(|error| failed(DOING, error))?;
        let max_age = stream.cached_info().config.max_age;
        make_dead_letter_stream(&context, &settings).await?;
        let consumer = make_consumer(&stream, &settings).await?;
        let horizon = horizon(&consumer, max_age);
        let settings = Settings { ack_wait: consumer.cached_info().config.ack_wait, ..settings };
        let (consumer, newest) = (RwLock::new(consumer), Mutex::default());
        Ok(Self { settings, client, context, consumer, horizon, clock: SystemClock::new(), link, newest })
    }

    /// Whether a delivery is surely still ours: it has not been delivered again, and its ack wait is not nearly over.
    fn is_ours(&self, handle: &Handle) -> bool {
        let newest = self.newest().get(&handle.sequence).copied();
        let since = Timestamp::from_millis(handle.since.load(Ordering::Relaxed));
        // The server began to count before we did: a tenth is left for that.
        newest == Some(handle.deliveries)
            && since.until(self.clock.now()) < self.settings.ack_wait.mul_f32(0.9)
    }

    /// This delivery is over. A newer one is not.
    fn forget(&self, handle: &Handle) {
        let mut newest = self.newest();
        if newest.get(&handle.sequence) == Some(&handle.deliveries) {
            newest.remove(&handle.sequence);
        }
    }

    fn newest(&self) -> std::sync::MutexGuard<'_, HashMap<u64, u32>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn make_consumer(stream: &stream::Stream, settings: &Settings) -> Result<PullConsumer, SourceError> {
    const DOING: &str = "making the consumer";
    let config = pull::Config {
        durable_name: Some(settings.group.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.ack_wait,
        max_ack_pending: settings.ack_pending_max,
        filter_subject: settings.subject.clone(),
        ..pull::Config::default()
    };
    let made = stream.get_or_create_consumer(&settings.group, config).await;
    let consumer = made.map_err(|error| failed(DOING, error))?;
    let config = &consumer.cached_info().config;
    if config.ack_policy != AckPolicy::Explicit {
        let why = format!("the consumer {} does not acknowledge explicitly", settings.group);
        return Err(SourceError::new(SourceErrorKind::Misuse, DOING).because(why));
    }
    if config.max_deliver > 0 {
        let (consumer, max_deliver) = (&settings.group, config.max_deliver);
        warn!(%consumer, max_deliver, "the server drops messages after so many deliveries, without a dead letter");
    }
    Ok(consumer)
}

/// Makes sure that a stream takes dead letters, and not the one that is read.
async fn make_dead_letter_stream(context: &Context, settings: &Settings) -> Result<(), SourceError> {
    const DOING: &str = "making a place for dead letters";
    let Settings { stream, dead_letter, .. } = settings;
    match context.stream_by_subject(dead_letter.clone()).await {
        Ok(taker) if taker == *stream => {
            Err(wrong(format!("dead letters to {dead_letter} would come back into the stream {stream}")))
        }
        Ok(_) => Ok(()),
        Err(error) if error.to_string().contains("not found") => {
            let config = stream::Config {
                name: format!("{stream}-dead-letter"),
                subjects: vec![dead_letter.clone()],
                ..stream::Config::default()
            };
            context.get_or_create_stream(config).await.map(|_| ()).map_err(|error| failed(DOING, error))
        }
        Err(error) => Err(failed(DOING, error)),
    }
}

fn horizon(consumer: &PullConsumer, max_age: Duration) -> Horizon {
    let config = &consumer.cached_info().config;
    let deliveries = u32::try_from(config.max_deliver).ok().filter(|deliveries| *deliveries > 0);
    let by_deliveries = deliveries.map(|deliveries| config.ack_wait.saturating_mul(deliveries));
    let by_age = Some(max_age).filter(|age| !age.is_zero());
    match by_deliveries.into_iter().chain(by_age).min() {
        Some(shortest) => Horizon::Within(shortest),
        None => Horizon::Unbounded,
    }
}

/// A failure that the client told. What the server refuses is told by its own words.
fn failed(doing: &'static str, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    let text = error.to_string();
    let refusals = ["not found", "authorization", "permission", "no stream found", "invalid", "max_payload"];
    let is_refusal = refusals.iter().any(|refusal| text.to_ascii_lowercase().contains(refusal));
    let kind = if is_refusal { SourceErrorKind::Refused } else { SourceErrorKind::Unavailable };
    SourceError::new(kind, doing).because(error)
}

impl Broker for JetStream {
    type Handle = Handle;

    async fn pump(&self, ledger: &Ledger<Handle>, stop: &CancellationToken) {
        self.read(ledger, stop).await;
    }

    async fn settle(
        &self,
        _: &Ledger<Handle>,
        items: &[(Handle, Settlement)],
    ) -> Vec<Result<Settled, SourceError>> {
        self.settle_all(items).await
    }

    async fn extend(&self, handles: &[Handle]) -> Vec<Result<Extended, SourceError>> {
        join_all(handles.iter().map(|handle| self.extend_one(handle))).await
    }

    async fn give_back(&self, handles: Vec<Handle>) -> Result<(), SourceError> {
        let now = Settlement::Retry { after: Duration::ZERO };
        let items: Vec<_> = handles.into_iter().map(|handle| (handle, now.clone())).collect();
        self.settle_all(&items).await.into_iter().try_for_each(|result| result.map(|_| ()))
    }

    async fn lag(&self) -> Result<Option<u64>, SourceError> {
        let consumer = self.consumer.read().await;
        let info = consumer.get_info().await.map_err(|error| failed("asking for the lag", error))?;
        Ok(Some(info.num_pending))
    }

    fn unsettled_max(&self) -> Option<Duration> {
        Some(self.settings.ack_wait)
    }

    fn horizon(&self) -> Horizon {
        self.horizon
    }
}
