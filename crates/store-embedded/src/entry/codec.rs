//! The bytes of entries. `docs/record-format.md` describes them field by field.
//!
//! ```text
//! segment  := group*
//! group    := mark? entry*                                            one write, one sync
//! mark     := 0x01 crc offset:u32                                      crc covers the segment's number, too
//! whole    := 0x02 crc len:u32 id:32 body:len                          crc of the head; the body has its own
//! grant    := 0x03|flags crc id:32 digest:32 owner:16 fence:u32 at:u32 extras?     crc of all of it
//! finish   := 0x04 crc len:u24 base:u32 body:len                       crc of the head; the body has its own
//! extras   := len:u8 which:u8 number* rules
//! ```
//!
//! A mark is written only after the group before it was synced. So bytes that cannot be read *before* the last mark
//! were damaged after the fact; *after* it they may be what a power cut left, and were never acknowledged.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::Rules;
use onlyonce_core::record::codec::wire::{Reader, Writer};
use onlyonce_core::record::codec::{self, CodecError};
use onlyonce_core::record::{Completed, CompletedBy, State};
use onlyonce_core::{Fence, Fingerprint, Owner, Record, RecordId, Retention, StoreError, Timestamp};

use super::Home;
use crate::catalog::SEQ_BITS;
use crate::meta::COUNTER_BITS;

const MARK: u8 = 1;
const WHOLE: u8 = 2;
const GRANT: u8 = 3;
const FINISH: u8 = 4;

// The first byte: the kind in the low bits, and what a grant has besides in the high ones.
const KIND_BITS: u8 = 0b0000_0111;
const IS_REMOTE: u8 = 0b0100_0000;
const HAS_EXTRAS: u8 = 0b1000_0000;

/// The bytes of a mark.
pub(crate) const MARK_BYTES: usize = 1 + 4 + 4;
const WHOLE_HEAD_BYTES: usize = 1 + 4 + 4 + 32;
const FINISH_HEAD_BYTES: usize = 1 + 4 + 3 + 4;
const GRANT_BYTES: usize = 1 + 4 + 32 + 32 + 16 + 4 + 4;
/// The longest grant. No head is longer.
pub(super) const GRANT_BYTES_MAX: usize = GRANT_BYTES + 1 + u8::MAX as usize;
/// The most that a record may weigh: its outcomes, steps and rules.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;
/// The longest body: such a record, and what is written around it. A longer length is damage.
const BODY_BYTES_MAX: usize = RECORD_BYTES_MAX + (1 << 20);
const FINISH_BYTES_MAX: usize = (1 << 24) - 1;

/// What a grant is when nothing else is said: lease, run time, retention and retention while unknown, in milliseconds.
/// A part of the format: it stays when the defaults of policies change.
const USUAL: [u64; 4] = [30_000, 300_000, 86_400_000, 2_592_000_000];
const HAS_RULES: u8 = 0b0001_0000;

/// The head of what lies at a position, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    Mark,
    Whole { id: RecordId, body: usize },
    Grant { id: RecordId, record: Box<Record>, bytes: usize },
    Finish { base: usize, body: usize },
}

impl Head {
    /// The head at `offset` of a segment, where `bytes` begin, if its checksum holds.
    pub(crate) fn read(bytes: &[u8], home: Home, offset: usize) -> Option<Self> {
        let first = *bytes.first()?;
        match (first & KIND_BITS, first) {
            (MARK, MARK) => read_mark(bytes, home.seq, offset),
            (WHOLE, WHOLE) => read_whole(bytes),
            (FINISH, FINISH) => read_finish(bytes),
            (GRANT, _) => read_grant(bytes, home),
            _ => None,
        }
    }

    pub(crate) fn head_bytes(&self) -> usize {
        match self {
            Self::Mark => MARK_BYTES,
            Self::Whole { .. } => WHOLE_HEAD_BYTES,
            Self::Grant { bytes, .. } => *bytes,
            Self::Finish { .. } => FINISH_HEAD_BYTES,
        }
    }

    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Self::Mark | Self::Grant { .. } => 0,
            Self::Whole { body, .. } | Self::Finish { body, .. } => *body,
        }
    }
}

