//! `RabbitMQ`: `amqp://HOST:PORT/VHOST?queue=QUEUE`, or `amqps://`.
//!
//! | parameter | default | what it says |
//! |---|---|---|
//! | `queue` | | the queue, which must be there |
//! | `group` | [`Options::group`] | the name written on dead letters: a queue has one group of consumers |
//! | `dead_letter` | `QUEUE.dead-letter` | the queue that dead letters are published to; made when it is not there |
//! | `prefetch` | 500 | how many deliveries may be unsettled here. The server cannot count bytes: with large messages, lower it |
//! | `timeout_seconds` | 1800 | the server's `consumer_timeout`, which it does not tell |
//!
//! Acknowledgements are by hand, and a batch of them is followed by a question that the server answers once it has seen
//! them. When the connection or the channel is lost, both are made again with the consumer; what was delivered before is
//! Gone, and the server delivers it again.
//!
//! A retry that has to wait is published to a queue for that wait, `QUEUE.retry.MILLISECONDS.WEEK`, from where the server
//! returns it; a dead letter is published to its queue. Only when the server has confirmed it is the original acknowledged: after a crash in
//! between there are two, and the message's own id tells that they are one. Queues for retries are quorum queues that pass on at least once
//! (a queue that is full or away for a while gets its retries later); they are removed by the server after some weeks.
//! Messages have no position here: without an id they cannot be told apart.
//!
//! Needs `RabbitMQ` 3.10 or later.
//!
//! The server has no way to say that a delivery is being worked on: `extend` only tells whether it is still ours.

mod convert;
mod session;
mod waiting_room;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use lapin::uri::AMQPUri;
use onlyonce_inbox::{Extended, Horizon, Settled, Settlement, Source, SourceError};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::ledger::{Before, Ledger};
use crate::pumped::{Broker, Patience, Pumped};
use crate::url::{SourceUrl, wrong};

use session::{Session, failed, unavailable};

const PREFETCH: u16 = 500;
/// What the server ships with since 3.8.15.
const CONSUMER_TIMEOUT: Duration = Duration::from_mins(30);
/// Without one, a machine that is gone would not be noticed for minutes. In seconds.
const HEARTBEAT: u16 = 10;

/// One delivery of a message.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    session: Arc<Session>,
    delivery: Arc<Delivery>,
}

/// A queue, and the connection that it is read through.
#[derive(Debug)]
pub(crate) struct RabbitQueue {
    settings: Settings,
    session: Mutex<Option<Arc<Session>>>,
}

/// Knows the password: never shown.
#[derive(Clone)]
pub(super) struct Settings {
    uri: AMQPUri,
    queue: String,
    group: String,
    dead_letter: String,
    prefetch: u16,
    consumer_timeout: Duration,
    timeout: Duration,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// Opens the queue that a URL names.
pub(crate) async fn open(mut url: SourceUrl, options: &Options) -> Result<Box<dyn Source>, SourceError> {
    let queue = url.take("queue").ok_or_else(|| wrong("it names no queue: amqp://HOST/VHOST?queue=QUEUE"))?;
    let vhost = if url.path.is_empty() { "/" } else { &url.path };
    let vhost = utf8_percent_encode(vhost, NON_ALPHANUMERIC);
    // Our own text, and not the error's: it could show the URL.
    let uri = format!("{}://{}/{vhost}", url.scheme, url.authority);
    let mut uri: AMQPUri = uri.parse().map_err(|_| wrong("a host, port or password is not one"))?;
    uri.query.heartbeat = Some(HEARTBEAT);
    uri.query.connection_timeout = u64::try_from(options.timeout.as_millis()).ok();
    let limit = url.value("timeout_seconds")?.map_or(CONSUMER_TIMEOUT, Duration::from_secs);
    let settings = Settings {
        uri,
        group: url.take("group").unwrap_or_else(|| options.group.clone()),
        dead_letter: url.take("dead_letter").unwrap_or_else(|| format!("{queue}.dead-letter")),
        prefetch: url.value("prefetch")?.unwrap_or(PREFETCH),
        consumer_timeout: options.unsettled_max.unwrap_or(limit),
        timeout: options.timeout,
        queue,
    };
    url.finish()?;
    if settings.prefetch == 0 || settings.dead_letter == settings.queue {
        return Err(wrong("prefetch is 0, which is no limit, or dead_letter names the queue itself"));
    }
    let session = Session::connect(&settings).await?;
    let queue = RabbitQueue { settings, session: Mutex::new(Some(Arc::new(session))) };
    Ok(Box::new(Pumped::start(queue)))
}

impl RabbitQueue {
    /// The session in force, or a new one.
    async fn session(&self) -> Result<Arc<Session>, SourceError> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| session.is_alive()) {
            return Ok(Arc::clone(session));
        }
        let fresh = Arc::new(Session::connect(&self.settings).await?);
        *session = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// Reads deliveries until the session is lost: why it was.
    async fn consume(&self, ledger: &Ledger<Handle>, patience: &mut Patience) -> SourceError {
        let session = match self.session().await {
            Ok(session) => session,
            Err(error) => return error,
        };
        let mut consumer = match session.consume(&self.settings).await {
            Ok(consumer) => consumer,
            Err(error) => return error,
        };
        ledger.recover();
        patience.restore();
        let lost = loop {
            match consumer.next().await {
                Some(Ok(delivery)) => {
                    let message = convert::message(&delivery, &self.settings.queue);
                    let before = Before::Flagged(convert::was_delivered(&delivery, &self.settings.queue));
                    let handle = Handle { session: Arc::clone(&session), delivery: Arc::new(delivery) };
                    ledger.deliver(message, before, handle);
                }
                Some(Err(error)) => break failed("reading the queue", error),
                None => break unavailable("reading the queue", "the server ended the consumer"),
            }
        };
        session.end().await;
        ledger.forget(|handle| Arc::ptr_eq(&handle.session, &session));
        lost
    }

