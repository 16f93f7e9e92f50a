//! The bytes of a record: a version byte first, a checksum last. `docs/record-format.md` describes them field by field.
//!
//! What cannot be read is an error, never "absent": a store that took damage for absence would run the work again.

pub mod wire;

use std::error::Error;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use self::wire::{Reader, Writer};
use super::{
    Completed, CompletedBy, Fence, Owner, Record, Recovery, STEPS_BYTES_MAX, STEPS_MAX, State, Step, StepName,
};
use crate::clock::{Timestamp, millis};
use crate::fingerprint::{Fingerprint, Rules};
use crate::lease::Retention;
use crate::outcome::{Body, HEAD_BYTES_MAX, Outcome, Tombstone};
use crate::scope::RecordId;

/// The version this code writes. It reads this one; the one before it, once there is one.
pub const RECORD_VERSION: u8 = 1;

const CHECKSUM_BYTES: usize = 4;

// The second byte: the state in the low bits, what is present in the high ones.
const STATE_BITS: u8 = 0b0000_0011;
const HAS_FINGERPRINT: u8 = 0b0001_0000;
const HAS_STEPS: u8 = 0b0010_0000;
const HAS_EXTRA: u8 = 0b0100_0000;
const IS_REMOTE: u8 = 0b1000_0000;

/// The bytes of `record` under `id`. The checksum covers the id, so that a record found under another one is damage.
pub fn encode(id: &RecordId, record: &Record) -> Vec<u8> {
    let mut w = Writer::with_capacity(160 + record.weight().saturating_sub(size_of::<Record>()));
    w.byte(RECORD_VERSION);
    w.byte(flags(record));
    w.raw(record.owner.as_bytes());
    w.number(record.fence.get());
    w.number(record.attempt.into());
    w.number(record.created_at.as_millis());
    w.delta(record.created_at, record.granted_at);
    w.delta(record.granted_at, record.run_until);
    w.number(millis(record.retention.get()));
    w.number(millis(record.unknown_retention.get()));
    if let Some(fingerprint) = &record.fingerprint {
        w.byte(fingerprint.rules().version());
        w.bytes(fingerprint.rules().text());
        w.raw(fingerprint.digest());
    }
    encode_state(&mut w, record);
    if !record.steps.is_empty() {
        w.number(record.steps.len() as u64);
        for step in &record.steps {
            w.bytes(step.name.as_str().as_bytes());
            w.optional(step.value.as_deref());
        }
    }
    let checksum = checksum(id, w.written());
    w.raw(&checksum);
    w.finish()
}

/// The record that `bytes` hold under `id`.
pub fn decode(id: &RecordId, bytes: &Bytes) -> Result<Record, CodecError> {
    match bytes.first() {
        None => return Err(CodecError::Damaged("no bytes")),
        Some(&RECORD_VERSION) => {}
        // Before the checksum: a newer version may keep its checksum elsewhere.
        Some(&version) => return Err(CodecError::Version(version)),
    }
    let Some(body_len) = bytes.len().checked_sub(CHECKSUM_BYTES).filter(|body_len| *body_len > 0) else {
        return Err(CodecError::Damaged("too short"));
    };
    if checksum(id, &bytes[..body_len]) != bytes[body_len..] {
        return Err(CodecError::Damaged("checksum"));
    }
    let mut r = Reader::new(bytes.slice(1..body_len));
    let record = decode_body(&mut r)?;
    r.end()?;
    Ok(record)
}

fn decode_body(r: &mut Reader) -> Result<Record, CodecError> {
    let flags = r.byte()?;
    if flags & !(STATE_BITS | HAS_FINGERPRINT | HAS_STEPS | HAS_EXTRA | IS_REMOTE) != 0 {
        return Err(CodecError::Damaged("flags"));
    }
    let owner = Owner::from_bytes(r.array()?);
    let fence = Fence::new(r.number()?).ok_or(CodecError::Damaged("fence"))?;
    let attempt = u32::try_from(r.number()?).map_err(|_| CodecError::Damaged("attempt"))?;
    let created_at = Timestamp::from_millis(r.number()?);
    let granted_at = r.delta(created_at)?;
    let run_until = r.delta(granted_at)?;
    let retention = read_retention(r.number()?)?;
    let unknown_retention = read_retention(r.number()?)?;
    let fingerprint = if flags & HAS_FINGERPRINT == 0 { None } else { Some(decode_fingerprint(r)?) };
    let state = decode_state(r, flags, granted_at)?;
    let steps = if flags & HAS_STEPS == 0 { Vec::new() } else { decode_steps(r)? };
    Ok(Record {
        fence,
        attempt,
        owner,
        fingerprint,
        created_at,
        granted_at,
        run_until,
        retention,
        unknown_retention,
        remote: flags & IS_REMOTE != 0,
        steps,
        state,
    })
}

fn flags(record: &Record) -> u8 {
    let (state, extra) = match &record.state {
        State::InFlight { .. } => (0, false),
        State::Completed(completed) => (1, completed.late.is_some()),
        State::Released { .. } => (2, false),
        State::Unknown { recovery, .. } => (3, recovery.is_some()),
    };
    let present = |is: bool, flag: u8| if is { flag } else { 0 };
    state
        | present(record.fingerprint.is_some(), HAS_FINGERPRINT)
        | present(!record.steps.is_empty(), HAS_STEPS)
        | present(extra, HAS_EXTRA)
        | present(record.remote, IS_REMOTE)
}

