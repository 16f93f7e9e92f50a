//! The bytes of a record in Redis, as the scripts read and write them with `struct` (big-endian).
//!
//! ```text
//! head   version 1 · state 1 · by 1 · remote 1 · fingerprint length 2 · owner 16 · fence 8 · attempt 4
//!        created 6 · granted 6 · run until 6 · retention 6 · unknown retention 6 · at 6 · expires 6
//!        fingerprint: rules version 1 · digest 32 · rules text          (absent when forgotten)
//!        recovery: owner 16 · until 6                                   (state unknown and by = 1)
//! check  8 hexadecimal digits of SHA-1(key, head), made and checked by the scripts, or where only heads are read
//! tail   steps length 4 · steps · outcome length 4 · outcome · late outcome      (empty when there is nothing)
//! step   name length 1 · name · CRC-32C(id, name) 4 · value length 4 · CRC-32C(id, name, value) 4 · value
//!        (erased: the length is 2^32-1, and nothing follows)
//! outcome   length 1 · what is left after an erasure · CRC-32C 4 · the whole · CRC-32C 4   (erased: the first half)
//! ```
//!
//! Times are milliseconds since 1970 and lengths of time are milliseconds, both below 2^48 (the year 10889), where they
//! saturate: Lua counts in doubles. `at` and `expires` mean what the state says: in flight `at` is the end of the lease;
//! completed, when; unknown, since when. Outcomes are written by the core's codec; Lua never looks into one.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::fingerprint::{FINGERPRINT_VERSION, Fingerprint, RULES_BYTES_MAX, Rules};
use onlyonce_core::record::codec::wire::{Reader, Writer};
use onlyonce_core::record::codec::{CodecError, decode_outcome, encode_outcome};
use onlyonce_core::record::{Completed, CompletedBy, Record, Recovery, State, Step, StepName};
use onlyonce_core::{Fence, Outcome, Owner, RecordId, Retention, Timestamp, Tombstone};
use sha1_smol::Sha1;

const VERSION: u8 = 1;
/// How long the part of a head is that is always there: it decides who may do what, and when.
pub(crate) const FORM_BYTES: usize = 76;
const CHECK_BYTES: usize = 8;
/// Where the end of the lease and the expiry are.
const AT: usize = 64;
const EXPIRES: usize = 70;
/// How long what is known of a recovery is.
const RECOVERY_BYTES: usize = 22;
/// The longest head with its check.
pub(crate) const HEAD_BYTES_MAX: usize = FORM_BYTES + 33 + RULES_BYTES_MAX + RECOVERY_BYTES + CHECK_BYTES;
/// How many bytes a checksum takes.
const SUM_BYTES: usize = 4;
/// The largest time or length of time: 48 bits.
const FOREVER: u64 = (1 << 48) - 1;
/// In place of a step's length: its value was erased.
const GONE: u32 = u32::MAX;

const SHORT: CodecError = CodecError::Damaged("too short");

/// Writes fields as `struct` reads them.
#[derive(Debug, Default)]
pub(crate) struct Packed(Vec<u8>);

impl Packed {
    pub(crate) fn byte(mut self, byte: u8) -> Self {
        self.0.push(byte);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The low `width` bytes of a number.
    pub(crate) fn number(mut self, number: u64, width: usize) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        self
    }

    pub(crate) fn duration(self, duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.number(millis.min(FOREVER), 6)
    }