/// Writes the checksum of everything from `start` on but itself into its place behind the kind.
fn seal(into: &mut [u8], start: usize) {
    let crc = checksum(&into[start..]);
    into[start + 1..start + 5].copy_from_slice(&crc);
}

fn checksum(entry: &[u8]) -> [u8; 4] {
    crc32c::crc32c_append(crc32c::crc32c(&entry[..1]), &entry[5..]).to_le_bytes()
}

fn begin(into: &mut Vec<u8>, kind: u8) -> usize {
    let start = into.len();
    into.extend_from_slice(&[kind, 0, 0, 0, 0]);
    start
}

/// Appends a mark that will lie at `offset` of the segment numbered `seq`.
pub(crate) fn put_mark(into: &mut Vec<u8>, seq: u64, offset: u64) {
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    into.push(MARK);
    into.extend_from_slice(&mark_checksum(seq, offset));
    into.extend_from_slice(&offset.to_le_bytes());
}

/// Whether a mark may begin with `first`: most positions need not be looked at further.
pub(crate) const fn may_be_mark(first: u8) -> bool {
    first == MARK
}

fn mark_checksum(seq: u64, offset: u32) -> [u8; 4] {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&seq.to_le_bytes()), &offset.to_le_bytes());
    crc.to_le_bytes()
}

/// A mark counts only at its own position: one that was copied from elsewhere proves nothing.
fn read_mark(bytes: &[u8], seq: u64, offset: usize) -> Option<Head> {
    let mark = bytes.first_chunk::<MARK_BYTES>()?;
    let offset = u32::try_from(offset).ok()?;
    (mark[5..] == offset.to_le_bytes() && mark[1..5] == mark_checksum(seq, offset)).then_some(Head::Mark)
}

/// Appends any record.
pub(super) fn put_whole(into: &mut Vec<u8>, id: &RecordId, record: &Record) {
    let body = codec::encode(id, record);
    let len = u32::try_from(body.len()).expect("bodies are bounded far below 4 GiB");
    let start = begin(into, WHOLE);
    into.extend_from_slice(&len.to_le_bytes());
    into.extend_from_slice(id.as_bytes());
    seal(into, start);
    into.extend_from_slice(&body);
}

fn read_whole(bytes: &[u8]) -> Option<Head> {
    let head = bytes.first_chunk::<WHOLE_HEAD_BYTES>()?;
    if head[1..5] != checksum(head) {
        return None;
    }
    let body = u32::from_le_bytes(array(&head[5..])?) as usize;
    let id = RecordId::from_bytes(array(&head[9..])?);
    (body <= BODY_BYTES_MAX).then_some(Head::Whole { id, body })
}

pub(super) fn decode_whole(id: &RecordId, body: &Bytes) -> Result<Record, StoreError> {
    codec::decode(id, body).map_err(undecodable)
}

/// Appends the first grant of a record, if it is one that the short form can hold.
pub(super) fn put_grant(into: &mut Vec<u8>, home: Home, id: &RecordId, record: &Record) -> bool {
    let Some((counter, at, lease)) = short_parts(home, record) else { return false };
    let Some(fingerprint) = &record.fingerprint else { return false };
    let Some(extras) = extras(record, lease, fingerprint.rules()) else { return false };
    let flags = if record.remote { IS_REMOTE } else { 0 } | if extras.is_empty() { 0 } else { HAS_EXTRAS };
    let start = begin(into, GRANT | flags);
    into.extend_from_slice(id.as_bytes());
    into.extend_from_slice(fingerprint.digest());
    into.extend_from_slice(record.owner.as_bytes());
    into.extend_from_slice(&counter.to_le_bytes());
    into.extend_from_slice(&at.to_le_bytes());
    into.extend_from_slice(&extras);
    seal(into, start);
    true
}

