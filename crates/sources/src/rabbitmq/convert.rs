//! From AMQP deliveries to messages, and from a delivery to its retry or its dead letter.

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::message::Delivery;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use onlyonce_core::Timestamp;
use onlyonce_inbox::{Headers, Message};

use crate::dead_letter;

/// How the server says that a message died in a queue before: also in one of our own, for retries.
const DEATHS: &str = "x-death";
const DEATH_PREFIXES: [&str; 3] = [DEATHS, "x-first-death-", "x-last-death-"];
/// The header that says who published, where the property cannot.
const USER_ID: &str = "user-id";
/// A message that survives the server.
const PERSISTENT: u8 = 2;

/// How the names of the queues begin in which retries of `queue` wait.
pub(super) fn retry_prefix(queue: &str) -> String {
    format!("{queue}.retry.")
}

/// The message that was delivered. Properties are headers under their own names.
pub(super) fn message(delivery: &Delivery, queue: &str) -> Message {
    let properties = &delivery.properties;
    let mut headers = Headers::default();
    for (name, value) in properties_as_headers(properties) {
        headers.add(name, value);
    }
    for (name, value) in headers_of(properties, queue).inner() {
        headers.add(name.as_str(), bytes_of(value));
    }
    let mut message = Message::new(delivery.data.clone());
    message.headers = headers;
    match properties.timestamp() {
        Some(seconds) => message.published(Timestamp::from_millis(seconds.saturating_mul(1000))),
        None => message,
    }
}

/// Whether it was delivered before: the server says so, it counts deliveries, or it comes from a retry.
pub(super) fn was_delivered(delivery: &Delivery, queue: &str) -> bool {
    let counted = delivery
        .properties
        .headers()
        .as_ref()
        .is_some_and(|headers| headers.contains_key("x-delivery-count"));
    delivery.redelivered || counted || is_retry(&delivery.properties, queue)
}

/// The properties for a retry: as they were. It waits as long as it is told to, also when it would have expired before.
pub(super) fn retry_properties(delivery: &Delivery, queue: &str) -> BasicProperties {
    kept(&delivery.properties, headers_of(&delivery.properties, queue))
}

/// The properties for a dead letter: as they were, and why it is one.
pub(super) fn dead_letter_properties(
    delivery: &Delivery,
    queue: &str,
    group: &str,
    reason: &str,
) -> BasicProperties {
    let mut headers = headers_of(&delivery.properties, queue);
    for (name, value) in [
        (dead_letter::REASON, dead_letter::reason(reason).as_str()),
        (dead_letter::POSITION, queue),
        (dead_letter::GROUP, group),
    ] {
        headers.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    // A dead letter is kept until an operator comes.
    kept(&delivery.properties, headers)
}

/// These properties with other headers, for a message that survives the server and does not expire.
///
/// There is no way to take a property away, and the server refuses an empty expiration: so all the others are given. It
/// also refuses the name of another user than ours: that becomes a header, which reads the same.
fn kept(properties: &BasicProperties, mut headers: FieldTable) -> BasicProperties {
    type Set<T> = fn(BasicProperties, T) -> BasicProperties;
    let texts: [(&Option<ShortString>, Set<ShortString>); 8] = [
        (properties.content_type(), BasicProperties::with_content_type),
        (properties.content_encoding(), BasicProperties::with_content_encoding),
        (properties.correlation_id(), BasicProperties::with_correlation_id),
        (properties.reply_to(), BasicProperties::with_reply_to),
        (properties.message_id(), BasicProperties::with_message_id),
        (properties.kind(), BasicProperties::with_type),
        (properties.app_id(), BasicProperties::with_app_id),
        (properties.cluster_id(), BasicProperties::with_cluster_id),
    ];
    if let Some(user) = properties.user_id() {
        headers.insert(USER_ID.into(), AMQPValue::LongString(user.as_str().into()));
    }
    let mut kept = BasicProperties::default().with_headers(headers).with_delivery_mode(PERSISTENT);
    for (text, set) in texts {
        if let Some(text) = text {
            kept = set(kept, text.clone());
        }
    }
    if let Some(priority) = properties.priority() {
        kept = kept.with_priority(*priority);
    }
    match properties.timestamp() {
        Some(seconds) => kept.with_timestamp(*seconds),
        None => kept,
    }
}

/// The headers without what the server added because of our own retries.
fn headers_of(properties: &BasicProperties, queue: &str) -> FieldTable {
    let headers = properties.headers().clone().unwrap_or_default();
    if !is_retry(properties, queue) {
        return headers;
    }
    let mut kept = FieldTable::default();
    for (name, value) in headers.inner() {
        if !DEATH_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix)) {
            kept.insert(name.clone(), value.clone());
        }
    }
    kept
}