    fn time(self, at: Timestamp) -> Self {
        self.number(at.as_millis().min(FOREVER), 6)
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// The fingerprint, as the scripts compare it.
pub(crate) fn encode_fingerprint(fingerprint: &Fingerprint) -> Vec<u8> {
    let rules = fingerprint.rules();
    let packed = Packed(Vec::with_capacity(33 + rules.text().len()));
    packed.byte(rules.version()).raw(fingerprint.digest()).raw(rules.text()).finish()
}

/// The fingerprint that the scripts gave back.
pub(crate) fn decode_fingerprint(bytes: &Bytes) -> Result<Fingerprint, CodecError> {
    let mut fields = Fields::new(bytes);
    let version = u8::try_from(fields.number(1)?).unwrap_or_default();
    if version != FINGERPRINT_VERSION {
        return Err(CodecError::Version(version));
    }
    let digest = fields.array()?;
    let rules = Rules::new(fields.0.rest()).map_err(|_| CodecError::Damaged("rules"))?;
    Ok(Fingerprint::from_parts(rules, digest))
}

/// An outcome, preceded by what is left of it after an erasure.
pub(crate) fn encode_outcome_of(id: &RecordId, outcome: &Outcome) -> Vec<u8> {
    let left = outcome_bytes(&outcome.erased());
    let short = Packed(Vec::with_capacity(2 * left.len() + outcome.len() + 24))
        .number(left.len() as u64, 1)
        .raw(&left)
        .raw(&checksum(id, &[&left]));
    if outcome.is_erased() {
        return short.finish();
    }
    let whole = outcome_bytes(outcome);
    let check = checksum(id, &[&whole]);
    short.raw(&whole).raw(&check).finish()
}

/// The outcome in `bytes`.
pub(crate) fn decode_outcome_of(id: &RecordId, bytes: &Bytes) -> Result<Outcome, CodecError> {
    let mut fields = Fields::new(bytes);
    let left_bytes = usize::try_from(fields.number(1)?).unwrap_or_default();
    let left = fields.take(left_bytes)?;
    if fields.array()? != checksum(id, &[&left]) {
        return Err(CodecError::Damaged("outcome checksum"));
    }
    let whole = if fields.is_at_end() {
        left
    } else {
        let whole_bytes = bytes.len().checked_sub(1 + left_bytes + 2 * SUM_BYTES).ok_or(SHORT)?;
        let whole = fields.take(whole_bytes)?;
        if fields.array()? != checksum(id, &[&whole]) {
            return Err(CodecError::Damaged("outcome checksum"));
        }
        whole
    };
    let mut reader = Reader::new(whole);
    let outcome = decode_outcome(&mut reader)?;
    reader.end()?;
    Ok(outcome)
}

fn outcome_bytes(outcome: &Outcome) -> Vec<u8> {
    let mut writer = Writer::with_capacity(outcome.len() + 16);
    encode_outcome(&mut writer, outcome);
    writer.finish()
}

/// One step.
pub(crate) fn encode_step(id: &RecordId, step: &Step) -> Vec<u8> {
    let name = step.name.as_str().as_bytes();
    let packed = Packed::default().number(name.len() as u64, 1).raw(name).raw(&checksum(id, &[name]));
    match &step.value {
        Some(value) => {
            let check = checksum(id, &[name, value]);
            packed.number(value.len() as u64, 4).raw(&check).raw(value).finish()
        }
        None => packed.number(GONE.into(), 4).finish(),
    }
}

/// All steps of a record.
pub(crate) fn decode_steps(id: &RecordId, bytes: Bytes) -> Result<Vec<Step>, CodecError> {
    let mut fields = Fields(Reader::new(bytes));
    let mut steps = Vec::new();
    while !fields.is_at_end() {
        let name_bytes = usize::try_from(fields.number(1)?).unwrap_or_default();
        let name = fields.take(name_bytes)?;
        if fields.array()? != checksum(id, &[&name]) {
            return Err(CodecError::Damaged("step checksum"));
        }
        let name = std::str::from_utf8(&name).ok().and_then(|name| StepName::new(name).ok());
        let name = name.ok_or(CodecError::Damaged("step name"))?;
        let value = match fields.number(4)? {
            gone if gone == u64::from(GONE) => None,
            len => {
                let check: [u8; 4] = fields.array()?;
                let value = fields.take(usize::try_from(len).unwrap_or(usize::MAX))?;
                if check != checksum(id, &[name.as_str().as_bytes(), &value]) {
                    return Err(CodecError::Damaged("step checksum"));
                }
                Some(value)
            }
        };
        steps.push(Step { name, value });
    }
    Ok(steps)
}

/// The head of a record without its check, and the tail.
pub(crate) fn encode(id: &RecordId, record: &Record) -> (Vec<u8>, Vec<u8>) {
    let fingerprint = record.fingerprint.as_ref().map_or_else(Vec::new, encode_fingerprint);
    let (state, by, at, expires) = state_fields(&record.state);
    let head = Packed::default()
        .byte(VERSION)
        .byte(state)
        .byte(by)
        .byte(record.remote.into())
        .number(fingerprint.len() as u64, 2)
        .raw(record.owner.as_bytes())
        .number(record.fence.get(), 8)
        .number(record.attempt.into(), 4)
        .time(record.created_at)
        .time(record.granted_at)
        .time(record.run_until)
        .duration(record.retention.get())
        .duration(record.unknown_retention.get())
        .time(at)
        .time(expires)
        .raw(&fingerprint);
    let head = match &record.state {
        State::Unknown { recovery: Some(recovery), .. } => {
            head.raw(recovery.owner.as_bytes()).time(recovery.lease_until)
        }
        _ => head,
    };
    let steps: Vec<u8> = record.steps.iter().flat_map(|step| encode_step(id, step)).collect();
    let (outcome, late) = match &record.state {
        State::Completed(completed) => (
            encode_outcome_of(id, &completed.outcome),
            completed.late.as_ref().map_or_else(Vec::new, |late| encode_outcome_of(id, late)),
        ),
        _ => (Vec::new(), Vec::new()),
    };
    let tail = encode_tail(&steps, &outcome, &late);
    (head.finish(), tail)
}

/// What follows the head.
pub(crate) fn encode_tail(steps: &[u8], outcome: &[u8], late: &[u8]) -> Vec<u8> {
    if steps.is_empty() && outcome.is_empty() {
        return Vec::new();
    }
    let packed = Packed(Vec::with_capacity(8 + steps.len() + outcome.len() + late.len()));
    let packed = packed.number(steps.len() as u64, 4).raw(steps);
    packed.number(outcome.len() as u64, 4).raw(outcome).raw(late).finish()
}

/// How the head of a record in flight begins, up to its fence.
pub(crate) fn begin(owner: &Owner, remote: bool, fingerprint_bytes: usize) -> Packed {
    let packed = Packed(Vec::with_capacity(96)).byte(VERSION).byte(0).byte(0).byte(remote.into());
    packed.number(fingerprint_bytes as u64, 2).raw(owner.as_bytes())
}

/// The state, by whom, and the two times, as the head holds them.
fn state_fields(state: &State) -> (u8, u8, Timestamp, Timestamp) {
    match state {
        State::InFlight { lease_until } => (0, 0, *lease_until, Timestamp::default()),
        State::Completed(completed) => {
            let by = match completed.by {
                CompletedBy::Execution => 0,
                CompletedBy::Seal => 1,
                CompletedBy::Resolve => 2,
            };
            (1, by, completed.at, completed.expires_at)
        }
        State::Released { expires_at } => (2, 0, Timestamp::default(), *expires_at),
        State::Unknown { since, expires_at, recovery } => (3, recovery.is_some().into(), *since, *expires_at),
    }
}

/// The state and the expiry, as `import.lua` asks for them.
pub(crate) fn state_and_expiry(record: &Record) -> Vec<u8> {
    let (state, _, _, expires) = state_fields(&record.state);
    Packed::default().byte(state).time(expires).finish()
}

/// The whole record. The scripts have checked its head.
pub(crate) fn decode(id: &RecordId, bytes: &Bytes) -> Result<Record, CodecError> {
    let (mut record, tail) = decode_head(bytes)?;
    if tail.is_empty() {
        return if matches!(record.state, State::Completed(_)) { Err(SHORT) } else { Ok(record) };
    }
    let mut fields = Fields(Reader::new(tail));
    let steps_bytes = usize::try_from(fields.number(4)?).unwrap_or(usize::MAX);
    record.steps = decode_steps(id, fields.take(steps_bytes)?)?;
    let outcome_bytes = usize::try_from(fields.number(4)?).unwrap_or(usize::MAX);
    let outcome = fields.take(outcome_bytes)?;
    if let State::Completed(completed) = &mut record.state {
        completed.outcome = decode_outcome_of(id, &outcome)?;
        let late = fields.0.rest();
        completed.late = if late.is_empty() { None } else { Some(decode_outcome_of(id, &late)?.into()) };
    } else if !outcome.is_empty() || !fields.is_at_end() {
        return Err(CodecError::Damaged("an outcome of what is not completed"));
    }
    Ok(record)
}

/// What the sweeper has to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Not,
    Expired,
    Lapsed,
}

/// What is due of the record with this head, as the scripts decide it.
pub(crate) fn due_at(head: &[u8], now: Timestamp) -> Due {
    let has_come = |at: usize| number_in(&head[at..at + 6]) <= now.as_millis();
    match head[1] {
        0 if has_come(AT) => Due::Lapsed,
        1.. if has_come(EXPIRES) => Due::Expired,
        _ => Due::Not,
    }
}

/// How long the head is of a record that begins with `start`; nothing if this cannot be told.
fn head_bytes(start: &[u8]) -> Option<usize> {
    let form = start.get(..FORM_BYTES).filter(|form| form[0] == VERSION)?;
    let recovery_bytes = if (form[1], form[2]) == (3, 1) { RECOVERY_BYTES } else { 0 };
    Some(FORM_BYTES + usize::from(u16::from_be_bytes([form[4], form[5]])) + recovery_bytes)
}

/// Whether there is more of the head, or of its check, behind `start`.
pub(crate) fn goes_on(start: &[u8]) -> bool {
    head_bytes(start).is_some_and(|bytes| bytes + CHECK_BYTES > start.len())
}

/// The head of the record under `key` that begins with `start`. Nothing if it goes on behind that or its check is wrong: then a
/// script must look.
pub(crate) fn checked_head<'a>(key: &[u8], start: &'a [u8]) -> Option<&'a [u8]> {
    let head_bytes = head_bytes(start)?;
    let check = start.get(head_bytes..head_bytes + CHECK_BYTES)?;
    let head = &start[..head_bytes];
    let mut digest = Sha1::new();
    digest.update(key);
    digest.update(head);
    (digest.digest().to_string().as_bytes()[..CHECK_BYTES] == *check).then_some(head)
}

