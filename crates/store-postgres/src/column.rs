//! How the parts of a record lie in columns. Only this file and `sql/` know.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::record::{CompletedBy, STEPS_MAX, Step, StepName};
use onlyonce_core::{
    Body, Fence, Fingerprint, Outcome, Owner, RecordId, Rules, Timestamp, Tombstone, UnknownPolicy,
};
use uuid::Uuid;

/// How many bytes come before the rules of a fingerprint: their version and the digest.
const FINGERPRINT_BYTES: usize = 33;
/// How many bytes come before the head of a late outcome.
const LATE_BYTES: usize = 12;

/// How many bytes of a body stay in the row: `inline_max()` in `sql/`.
const INLINE_MAX: usize = 1024;

/// An outcome as its columns.
#[derive(Debug, Clone)]
pub(crate) struct OutcomeColumns {
    pub(crate) content_version: i32,
    pub(crate) kept: i16,
    pub(crate) head: Vec<u8>,
    /// The checksum of the body. The row's mark ties it to the record.
    pub(crate) body_sum: Option<i32>,
    pub(crate) body: Option<Bytes>,
}

impl OutcomeColumns {
    pub(crate) fn of(outcome: &Outcome) -> Self {
        let (kept, body) = match outcome.body() {
            Body::Kept(bytes) => (0, Some(bytes.clone())),
            Body::Tombstone(Tombstone::TooLarge) => (1, None),
            Body::Tombstone(Tombstone::Discarded) => (2, None),
            Body::Tombstone(Tombstone::Erased) => (3, None),
            // A reason that a later version of the core adds says no less than that nobody knows.
            Body::Tombstone(_) => (4, None),
        };
        Self {
            content_version: outcome.content_version().into(),
            kept,
            head: outcome.head().to_vec(),
            body_sum: body.as_deref().map(checksum),
            body,
        }
    }

    /// Whether the body is to lie in a partition.
    pub(crate) fn is_too_large_for_its_row(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.len() > INLINE_MAX)
    }

    pub(crate) fn read(self) -> Result<Outcome, CodecError> {
        let content_version =
            u16::try_from(self.content_version).map_err(|_| CodecError::Damaged("content version"))?;
        check_body(Some(self.kept), self.body_sum, self.body.as_deref())?;
        let outcome = match (self.kept, self.body) {
            (0, Some(body)) => Outcome::kept(content_version, body),
            (1, None) => Outcome::tombstone(content_version, Tombstone::TooLarge),
            (2, None) => Outcome::tombstone(content_version, Tombstone::Discarded),
            (3, None) => Outcome::tombstone(content_version, Tombstone::Erased),
            (4, None) => Outcome::tombstone(content_version, Tombstone::Indeterminate),
            _ => return Err(CodecError::Damaged("body")),
        };
        outcome.with_head(self.head).map_err(|_| CodecError::Damaged("head"))
    }

    /// What the true owner reported of a closed record, in one column: nothing but this program looks inside.
    pub(crate) fn into_late(self) -> Vec<u8> {
        let mut late = self.content_version.to_be_bytes().to_vec();
        late.extend(self.kept.to_be_bytes());
        late.extend(i16::try_from(self.head.len()).unwrap_or(i16::MAX).to_be_bytes());
        late.extend(self.body_sum.unwrap_or(0).to_be_bytes());
        late.extend(self.head);
        late.extend(self.body.unwrap_or_default());
        late
    }

    pub(crate) fn from_late(late: &[u8]) -> Result<Self, CodecError> {
        let short = CodecError::Damaged("late outcome");
        let (fixed, rest) = late.split_first_chunk::<LATE_BYTES>().ok_or(short)?;
        let [v0, v1, v2, v3, k0, k1, h0, h1, s0, s1, s2, s3] = *fixed;
        let kept = i16::from_be_bytes([k0, k1]);
        let head_len = usize::from(u16::from_be_bytes([h0, h1]));
        let (head, body) = rest.split_at_checked(head_len).ok_or(short)?;
        Ok(Self {
            content_version: i32::from_be_bytes([v0, v1, v2, v3]),
            kept,
            head: head.to_vec(),
            body_sum: (kept == 0).then(|| i32::from_be_bytes([s0, s1, s2, s3])),
            body: (kept == 0).then(|| Bytes::copy_from_slice(body)),
        })
    }
}

fn checksum(body: &[u8]) -> i32 {
    crc32c::crc32c(body).cast_signed()
}

