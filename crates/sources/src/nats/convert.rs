//! From `JetStream` messages to ours, and from a message to its dead letter.

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::Message as Delivered;
use onlyonce_core::Timestamp;
use onlyonce_inbox::{Headers, Message};

use crate::dead_letter;

/// Headers by which a publisher steers the server. A dead letter must not.
const STEERING: &str = "nats-";
/// Under which name a dead letter keeps the id by which the server told duplicates apart.
const MESSAGE_ID: &str = "onlyonce-dead-letter-nats-msg-id";

/// A delivered message with its sequence, and which delivery it is. `None`: not from a stream.
pub(super) fn message(delivered: &Delivered) -> Option<(Message, u64, u32)> {
    let info = delivered.info().ok()?;
    let (sequence, deliveries) = (info.stream_sequence, u32::try_from(info.delivered).unwrap_or(u32::MAX));
    let millis = info.published.unix_timestamp_nanos() / 1_000_000;
    let mut message = Message::new(delivered.payload.clone())
        .at(format!("{}:{sequence}", info.stream))
        .published(Timestamp::from_millis(u64::try_from(millis).unwrap_or_default()));
    message.headers = headers(delivered);
    Some((message, sequence, deliveries))
}

/// The client keeps no order: ours is that of the names, so that a message is the same at every delivery.
fn headers(delivered: &Delivered) -> Headers {
    let mut found: Vec<_> = delivered
        .headers
        .iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| values.iter().map(move |value| (name.to_string(), value.to_string())))
        .collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.into_iter().collect()
}

/// The headers of a dead letter: those of the message, but for the ones that steer the server, and why it is one.
pub(super) fn dead_letter_headers(
    delivered: &Delivered,
    reason: &str,
    group: &str,
    deliveries: u32,
) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for (name, values) in delivered.headers.iter().flat_map(HeaderMap::iter) {
        let is_id = name.to_string().eq_ignore_ascii_case(NATS_MESSAGE_ID.as_ref());
        let is_steering = name.to_string().to_ascii_lowercase().starts_with(STEERING);
        for value in values {
            match (is_id, is_steering) {
                (true, _) => kept.append(MESSAGE_ID, value.as_str()),
                (false, true) => {}
                (false, false) => kept.append(name.clone(), value.clone()),
            }
        }
    }
    let position = message(delivered).and_then(|(message, ..)| message.position).unwrap_or_default();
    // A second try within the server's window for duplicates is not kept twice.
    kept.insert(NATS_MESSAGE_ID, format!("{group}:{position}").as_str());
    kept.insert(dead_letter::REASON, dead_letter::reason(reason).as_str());
    kept.insert(dead_letter::POSITION, position.as_str());
    kept.insert(dead_letter::GROUP, group);
    kept.insert(dead_letter::DELIVERIES, deliveries.to_string().as_str());
    kept
}
