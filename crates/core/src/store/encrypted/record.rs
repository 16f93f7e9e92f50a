//! Which parts of a record are encrypted.

use bytes::Bytes;

use super::Keyring;
use super::cipher::{self, Part, Under};
use crate::outcome::Outcome;
use crate::record::{Record, State, Step, StepName};
use crate::scope::RecordId;
use crate::store::StoreError;

/// The outcome with its body encrypted. A tombstone has none.
pub(super) fn seal_outcome(keys: &Keyring, id: &RecordId, under: Under, outcome: &Outcome) -> Outcome {
    match outcome.body().bytes() {
        Some(plain) => outcome.with_bytes(cipher::seal(keys, id, Part::Body(under, outcome), plain)),
        None => outcome.clone(),
    }
}

/// The outcome with its body in the clear.
pub(super) fn open_outcome(
    keys: &Keyring,
    id: &RecordId,
    under: Under,
    outcome: &Outcome,
) -> Result<Outcome, StoreError> {
    Ok(match outcome.body().bytes() {
        Some(stored) => outcome.with_bytes(cipher::open(keys, id, Part::Body(under, outcome), stored)?),
        None => outcome.clone(),
    })
}

/// The value of a step, encrypted.
pub(super) fn seal_step(keys: &Keyring, id: &RecordId, name: &StepName, value: &Bytes) -> Bytes {
    cipher::seal(keys, id, Part::Step(name), value)
}

/// The value of a step, in the clear.
pub(super) fn open_step(
    keys: &Keyring,
    id: &RecordId,
    name: &StepName,
    stored: &Bytes,
) -> Result<Bytes, StoreError> {
    cipher::open(keys, id, Part::Step(name), stored)
}

/// The values of all steps, in the clear.
pub(super) fn open_steps(keys: &Keyring, id: &RecordId, steps: &mut [Step]) -> Result<(), StoreError> {
    for step in steps {
        if let Some(stored) = &step.value {
            step.value = Some(open_step(keys, id, &step.name, stored)?);
        }
    }
    Ok(())
}

/// A whole record, encrypted where a caller wrote it.
pub(super) fn seal(keys: &Keyring, id: &RecordId, plain: &Record) -> Record {
    let mut record = plain.clone();
    for step in &mut record.steps {
        step.value = step.value.as_ref().map(|value| seal_step(keys, id, &step.name, value));
    }
    if let State::Completed(completed) = &mut record.state {
        let under = Under::of(completed.by, record.fence);
        completed.outcome = seal_outcome(keys, id, under, &completed.outcome);
        let under = Under::Fence(record.fence);
        completed.late = completed.late.as_ref().map(|late| seal_outcome(keys, id, under, late).into());
    }
    record
}

/// A whole record, in the clear.
pub(super) fn open(keys: &Keyring, id: &RecordId, mut record: Record) -> Result<Record, StoreError> {
    open_steps(keys, id, &mut record.steps)?;
    if let State::Completed(completed) = &mut record.state {
        let under = Under::of(completed.by, record.fence);
        completed.outcome = open_outcome(keys, id, under, &completed.outcome)?;
        let under = Under::Fence(record.fence);
        let late = completed.late.as_ref().map(|late| open_outcome(keys, id, under, late));
        completed.late = late.transpose()?.map(Box::new);
    }
    Ok(record)
}
