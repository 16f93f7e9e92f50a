//! Writes events in the caller's transaction, under ids that a rerun makes again.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::key::derive::{Derivation, Form};

use super::Outbox;
use crate::id::MessageId;
use crate::message::Headers;
use crate::transactional::{Driver, InboxError, Row};

/// An event to be published.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Where to: a topic, a subject, a routing key.
    pub topic: String,
    /// Events with the same key go out in the order in which they were written.
    pub order_key: Option<String>,
    /// What goes with it. The relay adds `event-id`.
    pub headers: Headers,
    /// What it says.
    pub body: Bytes,
}

impl Event {
    /// An event that says `body` to `topic`.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { topic: topic.into(), order_key: None, headers: Headers::default(), body: body.into() }
    }

    /// Keeps it in order with others of the same key.
    #[must_use]
    pub fn ordered_by(mut self, key: impl Into<String>) -> Self {
        self.order_key = Some(key.into());
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.add(name, value);
        self
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?}, {} bytes)", self.topic, self.body.len())
    }
}

/// Writes the events of one incoming message. Their order is part of their ids: emit them in the same one every time.
#[derive(Debug)]
pub struct Emitter<'o> {
    outbox: &'o Outbox,
    consumer: Arc<str>,
    incoming: MessageId,
    emitted: u32,
}

impl Outbox {
    /// For the events that `consumer` emits while it handles `incoming`.
    pub fn emitter(&self, consumer: &str, incoming: &MessageId) -> Emitter<'_> {
        Emitter { outbox: self, consumer: consumer.into(), incoming: incoming.clone(), emitted: 0 }
    }
}

impl Emitter<'_> {
    /// Writes the next event in `transaction` and gives its id: it is published if and only if that commits.
    pub async fn emit(&mut self, transaction: &mut impl Driver, event: &Event) -> Result<String, InboxError> {
        let id = self.id_of(self.emitted)?;
        let statement = format!(
            "INSERT INTO {}.outbox (bucket, id, topic, order_key, header_names, header_values, body) \
             VALUES ({}, $1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
            self.outbox.schema,
            self.outbox.bucket(0)
        );
        let row = Row {
            id: &id,
            topic: &event.topic,
            order_key: event.order_key.as_deref(),
            header_names: event.headers.iter().map(|(name, _)| name).collect(),
            header_values: event.headers.iter().map(|(_, value)| &value[..]).collect(),
            body: &event.body,
        };
        transaction.write(&statement, row).await?;
        self.emitted += 1;
        Ok(id)
    }

    fn id_of(&self, ordinal: u32) -> Result<String, InboxError> {
        // A position and an id that read alike are not the same message.
        let kind = if self.incoming.is_position() { "position" } else { "id" };
        let params = format!("{{\"incoming\": \"{kind}\", \"ordinal\": {ordinal}}}");
        let derived = Derivation::new(self.incoming.key().as_str(), &self.consumer)
            .and_then(|derivation| derivation.with_params(&params))
            .map_err(InboxError::database)?;
        Ok(derived.with_form(Form::LengthPrefixed).key().as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_on_every_attempt_and_differ_by_every_part() {
        let outbox = Outbox::new("public").unwrap();
        let id = |incoming: &str, consumer: &str, ordinal| {
            outbox.emitter(consumer, &MessageId::given(incoming).unwrap()).id_of(ordinal).unwrap()
        };
        let one = id("m-1", "billing", 0);
        assert_eq!(id("m-1", "billing", 0), one);
        assert_eq!(one, "7ea23a3f842afea4837bb71b71fca846");
        for other in [
            id("m-2", "billing", 0),
            id("m-1", "mailing", 0),
            id("m-1", "billing", 1),
            id("m-1b", "illing", 0),
        ] {
            assert_ne!(other, one);
        }
    }
}