/// The fence and the time of a first grant as the short form has them, and its lease, if they fit.
fn short_parts(home: Home, record: &Record) -> Option<(u32, u32, u64)> {
    let State::InFlight { lease_until } = record.state else { return None };
    let first = record.attempt == 1 && record.created_at == record.granted_at && record.steps.is_empty();
    let same_boot = record.fence.get() >> COUNTER_BITS == home.seq >> SEQ_BITS;
    if !first || !same_boot {
        return None;
    }
    let since = |earlier: Timestamp, later: Timestamp| later.as_millis().checked_sub(earlier.as_millis());
    since(record.granted_at, record.run_until)?;
    let at = u32::try_from(since(home.started_at, record.granted_at)?).ok()?;
    let counter = u32::try_from(record.fence.get() & ((1 << COUNTER_BITS) - 1)).ok()?;
    Some((counter, at, since(record.granted_at, lease_until)?))
}

/// What is not usual about a grant; nothing if all is. `None` if it does not fit.
fn extras(record: &Record, lease: u64, rules: &Rules) -> Option<Vec<u8>> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).ok();
    let run = record.run_until.as_millis() - record.granted_at.as_millis();
    let terms = [lease, run, millis(record.retention.get())?, millis(record.unknown_retention.get())?];
    let mut which = if *rules == Rules::standard() { 0 } else { HAS_RULES };
    let mut w = Writer::with_capacity(32);
    for (at, (term, usual)) in terms.iter().zip(USUAL).enumerate() {
        if *term != usual {
            which |= 1 << at;
            w.number(*term);
        }
    }
    if which == 0 {
        return Some(Vec::new());
    }
    if which & HAS_RULES != 0 {
        // The text has no length of its own: it ends with the extras.
        w.raw(rules.text());
    }
    let len = u8::try_from(w.written().len() + 1).ok()?;
    let current = rules.version() == Rules::standard().version();
    current.then(|| [&[len, which], w.written()].concat())
}

fn read_grant(bytes: &[u8], home: Home) -> Option<Head> {
    let len = match bytes[0] & HAS_EXTRAS {
        0 => GRANT_BYTES,
        _ => GRANT_BYTES + 1 + usize::from(*bytes.get(GRANT_BYTES)?),
    };
    let entry = bytes.get(..len)?;
    if entry[1..5] != checksum(entry) || entry[0] & !(KIND_BITS | IS_REMOTE | HAS_EXTRAS) != 0 {
        return None;
    }
    let number = |at: usize| Some(u64::from(u32::from_le_bytes(array(&entry[at..])?)));
    let fence = Fence::new((home.seq >> SEQ_BITS) << COUNTER_BITS | number(85)?)?;
    let granted_at = Timestamp::from_millis(home.started_at.as_millis().checked_add(number(89)?)?);
    let (terms, rules) = read_extras(entry.get(GRANT_BYTES + 1..).unwrap_or_default())?;
    let after = |millis: u64| granted_at.as_millis().checked_add(millis).map(Timestamp::from_millis);
    let retention = |millis: u64| Retention::new(Duration::from_millis(millis)).ok();
    let record = Record {
        fence,
        attempt: 1,
        owner: Owner::from_bytes(array(&entry[69..])?),
        fingerprint: Some(Fingerprint::from_parts(rules, array(&entry[37..])?)),
        created_at: granted_at,
        granted_at,
        run_until: after(terms[1])?,
        retention: retention(terms[2])?,
        unknown_retention: retention(terms[3])?,
        remote: entry[0] & IS_REMOTE != 0,
        steps: Vec::new(),
        state: State::InFlight { lease_until: after(terms[0])? },
    };
    Some(Head::Grant { id: RecordId::from_bytes(array(&entry[5..])?), record: Box::new(record), bytes: len })
}

fn read_extras(extras: &[u8]) -> Option<([u64; 4], Rules)> {
    let mut terms = USUAL;
    let Some((&which, rest)) = extras.split_first() else {
        return Some((terms, Rules::standard()));
    };
    let mut r = Reader::new(Bytes::copy_from_slice(rest));
    for (at, term) in terms.iter_mut().enumerate() {
        if which & 1 << at != 0 {
            *term = r.number().ok()?;
        }
    }
    let rest = r.rest();
    let rules = if which & HAS_RULES == 0 { Rules::standard() } else { Rules::new(rest.clone()).ok()? };
    (which & HAS_RULES != 0 || rest.is_empty()).then_some((terms, rules))
}

