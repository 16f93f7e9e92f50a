//! The small shapes of the contract: bytes as base64 or hexadecimal digits, times in milliseconds, and outcomes.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use onlyonce_core::record::{CompletedBy, Fence, Owner, Step, StepName};
use onlyonce_core::{Body, Outcome, RecordId, Tombstone, UnknownPolicy, hex};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The body of a request.
pub(super) fn to_json(command: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(command).expect("texts and numbers can be written as JSON")
}

/// Bytes in the standard alphabet, with padding.
#[derive(Debug, Clone)]
pub(super) struct Base64(pub(super) Bytes);

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text).map(|bytes| Self(bytes.into())).map_err(D::Error::custom)
    }
}

/// Bytes in hexadecimal digits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hex<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = hex::decode(&text).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| D::Error::custom("not hexadecimal digits of the right number"))
    }
}

pub(super) fn id(id: &RecordId) -> Hex<32> {
    Hex(*id.as_bytes())
}

pub(super) fn owner(owner: &Owner) -> Hex<16> {
    Hex(*owner.as_bytes())
}

/// A fence on its way here.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u64")]
pub(super) struct FenceNumber(pub(super) Fence);

impl TryFrom<u64> for FenceNumber {
    type Error = &'static str;

    fn try_from(number: u64) -> Result<Self, &'static str> {
        Fence::new(number).map(Self).ok_or("a fence is below 2^53")
    }
}

/// Whole milliseconds; what does not fit is for ever.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// An outcome, in either direction.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OutcomeText {
    content_version: u16,
    head: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Base64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tombstone: Option<TombstoneText>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TombstoneText {
    TooLarge,
    Discarded,
    Erased,
    Indeterminate,
}

impl OutcomeText {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let (body, tombstone) = match outcome.body() {
            Body::Kept(bytes) => (Some(Base64(bytes.clone())), None),
            Body::Tombstone(Tombstone::TooLarge) => (None, Some(TombstoneText::TooLarge)),
            Body::Tombstone(Tombstone::Erased) => (None, Some(TombstoneText::Erased)),
            Body::Tombstone(Tombstone::Indeterminate) => (None, Some(TombstoneText::Indeterminate)),
            Body::Tombstone(_) => (None, Some(TombstoneText::Discarded)),
        };
        let head = Base64(outcome.head().clone());
        Self { content_version: outcome.content_version(), head, body, tombstone }
    }

    pub(super) fn read(self) -> Result<Outcome, &'static str> {
        let outcome = match (self.body, self.tombstone) {
            (Some(Base64(bytes)), None) => Outcome::kept(self.content_version, bytes),
            (None, Some(why)) => Outcome::tombstone(
                self.content_version,
                match why {
                    TombstoneText::TooLarge => Tombstone::TooLarge,
                    TombstoneText::Discarded => Tombstone::Discarded,
                    TombstoneText::Erased => Tombstone::Erased,
                    TombstoneText::Indeterminate => Tombstone::Indeterminate,
                },
            ),
            _ => return Err("an outcome has a body or a tombstone"),
        };
        outcome.with_head(self.head.0).map_err(|_| "the head of an outcome is too long")
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StepText {
    name: String,
    value: Option<Base64>,
}

impl StepText {
    pub(super) fn read_all(steps: Vec<Self>) -> Result<Vec<Step>, &'static str> {
        let read = |step: Self| {
            let name = StepName::new(&step.name).map_err(|_| "a step has a name that is none")?;
            Ok(Step { name, value: step.value.map(|value| value.0) })
        };
        steps.into_iter().map(read).collect()
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ByText {
    Execution,
    Seal,
    Resolve,
}

impl From<ByText> for CompletedBy {
    fn from(by: ByText) -> Self {
        match by {
            ByText::Execution => Self::Execution,
            ByText::Seal => Self::Seal,
            ByText::Resolve => Self::Resolve,
        }
    }
}

pub(super) const fn unknown_policy(policy: UnknownPolicy) -> &'static str {
    match policy {
        UnknownPolicy::Hold => "hold",
        UnknownPolicy::Seal => "seal",
        UnknownPolicy::Query => "query",
        UnknownPolicy::Rerun => "rerun",
    }
}
