//! What names a message: the same at every delivery, another for every other message.
//!
//! A message that is published twice has two positions: only an id that its producer gave it tells that it is the same.
//! So a position is the last resort.

use std::fmt;

use onlyonce_core::key::derive::{Derivation, Form};
use onlyonce_core::{Key, Principal, Scope, ScopedKey};

use crate::message::Message;

/// The namespace of all messages' records, so that no request's key meets them.
pub const NAMESPACE: &str = "onlyonce/messages";
/// The most rules.
pub const RULES_MAX: usize = 16;

/// Where an id may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdRule {
    /// In the header of this name.
    Header(String),
    /// `source` and `id` of a `CloudEvents` event, in headers (`ce-`, `ce_`, `cloudEvents:`, `cloudEvents_`) or in a
    /// body of type `application/cloudevents+json`.
    CloudEvents,
    /// In the JSON body, at this pointer (RFC 6901): a string or an integer.
    Json(String),
    /// Where the broker keeps it. Tells deliveries apart from messages, but not a message that was published twice.
    Position,
}

/// Where ids are looked for: the first rule that finds one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdRules(Vec<IdRule>);

impl IdRules {
    /// These rules, in this order.
    pub fn new(rules: impl IntoIterator<Item = IdRule>) -> Self {
        Self(rules.into_iter().take(RULES_MAX).collect())
    }

    /// The id of `message`, or `None` when no rule finds one.
    pub fn find(&self, message: &Message) -> Option<MessageId> {
        self.0.iter().find_map(|rule| rule.find(message))
    }
}

impl Default for IdRules {
    /// The header `event-id`, `CloudEvents`, then the position.
    fn default() -> Self {
        Self::new([IdRule::Header("event-id".into()), IdRule::CloudEvents, IdRule::Position])
    }
}

impl IdRule {
    fn find(&self, message: &Message) -> Option<MessageId> {
        match self {
            Self::Header(name) => MessageId::given(message.headers.text(name)?.trim()),
            Self::CloudEvents => cloud_event(message),
            Self::Json(pointer) => json_id(message, pointer),
            Self::Position => {
                let key = key_of("position", message.position.as_deref().filter(|text| !text.is_empty())?)?;
                Some(MessageId { key, of_position: true })
            }
        }
    }
}

/// What names a message for one consumer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MessageId {
    key: Key,
    of_position: bool,
}

impl MessageId {
    /// The id that a producer gave; `None` when it is empty. What is no key by itself (too long, not ASCII) is named
    /// by a digest of it.
    pub fn given(text: &str) -> Option<Self> {
        key_of("id", text).map(|key| Self { key, of_position: false })
    }

    /// The id as a key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Whether it only says where the message lies.
    pub const fn is_position(&self) -> bool {
        self.of_position
    }

    /// The operation: `consumer` handles this message.
    pub fn for_consumer(&self, consumer: &str) -> ScopedKey {
        let scope = Scope::new(NAMESPACE, Principal::named(consumer));
        // A position that reads like someone's id is not that id.
        let scope = if self.of_position { scope.on_path("position") } else { scope };
        scope.into_key(self.key.clone())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({:?}, position: {})", self.key, self.of_position)
    }
}

fn key_of(kind: &str, text: &str) -> Option<Key> {
    if text.is_empty() {
        return None;
    }
    Key::new(text).ok().or_else(|| derived(kind, text))
}

fn derived(kind: &str, text: &str) -> Option<Key> {
    Some(Derivation::new(text, kind).ok()?.with_form(Form::LengthPrefixed).key())
}

/// `source` and `id` together: an id is unique only within its source.
fn cloud_event(message: &Message) -> Option<MessageId> {
    let pair = |source: &str, id: &str| {
        let key = Derivation::new(source, id).ok()?.with_form(Form::LengthPrefixed).key();
        Some(MessageId { key, of_position: false })
    };
    for prefix in ["ce-", "ce_", "cloudEvents:", "cloudEvents_"] {
        let part = |name: &str| message.headers.text(&format!("{prefix}{name}"));
        if let (Some(source), Some(id)) = (part("source"), part("id")) {
            return pair(source, id);
        }
    }
    let content_type = message.headers.text("content-type")?;
    if !content_type.to_ascii_lowercase().starts_with("application/cloudevents+json") {
        return None;
    }
    let event: serde_json::Value = serde_json::from_slice(&message.body).ok()?;
    pair(event.get("source")?.as_str()?, event.get("id")?.as_str()?)
}