/// Appends the completion of what lies at `base_offset` of the same segment, if the short form can say all of it.
pub(super) fn put_finish(
    into: &mut Vec<u8>,
    id: &RecordId,
    record: &Record,
    base_offset: u32,
    base: &Record,
) -> bool {
    let State::Completed(completed) = &record.state else { return false };
    if !is_usual_end(base, record, completed) || completed.outcome.len() > FINISH_BYTES_MAX / 2 {
        return false;
    }
    let mut w = Writer::with_capacity(32 + completed.outcome.len());
    w.delta(base.granted_at, completed.at);
    codec::encode_outcome(&mut w, &completed.outcome);
    let crc = body_checksum(id, base, w.written());
    w.raw(&crc);
    let body = w.finish();
    let start = begin(into, FINISH);
    into.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes()[..3]);
    into.extend_from_slice(&base_offset.to_le_bytes());
    seal(into, start);
    into.extend_from_slice(&body);
    true
}

/// Whether `completed` says all that is new about `record`.
fn is_usual_end(base: &Record, record: &Record, completed: &Completed) -> bool {
    let grant = |of: &Record| {
        (
            of.fence,
            of.attempt,
            of.owner,
            of.created_at,
            of.granted_at,
            of.run_until,
            of.remote,
            of.steps.len(),
        )
    };
    grant(base) == grant(record)
        && (base.retention, base.unknown_retention) == (record.retention, record.unknown_retention)
        && (&base.fingerprint, &base.steps) == (&record.fingerprint, &record.steps)
        && completed.by == CompletedBy::Execution
        && completed.late.is_none()
        && completed.expires_at == completed.at + base.retention.get()
}

/// What an execution that ended as usual makes of `base`.
fn finished(base: &Record, at: Timestamp, outcome: onlyonce_core::Outcome) -> Record {
    let expires_at = at + base.retention.get();
    let completed = Completed { outcome, by: CompletedBy::Execution, at, expires_at, late: None };
    Record { state: State::Completed(completed), ..base.clone() }
}

fn read_finish(bytes: &[u8]) -> Option<Head> {
    let head = bytes.first_chunk::<FINISH_HEAD_BYTES>()?;
    if head[1..5] != checksum(head) {
        return None;
    }
    let body = u32::from_le_bytes([head[5], head[6], head[7], 0]) as usize;
    let base = u32::from_le_bytes(array(&head[8..])?) as usize;
    Some(Head::Finish { base, body })
}

pub(super) fn decode_finish(id: &RecordId, base: &Record, body: &Bytes) -> Result<Record, StoreError> {
    let short = || undecodable(CodecError::Damaged("too short"));
    let fields = body.len().checked_sub(4).ok_or_else(short)?;
    if body[fields..] != body_checksum(id, base, &body[..fields]) {
        return Err(undecodable(CodecError::Damaged("checksum")));
    }
    let mut r = Reader::new(body.slice(..fields));
    let at = r.delta(base.granted_at).map_err(undecodable)?;
    let outcome = codec::decode_outcome(&mut r).map_err(undecodable)?;
    r.end().map_err(undecodable)?;
    Ok(finished(base, at, outcome))
}

/// Covers the id and the fence, so that a completion that refers to another grant is damage.
fn body_checksum(id: &RecordId, base: &Record, fields: &[u8]) -> [u8; 4] {
    let crc = crc32c::crc32c(id.as_bytes());
    let crc = crc32c::crc32c_append(crc, &base.fence.get().to_le_bytes());
    crc32c::crc32c_append(crc, fields).to_le_bytes()
}

fn undecodable(error: CodecError) -> StoreError {
    StoreError::undecodable(error, "reading a record")
}

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.first_chunk().copied()
}
