//! The records whose bytes are kept in `v1/`, built in code.
//!
//! Records are added here, never changed: bytes that were written once are read for ever.

use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::{Completed, CompletedBy, Fence, Owner, Record, Recovery, State, Step, StepName};
use onlyonce_core::{Fingerprint, Outcome, RecordId, Retention, Rules, Timestamp, Tombstone};

/// When the usual record was granted: 2026-05-28 20:26:40 UTC.
const GRANTED_AT: Timestamp = Timestamp::from_millis(1_780_000_000_000);

/// The id under which every golden record is kept, but for the one that is found under another.
pub(crate) fn id() -> RecordId {
    "011012fcb160d30c2914e8cae91d61ba4532fe6ae09b97d9762bca9032d5cdeb".parse().expect("64 digits")
}

/// An id with the same scope as [`id`].
pub(crate) fn other_id() -> RecordId {
    "01ffffffb160d30c2914e8cae91d61ba4532fe6ae09b97d9762bca9032d5cdeb".parse().expect("64 digits")
}

/// Every golden record of version 1, by the name of its file.
pub(crate) fn all() -> Vec<(&'static str, Record)> {
    let by = |by, outcome| with(State::Completed(completed(by, outcome)));
    let run = |outcome| by(CompletedBy::Execution, outcome);
    let sealed = Outcome::tombstone(3, Tombstone::Indeterminate);
    let late = Completed { late: Some(paid().into()), ..completed(CompletedBy::Seal, sealed.clone()) };
    let erased = Record { steps: erased_steps(), ..run(headed(paid(), b"201").erased()) };
    let recovery = Recovery { owner: Owner::from_bytes([0xb7; 16]), lease_until: after(70) };
    vec![
        ("in_flight", in_flight()),
        ("in_flight_again", in_flight_again()),
        ("in_flight_remote", Record { remote: true, ..in_flight() }),
        ("rules_in_full", Record { fingerprint: Some(by_rules()), ..in_flight() }),
        ("completed_body", run(paid())),
        ("completed_empty_body", run(Outcome::kept(3, ""))),
        ("completed_head", run(headed(paid(), b"201"))),
        ("completed_too_large", run(headed(Outcome::tombstone(3, Tombstone::TooLarge), b"200"))),
        ("completed_discarded", run(headed(Outcome::tombstone(3, Tombstone::Discarded), b"204"))),
        ("completed_indeterminate", run(Outcome::tombstone(3, Tombstone::Indeterminate))),
        ("completed_erased", erased),
        ("sealed", by(CompletedBy::Seal, sealed)),
        ("sealed_late", with(State::Completed(late))),
        ("resolved", by(CompletedBy::Resolve, paid())),
        ("released", with(State::Released { expires_at: after(86_401) })),
        (
            "released_forgotten",
            Record { fingerprint: None, ..with(State::Released { expires_at: after(9) }) },
        ),
        ("unknown", with(unknown(None))),
        ("unknown_recovery", with(unknown(Some(recovery)))),
        ("steps", Record { steps: steps(), ..in_flight_again() }),
        ("smallest_numbers", smallest_numbers()),
        ("largest_numbers", largest_numbers()),
        ("largest_distances", largest_distances()),
    ]
}

/// What costs the usual bytes: a fence counted in microseconds, a day of retention, half a kilobyte of answer.
pub(crate) fn typical() -> Record {
    let outcome = headed(Outcome::kept(1, vec![b'x'; 512]), b"201");
    with(State::Completed(completed(CompletedBy::Execution, outcome)))
}

fn in_flight() -> Record {
    Record {
        fence: Fence::new(1_780_000_000_000_123).expect("below 2^53"),
        attempt: 1,
        owner: Owner::from_bytes(*b"\xa0\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf"),
        fingerprint: Some(Fingerprint::from_parts(Rules::standard(), digest())),
        created_at: GRANTED_AT,
        granted_at: GRANTED_AT,
        run_until: after(300),
        retention: Retention::DEFAULT,
        unknown_retention: Retention::UNKNOWN_DEFAULT,
        remote: false,
        steps: Vec::new(),
        state: State::InFlight { lease_until: after(30) },
    }
}

