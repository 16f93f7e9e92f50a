//! From records to messages, and from a record to its dead letter.

use bytes::Bytes;
use onlyonce_core::Timestamp;
use onlyonce_inbox::{Headers, Message};
use rdkafka::Message as _;
use rdkafka::message::{Header, Headers as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::FutureRecord;

use super::Handle;
use crate::dead_letter;

/// The header that is a record's key.
const KEY: &str = "kafka-key";

/// The message of a record.
pub(super) fn message(record: &OwnedMessage) -> Message {
    let bytes = |value: Option<&[u8]>| value.map(Bytes::copy_from_slice).unwrap_or_default();
    let mut headers = Headers::default();
    for header in record.headers().into_iter().flat_map(|headers| headers.iter()) {
        headers.add(header.key, bytes(header.value));
    }
    if let Some(key) = record.key() {
        headers.add(KEY, bytes(Some(key)));
    }
    let mut message = Message::new(bytes(record.payload())).at(position(record));
    message.headers = headers;
    match record.timestamp().to_millis().and_then(|millis| u64::try_from(millis).ok()) {
        Some(millis) => message.published(Timestamp::from_millis(millis)),
        None => message,
    }
}

fn position(record: &OwnedMessage) -> String {
    format!("{}:{}:{}", record.topic(), record.partition(), record.offset())
}

/// The dead letter of a record: as it was, and why it is one.
pub(super) fn dead_letter<'a>(
    handle: &'a Handle,
    topic: &'a str,
    group: &str,
    reason: &str,
) -> FutureRecord<'a, [u8], [u8]> {
    let record = &handle.record;
    let more = [
        (dead_letter::REASON, dead_letter::reason(reason)),
        (dead_letter::POSITION, position(record)),
        (dead_letter::GROUP, group.to_owned()),
        (dead_letter::DELIVERIES, handle.deliveries.to_string()),
    ];
    let mut headers = record.headers().cloned().unwrap_or_else(OwnedHeaders::new);
    for (key, value) in &more {
        headers = headers.insert(Header { key, value: Some(value) });
    }
    let mut letter = FutureRecord::to(topic).headers(headers);
    letter.payload = record.payload();
    letter.key = record.key();
    letter
}