/// A stored body is as it was written.
pub(crate) fn check_body(
    kept: Option<i16>,
    body_sum: Option<i32>,
    body: Option<&[u8]>,
) -> Result<(), CodecError> {
    match (kept, body) {
        (Some(0), Some(body)) if body_sum == Some(checksum(body)) => Ok(()),
        (Some(0), Some(_)) => Err(CodecError::Damaged("checksum")),
        (Some(0), None) => Err(CodecError::Damaged("body")),
        _ => Ok(()),
    }
}

/// The version of the rules, the digest, and the rules.
pub(crate) fn fingerprint(fingerprint: &Fingerprint) -> Vec<u8> {
    let rules = fingerprint.rules();
    let mut bytes = Vec::with_capacity(FINGERPRINT_BYTES + rules.text().len());
    bytes.push(rules.version());
    bytes.extend(fingerprint.digest());
    bytes.extend_from_slice(rules.text());
    bytes
}

pub(crate) fn read_fingerprint(bytes: &[u8]) -> Result<Fingerprint, CodecError> {
    let damaged = CodecError::Damaged("fingerprint");
    let (version, rest) = bytes.split_first().ok_or(damaged)?;
    let (digest, text) = rest.split_first_chunk::<32>().ok_or(damaged)?;
    if *version != onlyonce_core::fingerprint::FINGERPRINT_VERSION {
        return Err(CodecError::Version(*version));
    }
    let rules = Rules::new(Bytes::copy_from_slice(text)).map_err(|_| CodecError::Damaged("rules"))?;
    Ok(Fingerprint::from_parts(rules, *digest))
}

pub(crate) fn owner(owner: &Owner) -> Uuid {
    Uuid::from_bytes(*owner.as_bytes())
}

pub(crate) fn read_owner(owner: Uuid) -> Owner {
    Owner::from_bytes(owner.into_bytes())
}

pub(crate) fn fence(fence: Fence) -> i64 {
    // Below 2^53.
    fence.get().cast_signed()
}

pub(crate) fn read_fence(number: i64) -> Result<Fence, CodecError> {
    u64::try_from(number).ok().and_then(Fence::new).ok_or(CodecError::Damaged("fence"))
}

pub(crate) fn read_id(bytes: &[u8]) -> Result<RecordId, CodecError> {
    bytes.try_into().map(RecordId::from_bytes).map_err(|_| CodecError::Damaged("id"))
}

pub(crate) fn read_attempt(number: i64) -> Result<u32, CodecError> {
    u32::try_from(number).map_err(|_| CodecError::Damaged("attempt"))
}

pub(crate) fn read_time(millis: i64) -> Result<Timestamp, CodecError> {
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| CodecError::Damaged("time"))
}

/// The longest duration that is sent: past it nothing ends, and sums stay far from the end of the numbers.
const MILLIS_MAX: i64 = 1 << 53;

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).min(MILLIS_MAX)
}

pub(crate) fn time(timestamp: Timestamp) -> i64 {
    i64::try_from(timestamp.as_millis()).unwrap_or(i64::MAX).min(MILLIS_MAX)
}

pub(crate) const fn policy(policy: UnknownPolicy) -> i16 {
    match policy {
        UnknownPolicy::Hold => 0,
        UnknownPolicy::Seal => 1,
        UnknownPolicy::Query => 2,
        UnknownPolicy::Rerun => 3,
    }
}

pub(crate) const fn completed_by(by: CompletedBy) -> i16 {
    match by {
        CompletedBy::Execution => 0,
        CompletedBy::Seal => 1,
        CompletedBy::Resolve => 2,
    }
}

pub(crate) fn read_completed_by(by: Option<i16>) -> Result<CompletedBy, CodecError> {
    match by {
        Some(0) => Ok(CompletedBy::Execution),
        Some(1) => Ok(CompletedBy::Seal),
        Some(2) => Ok(CompletedBy::Resolve),
        _ => Err(CodecError::Damaged("completed by")),
    }
}

/// Names and values in two columns; a value that was erased is missing.
pub(crate) fn read_steps(
    names: Option<Vec<String>>,
    values: Option<Vec<Option<Vec<u8>>>>,
) -> Result<Vec<Step>, CodecError> {
    let (names, values) = (names.unwrap_or_default(), values.unwrap_or_default());
    if names.len() != values.len() || names.len() > STEPS_MAX {
        return Err(CodecError::Damaged("steps"));
    }
    names
        .iter()
        .zip(values)
        .map(|(name, value)| {
            let name = StepName::new(name).map_err(|_| CodecError::Damaged("step name"))?;
            Ok(Step { name, value: value.map(Bytes::from) })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_large_is_said_twice_and_the_same() {
        let words = include_str!("../sql/v1/2-words.sql");
        assert!(words.contains(&format!(
            "inline_max() RETURNS integer LANGUAGE sql IMMUTABLE AS $$ SELECT {INLINE_MAX} $$"
        )));
    }
}
