//! From what the server answers to messages. Only this file knows the shape of the answers.

use onlyonce_core::Timestamp;
use onlyonce_inbox::{Headers, Message, SourceError};
use redis::Value;

use super::link::unreadable;

/// An entry of a stream: its id, and names and values in turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: String,
    pub(super) fields: Vec<Vec<u8>>,
    /// Which delivery it is.
    pub(super) deliveries: u32,
}

impl Entry {
    /// How many bytes it has, about.
    pub(super) fn bytes(&self) -> usize {
        self.id.len() + self.fields.iter().map(Vec::len).sum::<usize>()
    }

    /// The message of an entry of `stream`, whose body is the field `body`.
    pub(super) fn message(self, stream: &str, body: &str) -> Message {
        let mut headers = Headers::default();
        let mut found = None;
        let mut fields = self.fields.into_iter();
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            if found.is_none() && name == body.as_bytes() {
                found = Some(value);
            } else {
                headers.add(String::from_utf8_lossy(&name).into_owned(), value);
            }
        }
        let mut message = Message::new(found.unwrap_or_else(|| as_json(&headers)));
        message.headers = headers;
        message = message.at(format!("{stream}:{}", self.id));
        // Ids that the server makes begin with the time.
        match self.id.split_once('-').and_then(|(millis, _)| millis.parse().ok()) {
            Some(millis) => message.published(Timestamp::from_millis(millis)),
            None => message,
        }
    }
}

/// All fields as one JSON object. What is no text is written as text as well as it goes.
fn as_json(fields: &Headers) -> Vec<u8> {
    let text = |value: &[u8]| serde_json::Value::from(String::from_utf8_lossy(value).into_owned());
    let object: serde_json::Map<_, _> =
        fields.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    serde_json::Value::from(object).to_string().into_bytes()
}

/// What `XREADGROUP` answers for one stream: entries that are delivered for the first time. None came: nil.
pub(super) fn read(answer: Value) -> Result<Vec<Entry>, SourceError> {
    let streams = match answer {
        Value::Nil => return Ok(Vec::new()),
        Value::Array(streams) => streams,
        _ => return Err(shape()),
    };
    let Some(Value::Array(stream)) = streams.into_iter().next() else { return Err(shape()) };
    let Some(Value::Array(entries)) = stream.into_iter().nth(1) else { return Err(shape()) };
    entries.into_iter().map(|found| entry(found, Some(1))).collect()
}

/// What `again.lua` answers: entries, and the ids of those that are no longer in the stream.
pub(super) fn again(answer: Value) -> Result<(Vec<Entry>, Vec<String>), SourceError> {
    let Value::Array(parts) = answer else { return Err(shape()) };
    let mut parts = parts.into_iter();
    let (Some(Value::Array(entries)), Some(Value::Array(trimmed))) = (parts.next(), parts.next()) else {
        return Err(shape());
    };
    let entries: Result<_, _> = entries.into_iter().map(|found| entry(found, None)).collect();
    Ok((entries?, trimmed.into_iter().map(text).collect::<Result<_, _>>()?))
}

/// What `abandoned.lua` answers: where to go on, and the same as above.
pub(super) fn abandoned(answer: Value) -> Result<(String, Vec<Entry>, Vec<String>), SourceError> {
    let Value::Array(mut parts) = answer else { return Err(shape()) };
    if parts.is_empty() {
        return Err(shape());
    }
    let cursor = text(parts.remove(0))?;
    let (entries, trimmed) = again(Value::Array(parts))?;
    Ok((cursor, entries, trimmed))
}

/// How many entries a group has still to read, if the server knows.
pub(super) fn lag(answer: &Value, group: &str) -> Option<u64> {
    let Value::Array(groups) = answer else { return None };
    groups.iter().find_map(|facts| {
        let Value::Array(facts) = facts else { return None };
        let fact = |name: &str| {
            let is_name =
                |value: &Value| matches!(value, Value::BulkString(found) if found == name.as_bytes());
            facts.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1])
        };
        match (fact("name"), fact("lag")) {
            (Some(Value::BulkString(name)), Some(Value::Int(lag))) if name == group.as_bytes() => {
                u64::try_from(*lag).ok()
            }
            _ => None,
        }
    })
}

/// `[id, [name, value, …]]`, and which delivery it is when that is not known yet.
fn entry(found: Value, deliveries: Option<u32>) -> Result<Entry, SourceError> {
    let Value::Array(parts) = found else { return Err(shape()) };
    let mut parts = parts.into_iter();
    let (Some(id), Some(Value::Array(fields))) = (parts.next(), parts.next()) else { return Err(shape()) };
    let deliveries = match (deliveries, parts.next()) {
        (Some(known), _) => known,
        (None, Some(Value::Int(count))) => u32::try_from(count).unwrap_or(u32::MAX),
        _ => return Err(shape()),
    };
    let bytes = |value| match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(shape()),
    };
    Ok(Entry { id: text(id)?, fields: fields.into_iter().map(bytes).collect::<Result<_, _>>()?, deliveries })
}

fn text(value: Value) -> Result<String, SourceError> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| shape()),
        Value::SimpleString(text) => Ok(text),
        _ => Err(shape()),
    }
}

fn shape() -> SourceError {
    unreadable("reading entries")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(fields: &[&[u8]]) -> Entry {
        let fields = fields.iter().map(|part| part.to_vec()).collect();
        Entry { id: "1700000000123-4".into(), fields, deliveries: 1 }
    }

    #[test]
    fn the_body_is_one_field_and_the_others_are_headers() {
        let message =
            entry_of(&[b"event-id", b"e1", b"body", b"\xff\x00", b"body", b"second"]).message("s", "body");
        assert_eq!(&message.body[..], b"\xff\x00");
        assert_eq!(
            (message.headers.text("event-id"), message.headers.text("body")),
            (Some("e1"), Some("second"))
        );
        assert_eq!(message.position.as_deref(), Some("s:1700000000123-4"));
        assert_eq!(message.published_at, Some(Timestamp::from_millis(1_700_000_000_123)));
    }

    #[test]
    fn an_entry_without_a_body_is_an_object_of_its_fields() {
        let message = entry_of(&[b"amount", b"10", b"note", b"a\"b"]).message("s", "body");
        assert_eq!(&message.body[..], br#"{"amount":"10","note":"a\"b"}"#);
        assert_eq!(message.headers.len(), 2);
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error() {
        assert_eq!(read(Value::Nil).unwrap(), []);
        for bad in [Value::Int(1), Value::Array(vec![]), Value::Array(vec![Value::Int(1)])] {
            assert!(read(bad.clone()).is_err() && again(bad.clone()).is_err() && abandoned(bad).is_err());
        }
    }
}