/// A second attempt, of a record that came to be earlier.
fn in_flight_again() -> Record {
    Record { attempt: 2, created_at: GRANTED_AT - Duration::from_mins(1), ..in_flight() }
}

fn with(state: State) -> Record {
    Record { state, ..in_flight() }
}

fn completed(by: CompletedBy, outcome: Outcome) -> Completed {
    let at = GRANTED_AT + Duration::from_millis(250);
    Completed { outcome, by, at, expires_at: at + Retention::DEFAULT.get(), late: None }
}

fn unknown(recovery: Option<Recovery>) -> State {
    State::Unknown { since: after(30), expires_at: after(30 + 30 * 86_400), recovery }
}

fn smallest_numbers() -> Record {
    let zero = Timestamp::default();
    let millisecond = Retention::new(Duration::from_millis(1)).expect("the shortest retention");
    Record {
        fence: Fence::default(),
        attempt: 0,
        owner: Owner::from_bytes([0; 16]),
        fingerprint: Some(Fingerprint::from_parts(Rules::standard(), [0; 32])),
        created_at: zero,
        granted_at: zero,
        run_until: zero,
        retention: millisecond,
        unknown_retention: millisecond,
        remote: false,
        steps: Vec::new(),
        state: State::Completed(Completed {
            outcome: Outcome::kept(0, ""),
            by: CompletedBy::Execution,
            at: zero,
            expires_at: zero,
            late: None,
        }),
    }
}

fn largest_numbers() -> Record {
    let ten_years =
        Retention::new(Duration::new(10 * 366 * 86_400, 999_000_000)).expect("the longest retention");
    let outcome = headed(Outcome::kept(u16::MAX, vec![0xff; 128]), &[0xff; 64]);
    Record {
        fence: Fence::new(Fence::LIMIT - 1).expect("the largest fence"),
        attempt: u32::MAX,
        owner: Owner::from_bytes([0xff; 16]),
        fingerprint: Some(Fingerprint::from_parts(Rules::standard(), [0xff; 32])),
        created_at: Timestamp::MAX,
        granted_at: Timestamp::MAX,
        run_until: Timestamp::MAX,
        retention: ten_years,
        unknown_retention: ten_years,
        remote: false,
        steps: Vec::new(),
        state: State::Completed(Completed {
            outcome: outcome.clone(),
            by: CompletedBy::Resolve,
            at: Timestamp::MAX,
            expires_at: Timestamp::MAX,
            late: Some(outcome.into()),
        }),
    }
}

/// Half of all times is the longest distance there is; beyond it, the way round is shorter.
fn largest_distances() -> Record {
    let half = Timestamp::from_millis(1 << 63);
    let recovery = Recovery { owner: Owner::from_bytes([0xb7; 16]), lease_until: Timestamp::default() };
    Record {
        created_at: Timestamp::MAX,
        granted_at: Timestamp::default(),
        run_until: half,
        state: State::Unknown { since: Timestamp::MAX, expires_at: half, recovery: Some(recovery) },
        ..in_flight()
    }
}

fn steps() -> Vec<Step> {
    vec![
        step("charge", Some(b"ch_1")),
        step("an empty one", Some(b"")),
        step("an erased one", None),
        step("~ !", Some(b"\x00\xff")),
    ]
}

fn erased_steps() -> Vec<Step> {
    vec![step("charge", None), step("mail", None)]
}

fn step(name: &str, value: Option<&'static [u8]>) -> Step {
    Step { name: StepName::new(name).expect("printable"), value: value.map(Bytes::from_static) }
}

fn paid() -> Outcome {
    Outcome::kept(3, r#"{"paid":true}"#)
}

fn headed(outcome: Outcome, head: &'static [u8]) -> Outcome {
    outcome.with_head(head).expect("at most 64 bytes")
}

fn by_rules() -> Fingerprint {
    let rules = Rules::new("body=json;exclude=/sent_at").expect("at most 1024 bytes");
    Fingerprint::from_parts(rules, digest())
}

/// 00 01 02 … 1f.
fn digest() -> [u8; 32] {
    std::array::from_fn(|at| u8::try_from(at).expect("below 32"))
}

fn after(seconds: u64) -> Timestamp {
    GRANTED_AT + Duration::from_secs(seconds)
}
