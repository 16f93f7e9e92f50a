//! `RabbitMQ`.

use std::time::Duration;

use lapin::options::{BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use onlyonce_testkit::servers::RabbitServer;
use tokio::runtime::Runtime;

use super::{Broker, GROUP, ORDERS, runtime};

pub(crate) struct Rabbit {
    // ORDER: the client ends before the server does.
    channel: Channel,
    _connection: Connection,
    runtime: Runtime,
    server: RabbitServer,
}

impl Broker for Rabbit {
    fn start() -> Self {
        let (server, runtime) = (RabbitServer::start(&[]).unwrap(), runtime());
        let (connection, channel) = runtime.block_on(async {
            let connection = Connection::connect(&server.url(), ConnectionProperties::default()).await;
            let connection = connection.unwrap();
            let channel = connection.create_channel().await.unwrap();
            channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
            let durable = QueueDeclareOptions { durable: true, ..Default::default() };
            channel.queue_declare(ORDERS.into(), durable, FieldTable::default()).await.unwrap();
            (connection, channel)
        });
        Self { channel, _connection: connection, runtime, server }
    }

    /// A connection that is lost with its process is noticed at once.
    fn source(&self, _: Duration) -> String {
        format!("{}/?queue={ORDERS}&group={GROUP}", self.server.url())
    }

    fn publish(&self, id: &str, body: &str) {
        let mut headers = FieldTable::default();
        for (name, value) in [("event-id", id), ("tenant", "acme")] {
            headers.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        let properties = BasicProperties::default().with_headers(headers).with_delivery_mode(2);
        let options = BasicPublishOptions { mandatory: true, ..Default::default() };
        self.runtime.block_on(async {
            let body = body.as_bytes();
            let sent = self.channel.basic_publish("".into(), ORDERS.into(), options, body, properties).await;
            assert!(sent.unwrap().await.unwrap().is_ack());
        });
    }

    fn left(&self) -> u64 {
        let passive = QueueDeclareOptions { passive: true, ..Default::default() };
        let asked = self.channel.queue_declare(ORDERS.into(), passive, FieldTable::default());
        self.runtime.block_on(asked).unwrap().message_count().into()
    }

    fn dead_letters(&self) -> String {
        self.runtime.block_on(async {
            let mut letters = Vec::new();
            let get = || self.channel.basic_get("orders.dead-letter".into(), BasicGetOptions::default());
            while let Some(letter) = get().await.unwrap() {
                let headers = letter.delivery.properties.headers().clone().unwrap_or_default();
                letters.extend(headers.inner().values().map(|value| match value {
                    AMQPValue::LongString(text) => text.to_string(),
                    other => format!("{other:?}"),
                }));
            }
            letters.join("\n")
        })
    }
}
