//! Records as another store had them, for tests and measurements that take in many: numbered, completed or of unknown outcome,
//! and kept for as long as is said.

use std::time::Duration;

use onlyonce_core::record::{Completed, CompletedBy, State, StateKind};
use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::{Fence, Fingerprint, Outcome, Owner, Record, RecordId, Retention, Rules, Timestamp};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The id of the record `number`: as spread as the hashes that ids are, and the same in every run.
pub fn stock_id(number: u64) -> RecordId {
    let mut bytes = [RECORD_ID_VERSION; 32];
    SmallRng::seed_from_u64(number).fill(&mut bytes[1..]);
    RecordId::from_bytes(bytes)
}

/// The record `number` as it was left at `now`, to expire after `life`: unknown if `kind` says so, and completed if not.
pub fn stock_record(
    number: u64,
    kind: StateKind,
    outcome: Outcome,
    now: Timestamp,
    life: Duration,
) -> (RecordId, Record) {
    let retention = Retention::new(life).expect("a life of a record");
    let expires_at = now + life;
    let state = match kind {
        StateKind::Unknown => State::Unknown { since: now, expires_at, recovery: None },
        _ => State::Completed(Completed {
            outcome,
            by: CompletedBy::Execution,
            at: now,
            expires_at,
            late: None,
        }),
    };
    let record = Record {
        fence: Fence::new(number + 1).expect("a number below 2^53"),
        attempt: 1,
        owner: Owner::from_bytes([9; 16]),
        fingerprint: Some(Fingerprint::from_parts(Rules::standard(), [5; 32])),
        created_at: now,
        granted_at: now,
        run_until: now,
        retention,
        unknown_retention: retention,
        remote: false,
        steps: Vec::new(),
        state,
    };
    (stock_id(number), record)
}
