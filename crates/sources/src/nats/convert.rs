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

/// What a block of headers has beside its fields, and a field beside its name and value: `NATS/1.0`, `: `, ends of lines.
const FRAME_BYTES: usize = "NATS/1.0\r\n\r\n".len();
const FIELD_BYTES: usize = ": \r\n".len();

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

/// The headers of a dead letter, in `room` bytes: those of the message, but for the ones that steer the server, and why it is
/// one as far as there is room. The server counts headers with the body: a large message leaves little.
///
/// Also whether there was room for all of it. `None`: there is none for the message's own headers.
pub(super) fn dead_letter_headers(letter: &Letter<'_>, room: usize) -> Option<(HeaderMap, bool)> {
    let Some(room) = room.checked_sub(FRAME_BYTES) else {
        let has_own = letter.delivered.headers.as_ref().is_some_and(|headers| !headers.is_empty());
        return (!has_own).then(|| (HeaderMap::new(), false));
    };
    let mut kept = Kept { headers: HeaderMap::new(), room, is_whole: true };
    let mut ids = Vec::new();
    for (name, values) in letter.delivered.headers.iter().flat_map(HeaderMap::iter) {
        let is_id = name.to_string().eq_ignore_ascii_case(NATS_MESSAGE_ID.as_ref());
        let is_steering = name.to_string().to_ascii_lowercase().starts_with(STEERING);
        for value in values {
            match (is_id, is_steering) {
                (true, _) => ids.push(value.to_string()),
                (false, true) => {}
                (false, false) => kept.add(name.as_ref(), value.as_str()).then_some(())?,
            }
        }
    }
    let position = message(letter.delivered).and_then(|(message, ..)| message.position).unwrap_or_default();
    for id in ids {
        kept.add(MESSAGE_ID, &id);
    }
    // A second try within the server's window for duplicates is not kept twice.
    kept.add(NATS_MESSAGE_ID.as_ref(), &format!("{}:{position}", letter.group));
    kept.add(dead_letter::POSITION, &position);
    kept.add(dead_letter::GROUP, letter.group);
    kept.add(dead_letter::DELIVERIES, &letter.deliveries.to_string());
    kept.add_part(dead_letter::REASON, dead_letter::reason(letter.reason));
    Some((kept.headers, kept.is_whole))
}

/// What a dead letter is made of.
pub(super) struct Letter<'a> {
    pub(super) delivered: &'a Delivered,
    pub(super) reason: &'a str,
    pub(super) group: &'a str,
    pub(super) deliveries: u32,
}

/// Headers in bounded room.
struct Kept {
    headers: HeaderMap,
    room: usize,
    is_whole: bool,
}

impl Kept {
    /// Adds a header if there is room for it.
    fn add(&mut self, name: &str, value: &str) -> bool {
        let room = self.room.checked_sub(name.len() + value.len() + FIELD_BYTES);
        match room {
            Some(room) => {
                self.room = room;
                self.headers.append(name, value);
            }
            None => self.is_whole = false,
        }
        room.is_some()
    }

    /// Adds a header with as much of its value as there is room for.
    fn add_part(&mut self, name: &str, mut value: String) {
        let whole = value.len();
        let mut end = self.room.saturating_sub(name.len() + FIELD_BYTES).min(whole);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        value.truncate(end);
        if !value.is_empty() {
            self.add(name, &value);
        }
        self.is_whole &= end == whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(room: usize) -> Kept {
        Kept { headers: HeaderMap::new(), room, is_whole: true }
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_a_reason_is_cut() {
        // "a: bc" and its end of line are 7 bytes.
        let mut exact = kept(7);
        assert!(exact.add("a", "bc") && exact.is_whole && exact.room == 0);
        assert!(!exact.add("d", "") && !exact.is_whole && exact.headers.len() == 1);
        let mut cut = kept(8);
        cut.add_part("a", "bcé".into());
        assert_eq!(cut.headers.get("a").map(async_nats::HeaderValue::as_str), Some("bc"), "no half letters");
        assert!(!cut.is_whole);
        let mut none = kept(5);
        none.add_part("a", "b".into());
        assert!(none.headers.is_empty() && !none.is_whole);
    }
}
