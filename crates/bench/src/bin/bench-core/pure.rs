//! Workloads without a store: the state machine, the bytes of a record, the hashes.

use std::hint::black_box;

use bytes::Bytes;
use onlyonce_core::record::codec;
use onlyonce_core::transition::{Change, CompleteAnswer, Moment, apply};
use onlyonce_core::{Fence, Key, Record};

use crate::Result;
use crate::clock::StoppedClock;
use crate::sample::{self, Caller};

/// How many different keys are read in turn.
const KEYS: usize = 64;

pub(crate) fn transition(iterations: u64) -> Result<()> {
    let mut caller = Caller::new()?;
    for _ in 0..iterations {
        black_box(completed(&mut caller)?);
    }
    Ok(())
}

pub(crate) fn codec(iterations: u64) -> Result<()> {
    let mut caller = Caller::new()?;
    let record = completed(&mut caller)?;
    let id = caller.names.id();
    for _ in 0..iterations {
        let bytes = Bytes::from(codec::encode(&id, black_box(&record)));
        black_box(codec::decode(&id, &bytes)?);
    }
    Ok(())
}

pub(crate) fn record_id(iterations: u64) -> Result<()> {
    let secret = sample::secret();
    // As long as a UUID, and quoted, as the draft asks.
    let written: Vec<_> = (0..KEYS).map(|number| format!("\"{number:036}\"")).collect();
    for text in written.iter().cycle().zip(0..iterations).map(|(text, _)| text) {
        let key = sample::scope().key(Key::parse(text)?);
        black_box(key.record_id(&secret));
        black_box(sample::fingerprint(&secret));
    }
    Ok(())
}

/// Claims and completes a record that is nowhere.
fn completed(caller: &mut Caller) -> Result<Record> {
    let moment = Moment { now: StoppedClock::START, next_fence: Fence::new(1).unwrap_or_default() };
    let claim = caller.claim();
    let (change, answer) = apply(None, &claim, moment);
    let in_flight = written(change)?;
    let complete = caller.complete(&claim, &sample::granted(answer)?);
    match apply(Some(&in_flight), &complete, moment) {
        (change, CompleteAnswer::Completed) => written(change),
        (_, other) => Err(format!("a grant was not completed: {other:?}").into()),
    }
}

fn written(change: Change) -> Result<Record> {
    match change {
        Change::Put(record) => Ok(record),
        other => Err(format!("nothing was written: {other:?}").into()),
    }
}
