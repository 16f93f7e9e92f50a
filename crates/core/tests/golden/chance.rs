//! Random records in every state, and random damage. Tests are the only readers.

use std::time::Duration;

use onlyonce_core::record::{Completed, CompletedBy, Fence, Owner, Record, Recovery, State, Step, StepName};
use onlyonce_core::{Fingerprint, Outcome, RecordId, Retention, Rules, Timestamp, Tombstone};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Any id.
pub(crate) fn id() -> impl Strategy<Value = RecordId> {
    any::<[u8; 32]>().prop_map(RecordId::from_bytes)
}

/// Any record that can be written, whether or not the state machine would make it.
pub(crate) fn record() -> impl Strategy<Value = Record> {
    let numbers = (fence(), any::<u32>(), owner(), option::weighted(0.9, fingerprint()), any::<bool>());
    let times = (time(), time(), time(), retention(), retention());
    (numbers, times, vec(step(), 0..5), state()).prop_map(|(numbers, times, steps, state)| Record {
        fence: numbers.0,
        attempt: numbers.1,
        owner: numbers.2,
        fingerprint: numbers.3,
        created_at: times.0,
        granted_at: times.1,
        run_until: times.2,
        retention: times.3,
        unknown_retention: times.4,
        remote: numbers.4,
        steps,
        state,
    })
}

fn state() -> impl Strategy<Value = State> {
    let by = prop_oneof![Just(CompletedBy::Execution), Just(CompletedBy::Seal), Just(CompletedBy::Resolve)];
    let completed = (outcome(), by, time(), time(), option::of(outcome())).prop_map(
        |(outcome, by, at, expires_at, late)| {
            State::Completed(Completed { outcome, by, at, expires_at, late: late.map(Box::new) })
        },
    );
    let recovery = (owner(), time()).prop_map(|(owner, lease_until)| Recovery { owner, lease_until });
    let unknown = (time(), time(), option::of(recovery))
        .prop_map(|(since, expires_at, recovery)| State::Unknown { since, expires_at, recovery });
    prop_oneof![
        time().prop_map(|lease_until| State::InFlight { lease_until }),
        completed,
        time().prop_map(|expires_at| State::Released { expires_at }),
        unknown,
    ]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let body = prop_oneof![
        3 => vec(any::<u8>(), 0..300).prop_map(Ok),
        1 => Just(Err(Tombstone::TooLarge)),
        1 => Just(Err(Tombstone::Discarded)),
        1 => Just(Err(Tombstone::Erased)),
        1 => Just(Err(Tombstone::Indeterminate)),
    ];
    (any::<u16>(), vec(any::<u8>(), 0..=64), body).prop_map(|(version, head, body)| {
        let outcome = match body {
            Ok(bytes) => Outcome::kept(version, bytes),
            Err(why) => Outcome::tombstone(version, why),
        };
        outcome.with_head(head).expect("at most 64 bytes")
    })
}

fn step() -> impl Strategy<Value = Step> {
    let value = option::weighted(0.7, vec(any::<u8>(), 0..40));
    ("[ -~]{1,100}", value).prop_map(|(name, value)| Step {
        name: StepName::new(&name).expect("1 to 100 printable characters"),
        value: value.map(Into::into),
    })
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    let rules = prop_oneof![
        Just(Rules::standard()),
        vec(any::<u8>(), 0..=1024).prop_map(|text| Rules::new(text).expect("at most 1024 bytes")),
    ];
    (rules, any::<[u8; 32]>()).prop_map(|(rules, digest)| Fingerprint::from_parts(rules, digest))
}

fn owner() -> impl Strategy<Value = Owner> {
    any::<[u8; 16]>().prop_map(Owner::from_bytes)
}

fn fence() -> impl Strategy<Value = Fence> {
    prop_oneof![0..1000_u64, 0..Fence::LIMIT].prop_map(|number| Fence::new(number).expect("below 2^53"))
}

fn retention() -> impl Strategy<Value = Retention> {
    prop_oneof![1..200_u64, 1..=316_224_000_999_u64]
        .prop_map(|millis| Retention::new(Duration::from_millis(millis)).expect("1 ms to 10 years"))
}

/// Times of today, times at the edges, and all others.
fn time() -> impl Strategy<Value = Timestamp> {
    let edges = [0, 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
    prop_oneof![
        4 => 1_780_000_000_000..1_780_100_000_000_u64,
        1 => proptest::sample::select(edges.to_vec()),
        1 => any::<u64>(),
    ]
    .prop_map(Timestamp::from_millis)
}

/// One change to a string of bytes. Positions are taken modulo its length.
#[derive(Debug, Clone)]
pub(crate) enum Damage {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Cut(usize),
    /// Spells a number longer than it has to be.
    Pad(usize),
    /// Flips a bit of the flags.
    Flag(u8),
}

impl Damage {
    /// Changes `bytes`, but never the first one: that is the version.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        let place = |at: &usize, len: usize| 1 + at % len.max(2).saturating_sub(1);
        let len = bytes.len();
        match self {
            Self::Set(at, byte) if len > 1 => bytes[place(at, len)] = *byte,
            Self::Insert(at, byte) => bytes.insert(place(at, len).min(len), *byte),
            Self::Remove(at) if len > 1 => drop(bytes.remove(place(at, len))),
            Self::Cut(at) => bytes.truncate(place(at, len)),
            Self::Pad(at) if len > 1 => {
                bytes[place(at, len)] |= 0x80;
                bytes.insert(place(at, len) + 1, 0);
            }
            Self::Flag(bit) if len > 1 => bytes[1] ^= 1 << (bit % 8),
            Self::Set(..) | Self::Remove(_) | Self::Pad(_) | Self::Flag(_) => {}
        }
    }
}

/// A little damage. Small bytes and the first forty positions come often: flags and lengths are made of them.
pub(crate) fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let at = || prop_oneof![0..40_usize, any::<usize>()];
    let byte = || prop_oneof![0..8_u8, any::<u8>(), Just(0x80), Just(0x7f)];
    let one = prop_oneof![
        6 => (at(), byte()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (at(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        2 => at().prop_map(Damage::Remove),
        1 => at().prop_map(Damage::Cut),
        2 => at().prop_map(Damage::Pad),
        2 => (0..8_u8).prop_map(Damage::Flag),
    ];
    vec(one, 1..4)
}