fn json_id(message: &Message, pointer: &str) -> Option<MessageId> {
    let body: serde_json::Value = serde_json::from_slice(&message.body).ok()?;
    match body.pointer(pointer)? {
        serde_json::Value::String(text) => MessageId::given(text),
        // 1 and 1.0 are not told apart by every producer: only whole numbers name something.
        serde_json::Value::Number(number) if number.is_i64() || number.is_u64() => {
            MessageId::given(&number.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(message: &Message) -> Option<MessageId> {
        IdRules::default().find(message)
    }

    #[test]
    fn a_given_id_beats_a_position() {
        let message = Message::new("x").with_header("Event-Id", "e-1").at("orders:0:7");
        let id = found(&message).unwrap();
        assert_eq!((id.key().as_str(), id.is_position()), ("e-1", false));
        let id = found(&Message::new("x").at("orders:0:7")).unwrap();
        assert_eq!((id.key().as_str(), id.is_position()), ("orders:0:7", true));
        assert_eq!(found(&Message::new("x").with_header("event-id", " ")), None);
    }

    #[test]
    fn a_position_that_reads_like_an_id_is_another_operation() {
        let given = MessageId::given("orders:0:7").unwrap();
        let position = found(&Message::new("x").at("orders:0:7")).unwrap();
        let secret = onlyonce_core::Secret::new([7; 32]);
        let id = |id: &MessageId, consumer| id.for_consumer(consumer).record_id(&secret);
        assert_ne!(id(&given, "billing"), id(&position, "billing"));
        assert_ne!(id(&given, "billing"), id(&given, "mailing"), "each consumer has its own");
    }

    #[test]
    fn cloud_events_are_named_by_source_and_id_in_every_mode() {
        let binary = |prefix: &str, source: &str, id: &str| {
            let message = Message::new("x")
                .with_header(format!("{prefix}source"), source.to_owned())
                .with_header(format!("{prefix}id"), id.to_owned());
            found(&message).unwrap()
        };
        let one = binary("ce-", "/shop", "7");
        for prefix in ["ce_", "cloudEvents:", "cloudEvents_"] {
            assert_eq!(binary(prefix, "/shop", "7"), one, "{prefix}");
        }
        let structured = Message::new(r#"{"specversion":"1.0","id":"7","source":"/shop"}"#)
            .with_header("Content-Type", "application/cloudevents+json; charset=utf-8");
        assert_eq!(found(&structured), Some(one.clone()));
        assert_ne!(binary("ce-", "/sho", "p7"), one, "the parts do not run into each other");
        assert_ne!(binary("ce-", "/other", "7"), one);
    }

    #[test]
    fn what_is_no_key_is_named_by_a_digest_and_what_is_nothing_is_not_named() {
        let long = "é".repeat(1000);
        let (one, two) = (MessageId::given(&long).unwrap(), MessageId::given(&format!("{long}x")).unwrap());
        assert_ne!(one, two);
        assert_eq!(one.key().as_str().len(), 32);
        assert_eq!(MessageId::given(""), None);
    }

    #[test]
    fn a_json_pointer_names_texts_and_whole_numbers() {
        let rules = IdRules::new([IdRule::Json("/event/id".into())]);
        let id = |body: &'static str| rules.find(&Message::new(body)).map(|id| id.key().as_str().to_owned());
        assert_eq!(id(r#"{"event":{"id":"a"}}"#).as_deref(), Some("a"));
        assert_eq!(id(r#"{"event":{"id":12}}"#).as_deref(), Some("12"));
        for bad in [r#"{"event":{"id":1.5}}"#, r#"{"event":{"id":null}}"#, r#"{"event":{}}"#, "no json", ""] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}
