//! One connection with its channels. When it is lost it is lost as a whole, and another one is made.

use std::future::Future;
use std::time::Duration;

use lapin::message::Delivery;
use lapin::options::{
    BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use onlyonce_core::{Clock as _, SystemClock};
use onlyonce_inbox::{SourceError, SourceErrorKind};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::waiting_room::WaitingRoom;
use super::{Settings, convert};

/// A connection that works, or worked.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    /// Deliveries come in here, and are acknowledged here.
    channel: Channel,
    /// What is published is confirmed here. Made again when the server closed it over a refusal.
    publisher: Mutex<Option<Channel>>,
    clock: SystemClock,
}

impl Session {
    /// Connects, and makes sure that the queues are there.
    pub(super) async fn connect(settings: &Settings) -> Result<Self, SourceError> {
        const DOING: &str = "opening the queue";
        let properties = ConnectionProperties::default().with_connection_name("onlyonce".into());
        let connecting = Connection::connect_uri(settings.uri.clone(), properties);
        let connection = in_time(settings, DOING, connecting).await?;
        let channel = in_time(settings, DOING, connection.create_channel()).await?;
        let session = Self { connection, channel, publisher: Mutex::new(None), clock: SystemClock::new() };
        session.count(settings).await?;
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let publisher = session.publisher(settings).await?;
        // One that is there as it is, however it was made, is as good.
        let dead_letter = settings.dead_letter.as_str();
        if session.passively(settings, dead_letter).await.is_err() {
            let made = publisher.queue_declare(dead_letter.into(), durable, FieldTable::default());
            in_time(settings, DOING, made).await?;
        }
        Ok(session)
    }

    /// Whether deliveries that came over it can still be settled.
    pub(super) fn is_alive(&self) -> bool {
        self.channel.status().connected()
    }

    /// Begins to deliver.
    pub(super) async fn consume(&self, settings: &Settings) -> Result<Consumer, SourceError> {
        const DOING: &str = "reading the queue";
        self.wait_until_seen(settings).await?;
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        let consuming =
            self.channel.basic_consume(settings.queue.as_str().into(), "".into(), options, arguments);
        in_time(settings, DOING, consuming).await
    }

    /// Waits until the server has seen everything that was sent on the channel of deliveries.
    pub(super) async fn wait_until_seen(&self, settings: &Settings) -> Result<(), SourceError> {
        // Any question does that has an answer and changes nothing.
        let asked = self.channel.basic_qos(settings.prefetch, BasicQosOptions::default());
        in_time(settings, "settling deliveries", asked).await
    }

    /// How many messages wait in the queue.
    pub(super) async fn count(&self, settings: &Settings) -> Result<u32, SourceError> {
        self.passively(settings, &settings.queue).await
    }

    async fn passively(&self, settings: &Settings, queue: &str) -> Result<u32, SourceError> {
        const DOING: &str = "asking for the queue";
        // On a channel of its own: the server closes it when there is no such queue.
        let channel = in_time(settings, DOING, self.connection.create_channel()).await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let asked = channel.queue_declare(queue.into(), passive, FieldTable::default());
        let found = in_time(settings, DOING, asked).await?;
        let _ = channel.close(200, "asked".into()).await;
        Ok(found.message_count())
    }

    /// Has the server deliver the message again later, and acknowledge nothing yet.
    pub(super) async fn postpone(
        &self,
        settings: &Settings,
        delivery: &Delivery,
        after: Duration,
    ) -> Result<(), SourceError> {
        let room = WaitingRoom::new(&settings.queue, after, self.clock.now());
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let publisher = self.publisher(settings).await?;
        let made = publisher.queue_declare(room.name.as_str().into(), durable, room.arguments());
        in_time(settings, "making a queue for retries", made).await?;
        let properties = convert::retry_properties(delivery, &settings.queue);
        self.publish(settings, &room.name, &delivery.data, properties, "keeping a retry").await
    }

    /// Keeps a dead letter, and acknowledges nothing yet.
    pub(super) async fn keep_dead_letter(
        &self,
        settings: &Settings,
        delivery: &Delivery,
        reason: &str,
    ) -> Result<(), SourceError> {
        let properties = convert::dead_letter_properties(delivery, &settings.queue, &settings.group, reason);
        self.publish(settings, &settings.dead_letter, &delivery.data, properties, "keeping a dead letter")
            .await
    }

    async fn publish(
        &self,
        settings: &Settings,
        queue: &str,
        body: &[u8],
        properties: BasicProperties,
        doing: &'static str,
    ) -> Result<(), SourceError> {
        let publisher = self.publisher(settings).await?;
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sending = publisher.basic_publish("".into(), queue.into(), options, body, properties);
        let confirmed = in_time(settings, doing, async { sending.await?.await }).await?;
        match confirmed {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => {
                let why = format!("there is no queue {queue}");
                Err(SourceError::new(SourceErrorKind::Refused, doing).because(why))
            }
            _ => Err(unavailable(doing, "the server did not take it")),
        }
    }

    /// The channel for publishing.
    async fn publisher(&self, settings: &Settings) -> Result<Channel, SourceError> {
        const DOING: &str = "opening a channel";
        let mut publisher = self.publisher.lock().await;
        if let Some(channel) = publisher.as_ref().filter(|channel| channel.status().connected()) {
            return Ok(channel.clone());
        }
        let channel = in_time(settings, DOING, self.connection.create_channel()).await?;
        in_time(settings, DOING, channel.confirm_select(ConfirmSelectOptions::default())).await?;
        *publisher = Some(channel.clone());
        Ok(channel)
    }

    /// Lets go: the server delivers to others what is not acknowledged.
    pub(super) async fn end(&self) {
        // It may be gone already, or not answer: then the server notices by itself.
        let closing = async {
            let _ = self.channel.close(200, "done".into()).await;
            let _ = self.connection.close(200, "done".into()).await;
        };
        let _ = timeout(Duration::from_secs(5), closing).await;
    }
}

async fn in_time<T>(
    settings: &Settings,
    doing: &'static str,
    work: impl Future<Output = lapin::Result<T>>,
) -> Result<T, SourceError> {
    match timeout(settings.timeout, work).await {
        Ok(done) => done.map_err(|error| failed(doing, error)),
        Err(_) => Err(unavailable(doing, "no answer in time")),
    }
}

/// A failure that the client told: what the server refused by itself, or a connection that broke.
pub(super) fn failed(doing: &'static str, error: lapin::Error) -> SourceError {
    let is_refusal = error.is_amqp_soft_error() || error.to_string().contains("ACCESS_REFUSED");
    let kind = if is_refusal { SourceErrorKind::Refused } else { SourceErrorKind::Unavailable };
    SourceError::new(kind, doing).because(error)
}

pub(super) fn unavailable(doing: &'static str, why: &str) -> SourceError {
    SourceError::new(SourceErrorKind::Unavailable, doing).because(why.to_owned())
}
