//! Outcomes and steps of the keyed door: bytes with a content type. Inline when they are JSON, else in base64.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut as _, Bytes, BytesMut};
use onlyonce_core::{Body, Outcome, Tombstone};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::refusal::Refusal;

/// What the bytes of the keyed door's outcomes mean: a length, a content type, and the rest.
const CLAIMS_OUTCOME: u16 = 16;
/// The same for steps, which carry no version beside them.
const STEP_VERSION: u8 = 1;
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// Bytes with a content type: exactly one of `json`, `base64` and `tombstone`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Content {
    /// Any JSON value, kept as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "also_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    json: Option<Box<RawValue>>,
    /// What the bytes in `base64` are; `application/octet-stream` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    /// Any bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// Why there are no bytes: `discarded` or `too-large`; in answers also `erased` and `indeterminate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tombstone: Option<TombstoneName>,
    /// In answers only: the bytes were written by an engine, whose version of their meaning this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_version: Option<u16>,
    /// In answers only: what such an engine keeps beside them, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<String>,
}

/// Why bytes were not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TombstoneName {
    TooLarge,
    Discarded,
    Erased,
    Indeterminate,
}

impl From<Tombstone> for TombstoneName {
    fn from(why: Tombstone) -> Self {
        match why {
            Tombstone::TooLarge => Self::TooLarge,
            Tombstone::Discarded => Self::Discarded,
            Tombstone::Erased => Self::Erased,
            // The kinds are complete; a later one says no more than that nothing is known.
            _ => Self::Indeterminate,
        }
    }
}

impl From<TombstoneName> for Tombstone {
    fn from(why: TombstoneName) -> Self {
        match why {
            TombstoneName::TooLarge => Self::TooLarge,
            TombstoneName::Discarded => Self::Discarded,
            TombstoneName::Erased => Self::Erased,
            TombstoneName::Indeterminate => Self::Indeterminate,
        }
    }
}

/// `null` is a JSON value like any other.
pub(crate) fn also_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

/// Bytes and what they are.
pub(crate) struct Typed {
    pub(crate) content_type: String,
    pub(crate) bytes: Bytes,
}

impl Content {
    /// The bytes that were sent; `None` for a tombstone.
    fn typed(self) -> Result<Option<Typed>, Refusal> {
        if self.content_version.is_some() || self.head.is_some() {
            return Err(Refusal::invalid("`content_version` and `head` are in answers only"));
        }
        let content_type = self.content_type;
        match (self.json, self.base64, self.tombstone) {
            (Some(json), None, None) if content_type.is_none() => {
                let bytes = Bytes::from(json.get().to_owned());
                Ok(Some(Typed { content_type: JSON.to_owned(), bytes }))
            }
            (None, Some(base64), None) => {
                let content_type = content_type.unwrap_or_else(|| OCTETS.to_owned());
                Ok(Some(Typed { content_type, bytes: decoded(&base64)? }))
            }
            (None, None, Some(TombstoneName::Discarded | TombstoneName::TooLarge))
                if content_type.is_none() =>
            {
                Ok(None)
            }
            _ => Err(Refusal::invalid(
                "an outcome has exactly one of `json`, `base64` (with or without `content_type`) and `tombstone` \
                 (discarded or too-large)",
            )),
        }
    }

    /// The outcome to be recorded.
    pub(crate) fn into_outcome(self) -> Result<Outcome, Refusal> {
        let tombstone = self.tombstone;
        match (self.typed()?, tombstone) {
            (Some(typed), _) => typed.into_outcome(),
            (None, why) => {
                let why = why.unwrap_or(TombstoneName::Discarded);
                Ok(Outcome::tombstone(CLAIMS_OUTCOME, why.into()))
            }
        }
    }

    /// The value of a step.
    pub(crate) fn into_step(self) -> Result<Bytes, Refusal> {
        match self.typed()? {
            Some(typed) => typed.into_step(),
            None => Err(Refusal::invalid("a step has a value: `json` or `base64`")),
        }
    }

    /// A recorded outcome, to be shown.
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let Body::Kept(bytes) = outcome.body() else {
            let Body::Tombstone(why) = outcome.body() else { return Self::default() };
            return Self { tombstone: Some((*why).into()), ..Self::default() };
        };
        if outcome.content_version() == CLAIMS_OUTCOME
            && let Some(typed) = unpacked(bytes)
        {
            return typed.into_content();
        }
        Self {
            base64: Some(STANDARD.encode(bytes)),
            content_version: Some(outcome.content_version()),
            head: Some(STANDARD.encode(outcome.head())),
            ..Self::default()
        }
    }

    /// A recorded step, to be shown. Those of engines are bytes of no known type.
    pub(crate) fn of_step(value: &Bytes) -> Self {
        let typed = match value.first() {
            Some(&STEP_VERSION) => unpacked(&value.slice(1..)),
            _ => None,
        };
        typed
            .unwrap_or_else(|| Typed { content_type: OCTETS.to_owned(), bytes: value.clone() })
            .into_content()
    }
}