fn encode_state(w: &mut Writer, record: &Record) {
    let granted_at = record.granted_at;
    match &record.state {
        State::InFlight { lease_until } => w.delta(granted_at, *lease_until),
        State::Completed(completed) => {
            w.byte(match completed.by {
                CompletedBy::Execution => 0,
                CompletedBy::Seal => 1,
                CompletedBy::Resolve => 2,
            });
            w.delta(granted_at, completed.at);
            w.delta(completed.at, completed.expires_at);
            encode_outcome(w, &completed.outcome);
            if let Some(late) = &completed.late {
                encode_outcome(w, late);
            }
        }
        State::Released { expires_at } => w.delta(granted_at, *expires_at),
        State::Unknown { since, expires_at, recovery } => {
            w.delta(granted_at, *since);
            w.delta(*since, *expires_at);
            if let Some(recovery) = recovery {
                w.raw(recovery.owner.as_bytes());
                w.delta(*since, recovery.lease_until);
            }
        }
    }
}

fn decode_state(r: &mut Reader, flags: u8, granted_at: Timestamp) -> Result<State, CodecError> {
    let extra = flags & HAS_EXTRA != 0;
    match flags & STATE_BITS {
        0 if !extra => Ok(State::InFlight { lease_until: r.delta(granted_at)? }),
        1 => {
            let by = match r.byte()? {
                0 => CompletedBy::Execution,
                1 => CompletedBy::Seal,
                2 => CompletedBy::Resolve,
                _ => return Err(CodecError::Damaged("completed by")),
            };
            let at = r.delta(granted_at)?;
            let expires_at = r.delta(at)?;
            let outcome = decode_outcome(r)?;
            let late = if extra { Some(Box::new(decode_outcome(r)?)) } else { None };
            Ok(State::Completed(Completed { outcome, by, at, expires_at, late }))
        }
        2 if !extra => Ok(State::Released { expires_at: r.delta(granted_at)? }),
        3 => {
            let since = r.delta(granted_at)?;
            let expires_at = r.delta(since)?;
            let recovery = if extra {
                Some(Recovery { owner: Owner::from_bytes(r.array()?), lease_until: r.delta(since)? })
            } else {
                None
            };
            Ok(State::Unknown { since, expires_at, recovery })
        }
        _ => Err(CodecError::Damaged("flags")),
    }
}

/// Writes an outcome as records hold it.
pub fn encode_outcome(w: &mut Writer, outcome: &Outcome) {
    w.number(outcome.content_version().into());
    w.bytes(outcome.head());
    match outcome.body() {
        Body::Kept(bytes) => {
            w.byte(0);
            w.bytes(bytes);
        }
        Body::Tombstone(why) => w.byte(match why {
            Tombstone::TooLarge => 1,
            Tombstone::Discarded => 2,
            Tombstone::Erased => 3,
            Tombstone::Indeterminate => 4,
        }),
    }
}

/// Reads an outcome as records hold it.
pub fn decode_outcome(r: &mut Reader) -> Result<Outcome, CodecError> {
    let content_version = u16::try_from(r.number()?).map_err(|_| CodecError::Damaged("content version"))?;
    let head = r.bytes(HEAD_BYTES_MAX)?;
    let outcome = match r.byte()? {
        0 => Outcome::kept(content_version, r.bytes(usize::MAX)?),
        1 => Outcome::tombstone(content_version, Tombstone::TooLarge),
        2 => Outcome::tombstone(content_version, Tombstone::Discarded),
        3 => Outcome::tombstone(content_version, Tombstone::Erased),
        4 => Outcome::tombstone(content_version, Tombstone::Indeterminate),
        _ => return Err(CodecError::Damaged("body")),
    };
    outcome.with_head(head).map_err(|_| CodecError::Damaged("head"))
}

fn decode_fingerprint(r: &mut Reader) -> Result<Fingerprint, CodecError> {
    let version = r.byte()?;
    let text = r.bytes(usize::MAX)?;
    let rules = Rules::with_version(version, text).map_err(|_| CodecError::Damaged("rules"))?;
    Ok(Fingerprint::from_parts(rules, r.array()?))
}

fn decode_steps(r: &mut Reader) -> Result<Vec<Step>, CodecError> {
    let count = usize::try_from(r.number()?).unwrap_or(usize::MAX);
    if count == 0 || count > STEPS_MAX {
        return Err(CodecError::Damaged("steps"));
    }
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        let name = r.bytes(usize::MAX)?;
        let name = std::str::from_utf8(&name).ok().and_then(|name| StepName::new(name).ok());
        let name = name.ok_or(CodecError::Damaged("step name"))?;
        steps.push(Step { name, value: r.optional(STEPS_BYTES_MAX)? });
    }
    Ok(steps)
}

fn read_retention(millis: u64) -> Result<Retention, CodecError> {
    Retention::new(Duration::from_millis(millis)).map_err(|_| CodecError::Damaged("retention"))
}

fn checksum(id: &RecordId, body: &[u8]) -> [u8; CHECKSUM_BYTES] {
    crc32c::crc32c_append(crc32c::crc32c(id.as_bytes()), body).to_le_bytes()
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecError {
    /// They are of a version that this program does not read, most likely a newer one.
    Version(u8),
    /// They were changed after they were written, or belong to another id. The text names the field.
    Damaged(&'static str),
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the record has format {version}, this program reads up to {RECORD_VERSION}")
            }
            Self::Damaged(field) => write!(f, "the record is damaged ({field})"),
        }
    }
}

impl Error for CodecError {}