fn number_in(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The record without steps, and with a tombstone for an outcome; and the tail.
pub(crate) fn decode_head(bytes: &Bytes) -> Result<(Record, Bytes), CodecError> {
    let mut fields = Fields::new(bytes);
    if bytes.len() < FORM_BYTES + CHECK_BYTES {
        return Err(SHORT);
    }
    match fields.number(1)? {
        1 => {}
        version => return Err(CodecError::Version(u8::try_from(version).unwrap_or_default())),
    }
    let (state, by, remote) = (fields.number(1)?, fields.number(1)?, fields.number(1)? != 0);
    let fingerprint_bytes = usize::try_from(fields.number(2)?).unwrap_or_default();
    let owner = Owner::from_bytes(fields.array()?);
    let fence = Fence::new(fields.number(8)?).ok_or(CodecError::Damaged("fence"))?;
    let attempt = u32::try_from(fields.number(4)?).map_err(|_| CodecError::Damaged("attempt"))?;
    let (created_at, granted_at, run_until) = (fields.time()?, fields.time()?, fields.time()?);
    let (retention, unknown_retention) = (fields.retention()?, fields.retention()?);
    let (at, expires) = (fields.time()?, fields.time()?);
    let fingerprint = match fields.take(fingerprint_bytes)? {
        bytes if bytes.is_empty() => None,
        bytes => Some(decode_fingerprint(&bytes)?),
    };
    let state = decode_state(&mut fields, state, by, at, expires)?;
    fields.take(CHECK_BYTES)?;
    let record = Record {
        fence,
        attempt,
        owner,
        fingerprint,
        created_at,
        granted_at,
        run_until,
        retention,
        unknown_retention,
        remote,
        steps: Vec::new(),
        state,
    };
    Ok((record, fields.0.rest()))
}

fn decode_state(
    fields: &mut Fields,
    state: u64,
    by: u64,
    at: Timestamp,
    expires_at: Timestamp,
) -> Result<State, CodecError> {
    Ok(match (state, by) {
        (0, 0) => State::InFlight { lease_until: at },
        (1, by) => {
            let by = match by {
                0 => CompletedBy::Execution,
                1 => CompletedBy::Seal,
                2 => CompletedBy::Resolve,
                _ => return Err(CodecError::Damaged("completed by")),
            };
            let outcome = Outcome::tombstone(0, Tombstone::Erased);
            State::Completed(Completed { outcome, by, at, expires_at, late: None })
        }
        (2, 0) => State::Released { expires_at },
        (3, 0) => State::Unknown { since: at, expires_at, recovery: None },
        (3, 1) => {
            let owner = Owner::from_bytes(fields.array()?);
            let recovery = Some(Recovery { owner, lease_until: fields.time()? });
            State::Unknown { since: at, expires_at, recovery }
        }
        _ => return Err(CodecError::Damaged("state")),
    })
}

/// Covers the id, so that what is found under another one is damage.
fn checksum(id: &RecordId, parts: &[&[u8]]) -> [u8; SUM_BYTES] {
    let start = crc32c::crc32c(id.as_bytes());
    parts.iter().fold(start, |sum, part| crc32c::crc32c_append(sum, part)).to_be_bytes()
}

/// Reads fields as `struct` writes them.
struct Fields(Reader);

impl Fields {
    fn new(bytes: &Bytes) -> Self {
        Self(Reader::new(bytes.clone()))
    }

    fn take(&mut self, bytes: usize) -> Result<Bytes, CodecError> {
        self.0.raw(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        self.0.array()
    }

    fn is_at_end(&self) -> bool {
        self.0.end().is_ok()
    }

    fn number(&mut self, width: usize) -> Result<u64, CodecError> {
        Ok(number_in(&self.0.raw(width)?))
    }

    fn time(&mut self) -> Result<Timestamp, CodecError> {
        Ok(Timestamp::from_millis(self.number(6)?))
    }

    fn retention(&mut self) -> Result<Retention, CodecError> {
        let millis = Duration::from_millis(self.number(6)?);
        Retention::new(millis).map_err(|_| CodecError::Damaged("retention"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"onlyonce:r:some";

    /// A record with this state, whose times are 1000 and 2000.
    fn stored(state: u8, by: u8, fingerprint: &[u8]) -> Vec<u8> {
        let packed = Packed::default().byte(VERSION).byte(state).byte(by).byte(0);
        let packed = packed.number(fingerprint.len() as u64, 2).raw(&[7; 58]).number(1000, 6).number(2000, 6);
        let packed = packed.raw(fingerprint).raw(if by == 1 { &[9; RECOVERY_BYTES][..] } else { &[] });
        let head = packed.finish();
        let check = Sha1::from([KEY, &head].concat()).digest().to_string();
        [&head, &check.as_bytes()[..CHECK_BYTES], b"and what follows"].concat()
    }

    fn due(stored: &[u8], now: u64) -> Option<Due> {
        checked_head(KEY, stored).map(|head| due_at(head, Timestamp::from_millis(now)))
    }

    #[test]
    fn what_is_due_is_told_from_how_a_record_begins() {
        for fingerprint in [&[][..], &[5; 33]] {
            let in_flight = stored(0, 0, fingerprint);
            assert_eq!([999, 1000].map(|now| due(&in_flight, now)), [Some(Due::Not), Some(Due::Lapsed)]);
            for (state, by) in [(1, 0), (1, 2), (2, 0), (3, 0), (3, 1)] {
                let over = stored(state, by, fingerprint);
                assert_eq!([1999, 2000].map(|now| due(&over, now)), [Some(Due::Not), Some(Due::Expired)]);
            }
        }
    }

    #[test]
    fn what_is_damaged_or_goes_on_is_left_to_a_script() {
        let whole = stored(3, 1, &[5; 33]);
        let head = FORM_BYTES + 33 + RECOVERY_BYTES + CHECK_BYTES;
        for at in 0..head {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            assert_eq!(due(&damaged, 5000), None, "byte {at}");
            assert_eq!(due(&whole[..at], 5000), None, "{at} bytes");
        }
        assert_eq!(due(&whole[..head], 5000), Some(Due::Expired));
        assert!(
            goes_on(&whole[..head - 1]) && !goes_on(&whole[..head]) && !goes_on(&whole[..FORM_BYTES - 1])
        );
        assert_eq!(checked_head(b"another key", &whole), None);
    }
}