/// Whether it waited in one of our queues for retries.
fn is_retry(properties: &BasicProperties, queue: &str) -> bool {
    let Some(headers) = properties.headers() else { return false };
    let Some(AMQPValue::FieldArray(deaths)) = headers.inner().get(DEATHS) else { return false };
    deaths.as_slice().iter().any(|death| match death {
        AMQPValue::FieldTable(death) => match death.inner().get("queue") {
            Some(AMQPValue::LongString(died_in)) => {
                died_in.as_bytes().starts_with(retry_prefix(queue).as_bytes())
            }
            _ => false,
        },
        _ => false,
    })
}

fn properties_as_headers(properties: &BasicProperties) -> impl Iterator<Item = (&'static str, Bytes)> {
    let texts = [
        ("content-type", properties.content_type()),
        ("content-encoding", properties.content_encoding()),
        ("correlation-id", properties.correlation_id()),
        ("reply-to", properties.reply_to()),
        ("message-id", properties.message_id()),
        ("type", properties.kind()),
        (USER_ID, properties.user_id()),
        ("app-id", properties.app_id()),
    ];
    texts
        .map(|(name, value)| value.as_ref().map(|value| (name, Bytes::from(value.as_str().to_owned()))))
        .into_iter()
        .flatten()
}

/// A header's value as bytes: text as it is, numbers as they are written. What has no such form is described.
fn bytes_of(value: &AMQPValue) -> Bytes {
    match value {
        AMQPValue::LongString(text) => text.as_bytes().to_vec().into(),
        AMQPValue::ShortString(text) => text.as_str().to_owned().into(),
        AMQPValue::ByteArray(bytes) => bytes.as_slice().to_vec().into(),
        AMQPValue::Boolean(value) => value.to_string().into(),
        AMQPValue::ShortShortInt(value) => value.to_string().into(),
        AMQPValue::ShortShortUInt(value) => value.to_string().into(),
        AMQPValue::ShortInt(value) => value.to_string().into(),
        AMQPValue::ShortUInt(value) => value.to_string().into(),
        AMQPValue::LongInt(value) => value.to_string().into(),
        AMQPValue::LongUInt(value) => value.to_string().into(),
        AMQPValue::LongLongInt(value) => value.to_string().into(),
        AMQPValue::Timestamp(value) => value.to_string().into(),
        AMQPValue::Float(value) => value.to_string().into(),
        AMQPValue::Double(value) => value.to_string().into(),
        AMQPValue::Void => Bytes::new(),
        other => format!("{other:?}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_has_every_property_but_the_expiration() {
        let mut headers = FieldTable::default();
        headers.insert(USER_ID.into(), AMQPValue::LongString("somebody".into()));
        let all = BasicProperties::default()
            .with_content_type("application/json".into())
            .with_content_encoding("gzip".into())
            .with_correlation_id("c".into())
            .with_reply_to("r".into())
            .with_message_id("m".into())
            .with_type("t".into())
            .with_app_id("a".into())
            .with_cluster_id("c".into())
            .with_priority(3)
            .with_timestamp(7)
            .with_delivery_mode(PERSISTENT)
            .with_headers(headers);
        let expiring = all.clone().with_expiration("1000".into()).with_user_id("somebody".into());
        assert_eq!(kept(&expiring, FieldTable::default()), all);
    }
}
