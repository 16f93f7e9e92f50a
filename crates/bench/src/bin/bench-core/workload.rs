//! The list of workloads. The driver runs them by name, in this order.

use crate::{Result, engine, pure, store};

pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Performs the operation that many times. What does not depend on the number is not measured.
    pub(crate) perform: fn(u64) -> Result<()>,
}

pub(crate) const ALL: [Workload; 10] = [
    Workload {
        name: "transition",
        about: "the state machine alone: claim an absent record and complete it",
        perform: pure::transition,
    },
    Workload { name: "codec", about: "encode and decode a completed record", perform: pure::codec },
    Workload {
        name: "record-id",
        about: "read a key, derive its record id, fingerprint a body of 200 bytes",
        perform: pure::record_id,
    },
    Workload {
        name: "claim-complete-new-key",
        about: "claim and complete on a memory store that grows from empty",
        perform: store::claim_complete_new_key,
    },
    Workload {
        name: "claim-complete",
        about: "the same on a store that holds 100 000 completed records",
        perform: store::claim_complete,
    },
    Workload {
        name: "claim-many",
        about: "the same in batches of 100, per record",
        perform: store::claim_many,
    },
    Workload {
        name: "whole-life",
        about: "claim, complete, and the sweeps until the record is gone",
        perform: store::whole_life,
    },
    Workload { name: "replay", about: "a claim answered from a completed record", perform: store::replay },
    Workload { name: "engine-run", about: "the engine performs a new key", perform: engine::run },
    Workload { name: "engine-replay", about: "the engine answers from the record", perform: engine::replay },
];
