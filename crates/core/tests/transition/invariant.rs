//! `broken_invariant` names what a change would break, and `apply` lets no such change through.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use onlyonce_core::record::{Completed, CompletedBy, State};
use onlyonce_core::transition::{Change, Moment, Token, Transition, apply, broken_invariant};
use onlyonce_core::{Outcome, Owner, Record, RecordId, Timestamp, Tombstone, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, TICK, UNKNOWN_RETENTION, outcome};

use crate::scene::{FIRST_FENCE, SECOND, START, Scene, completed, fence, first_record, id, unknown};

/// What `broken_invariant` names: "I2", or nothing.
fn named(before: Option<&Record>, change: &Change, now: Timestamp) -> Option<&'static str> {
    let broken = broken_invariant(before, change, now)?;
    Some(broken.split_once(": ").expect("an invariant, a colon, and what broke it").0)
}

fn in_flight(number: u64, owner: Owner) -> Record {
    let state = State::InFlight { lease_until: START + RETENTION * 100 };
    Record { fence: fence(number), owner, ..first_record(state) }
}

/// The next grant to another owner.
fn regranted() -> Change {
    Change::Put(in_flight(FIRST_FENCE + 1, SECOND))
}

const COMMANDS: [fn(&mut Scene, Token); 6] = [
    |scene, token| _ = scene.complete(token, "done"),
    |scene, _| _ = scene.claim(SECOND, UnknownPolicy::Rerun),
    |scene, _| _ = scene.claim(SECOND, UnknownPolicy::Seal),
    |scene, token| _ = scene.release(token, false),
    |scene, _| _ = scene.erase(),
    |scene, _| _ = scene.sweep(),
];

#[test]
fn nothing_is_broken_by_what_the_commands_do() {
    for (name, scene, token) in Scene::each() {
        for age in [Duration::ZERO, LEASE, RETENTION, UNKNOWN_RETENTION] {
            let scene = scene.after(age);
            for command in COMMANDS {
                let mut after = scene.clone();
                command(&mut after, token);
                let change = after.stored.clone().map_or(Change::Remove, Change::Put);
                let change = if after.kept { Change::Keep } else { change };
                assert_eq!(named(scene.stored.as_ref(), &change, scene.now), None, "{name} at {age:?}");
            }
        }
    }
}

#[test]
fn nothing_is_broken_where_nothing_was() {
    for change in [Change::Keep, regranted(), Change::Remove] {
        assert_eq!(named(None, &change, START), None);
    }
}

#[test]
fn i2_a_fence_that_goes_down_is_named_in_every_state() {
    for (name, scene, _) in Scene::each() {
        let lower = Record { fence: fence(FIRST_FENCE - 1), ..scene.record().clone() };
        for now in [scene.now, START + UNKNOWN_RETENTION * 10] {
            assert_eq!(named(scene.stored.as_ref(), &Change::Put(lower.clone()), now), Some("I2"), "{name}");
        }
    }
}

#[test]
fn i3_an_answer_that_changes_is_named() {
    for (scene, _) in [Scene::completed(), Scene::resolved()] {
        let before = scene.record();
        let is = scene.completion();
        let now = scene.now + RETENTION - TICK;
        let with = |completed: Completed| {
            Change::Put(Record { state: State::Completed(completed), ..before.clone() })
        };
        let state = |state| Change::Put(Record { state, ..before.clone() });
        let bad = [
            with(Completed { outcome: outcome("another"), ..is.clone() }),
            with(Completed { outcome: Outcome::tombstone(7, Tombstone::Erased), ..is.clone() }),
            with(Completed { outcome: Outcome::kept(7, "done"), ..is.clone() }),
            with(Completed { expires_at: is.expires_at + TICK, ..is.clone() }),
            with(Completed { expires_at: is.expires_at - TICK, ..is.clone() }),
            state(unknown(START, None)),
            state(State::Released { expires_at: is.expires_at }),
            state(State::InFlight { lease_until: is.expires_at }),
        ];
        for (at, change) in bad.iter().enumerate() {
            assert_eq!(named(Some(before), change, now), Some("I3"), "case {at}");
            assert_eq!(named(Some(before), change, now + TICK), None, "case {at}, once expired");
        }
        let good = [
            with(Completed { outcome: is.outcome.erased(), late: None, ..is.clone() }),
            with(Completed { late: Some(outcome("late").into()), ..is.clone() }),
        ];
        for (at, change) in good.iter().enumerate() {
            assert_eq!(named(Some(before), change, now), None, "case {at}");
        }
    }
}