    async fn settle_one(&self, handle: &Handle, settlement: &Settlement) -> Result<Settled, SourceError> {
        let Handle { session, delivery } = handle;
        if !session.is_alive() {
            return Ok(Settled::Gone);
        }
        match settlement {
            Settlement::Retry { after } if after.is_zero() => {
                let again = BasicNackOptions { requeue: true, multiple: false };
                let sent =
                    delivery.acker.nack(again).await.map_err(|error| failed("settling deliveries", error))?;
                return Ok(if sent { Settled::Settled } else { Settled::Gone });
            }
            Settlement::Retry { after } => session.postpone(&self.settings, delivery, *after).await?,
            Settlement::DeadLetter { reason } => {
                session.keep_dead_letter(&self.settings, delivery, reason).await?;
            }
            Settlement::Ack => {}
        }
        let sent = delivery.acker.ack(BasicAckOptions::default()).await;
        let sent = sent.map_err(|error| failed("settling deliveries", error))?;
        Ok(if sent { Settled::Settled } else { Settled::Gone })
    }
}

impl Broker for RabbitQueue {
    type Handle = Handle;

    async fn pump(&self, ledger: &Ledger<Handle>, stop: &CancellationToken) {
        let mut patience = Patience::default();
        let reading = async {
            loop {
                ledger.fail(self.consume(ledger, &mut patience).await);
                patience.wait().await;
            }
        };
        // What a read that is cut off had taken goes back with the channel.
        tokio::select! {
            () = stop.cancelled() => {}
            () = reading => {}
        }
    }

    async fn settle(
        &self,
        _: &Ledger<Handle>,
        items: &[(Handle, Settlement)],
    ) -> Vec<Result<Settled, SourceError>> {
        let settled = items.iter().map(|(handle, settlement)| self.settle_one(handle, settlement));
        let results = join_all(settled).await;
        // ORDER: the server answers on a channel in the order of what it was sent: after this it has seen them all.
        let mut seen: HashMap<usize, Option<String>> = HashMap::new();
        for ((handle, _), result) in items.iter().zip(&results) {
            let session = Arc::as_ptr(&handle.session).addr();
            if matches!(result, Ok(Settled::Settled)) && !seen.contains_key(&session) {
                let failure = handle.session.wait_until_seen(&self.settings).await.err();
                seen.insert(session, failure.map(|error| format!("{error:?}")));
            }
        }
        let judge = |(handle, _): &(Handle, Settlement), result| match result {
            Ok(Settled::Settled) => match seen.get(&Arc::as_ptr(&handle.session).addr()) {
                Some(Some(failure)) => Err(unavailable("settling deliveries", failure.as_str())),
                _ => Ok(Settled::Settled),
            },
            other => other,
        };
        items.iter().zip(results).map(|(item, result)| judge(item, result)).collect()
    }

    async fn extend(&self, handles: &[Handle]) -> Vec<Result<Extended, SourceError>> {
        let extended =
            |handle: &Handle| Ok(if handle.session.is_alive() { Extended::Extended } else { Extended::Gone });
        handles.iter().map(extended).collect()
    }

    async fn give_back(&self, _: Vec<Handle>) -> Result<(), SourceError> {
        if let Some(session) = self.session.lock().await.take() {
            session.end().await;
        }
        Ok(())
    }

    async fn lag(&self) -> Result<Option<u64>, SourceError> {
        let session = self.session().await?;
        session.count(&self.settings).await.map(|count| Some(u64::from(count)))
    }

    fn unsettled_max(&self) -> Option<Duration> {
        Some(self.settings.consumer_timeout)
    }

    fn horizon(&self) -> Horizon {
        Horizon::Unbounded
    }
}