impl Typed {
    /// The bytes of an outcome as they were sent, when they are kept.
    pub(crate) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome.body() {
            Body::Kept(bytes) if outcome.content_version() == CLAIMS_OUTCOME => unpacked(bytes),
            Body::Kept(bytes) => Some(Self { content_type: OCTETS.to_owned(), bytes: bytes.clone() }),
            Body::Tombstone(_) => None,
        }
    }

    pub(crate) fn into_outcome(self) -> Result<Outcome, Refusal> {
        Ok(Outcome::kept(CLAIMS_OUTCOME, self.packed(None)?))
    }

    pub(crate) fn into_step(self) -> Result<Bytes, Refusal> {
        self.packed(Some(STEP_VERSION))
    }

    fn packed(self, version: Option<u8>) -> Result<Bytes, Refusal> {
        let is_printable = self.content_type.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
        let length = u8::try_from(self.content_type.len()).ok().filter(|length| *length > 0 && is_printable);
        let length = length
            .ok_or_else(|| Refusal::invalid("a content type has 1 to 255 printable ASCII characters"))?;
        let mut packed = BytesMut::with_capacity(2 + self.content_type.len() + self.bytes.len());
        packed.extend(version);
        packed.put_u8(length);
        packed.extend_from_slice(self.content_type.as_bytes());
        packed.extend_from_slice(&self.bytes);
        Ok(packed.freeze())
    }

    fn into_content(self) -> Content {
        if self.content_type == JSON
            && let Some(json) =
                String::from_utf8(self.bytes.to_vec()).ok().and_then(|text| RawValue::from_string(text).ok())
        {
            return Content { json: Some(json), ..Content::default() };
        }
        let base64 = Some(STANDARD.encode(&self.bytes));
        Content { content_type: Some(self.content_type), base64, ..Content::default() }
    }
}

fn unpacked(packed: &Bytes) -> Option<Typed> {
    let length = usize::from(*packed.first()?);
    let content_type = std::str::from_utf8(packed.get(1..=length)?).ok()?.to_owned();
    Some(Typed { content_type, bytes: packed.slice(1 + length..) })
}

/// Base64, in the standard alphabet with padding.
pub(crate) fn decoded(text: &str) -> Result<Bytes, Refusal> {
    STANDARD.decode(text).map(Bytes::from).map_err(|error| Refusal::invalid(format!("base64: {error}")))
}

/// The same, the other way.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A duration as the wire counts it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Content {
        serde_json::from_str(text).unwrap()
    }

    fn shown(content: &Content) -> String {
        serde_json::to_string(content).unwrap()
    }

    #[test]
    fn what_is_kept_comes_back_as_it_was_sent() {
        for text in [
            r#"{"json":null}"#,
            r#"{"json":{"b": 1.0,  "a":[1e3]}}"#,
            r#"{"content_type":"image/png","base64":"iVBORw=="}"#,
            r#"{"tombstone":"discarded"}"#,
            r#"{"tombstone":"too-large"}"#,
        ] {
            assert_eq!(shown(&Content::of(&read(text).into_outcome().unwrap())), text);
        }
        let step = read(r#"{"json":[1, 2]}"#).into_step().unwrap();
        assert_eq!(shown(&Content::of_step(&step)), r#"{"json":[1, 2]}"#);
        let engines = Content::of_step(&Bytes::from_static(b"[1]"));
        assert_eq!(shown(&engines), r#"{"content_type":"application/octet-stream","base64":"WzFd"}"#);
        let foreign = Outcome::kept(7, "x").with_head("h").unwrap();
        assert_eq!(shown(&Content::of(&foreign)), r#"{"base64":"eA==","content_version":7,"head":"aA=="}"#);
    }

    #[test]
    fn what_is_not_exactly_one_thing_is_refused() {
        for text in [
            "{}",
            r#"{"json":1,"base64":""}"#,
            r#"{"json":1,"content_type":"text/plain"}"#,
            r#"{"content_type":"text/plain"}"#,
            r#"{"tombstone":"erased"}"#,
            r#"{"tombstone":"discarded","base64":""}"#,
            r#"{"base64":"?"}"#,
            r#"{"base64":"","content_type":""}"#,
            r#"{"base64":"","content_version":1}"#,
        ] {
            assert!(read(text).into_outcome().is_err(), "{text}");
        }
    }
}