#[test]
fn i3_to_find_out_about_a_sealed_record_changes_no_answer() {
    let (scene, _) = Scene::sealed();
    for state in [
        completed(START, CompletedBy::Resolve, outcome("found")),
        State::Released { expires_at: START + RETENTION },
    ] {
        let change = Change::Put(Record { state, ..scene.record().clone() });
        assert_eq!(named(scene.stored.as_ref(), &change, START), None);
    }
}

#[test]
fn i5_a_grant_before_a_completed_record_expires_is_named() {
    for (scene, _) in [Scene::completed(), Scene::sealed(), Scene::resolved()] {
        let named = |now| named(scene.stored.as_ref(), &regranted(), now);
        assert_eq!(named(scene.now), Some("I5"));
        assert_eq!(named(scene.expires_at() - TICK), Some("I5"));
        assert_eq!(named(scene.expires_at()), None);
    }
}

#[test]
fn i6_a_second_grant_while_the_first_is_live_is_named() {
    let (scene, _) = Scene::in_flight();
    let named = |now| named(scene.stored.as_ref(), &regranted(), now);
    assert_eq!(named(START), Some("I6"));
    assert_eq!(named(START + LEASE - TICK), Some("I6"));
    assert_eq!(named(START + LEASE), None);
    let (released, _) = Scene::released();
    assert_eq!(broken_invariant(released.stored.as_ref(), &regranted(), START), None);
}

#[test]
fn i12_a_removal_before_the_expiry_is_named() {
    for (name, scene, _) in Scene::each() {
        let named = |now| named(scene.stored.as_ref(), &Change::Remove, now);
        assert_eq!(named(scene.now), Some("I12"), "{name}");
        if let Some(expires_at) = scene.record().expires_at() {
            assert_eq!(named(expires_at - TICK), Some("I12"), "{name}");
            assert_eq!(named(expires_at), None, "{name}");
        } else {
            assert_eq!(named(Timestamp::MAX), Some("I12"), "{name}: in flight never expires");
        }
    }
}

/// A command that does whatever it is told.
struct Rogue(Change);

impl Transition for Rogue {
    type Answer = ();

    fn id(&self) -> &RecordId {
        const ID: RecordId = RecordId::from_bytes([1; 32]);
        &ID
    }

    fn decide(&self, _: Option<&Record>, _: Moment) -> (Change, ()) {
        (self.0.clone(), ())
    }
}

#[test]
fn apply_stops_a_command_that_would_break_an_invariant() {
    let (scene, _) = Scene::completed();
    let moment = Moment { now: START, next_fence: fence(FIRST_FENCE) };
    for bad in [Change::Remove, regranted(), Change::Put(in_flight(1, SECOND))] {
        let rogue = Rogue(bad);
        assert_eq!(*rogue.id(), id());
        let run = AssertUnwindSafe(|| apply(scene.stored.as_ref(), &rogue, moment));
        let stopped = catch_unwind(run).expect_err("the change is refused");
        let why = stopped.downcast_ref::<String>().expect("a reason");
        assert!(why.contains("transition broke I"), "{why}");
    }
    let keep = apply(scene.stored.as_ref(), &Rogue(Change::Keep), moment);
    assert_eq!(keep, (Change::Keep, ()));
}
