//! `resolve`, `erase` and `sweep`: what operators, recovery hooks and the sweeper do.

use std::time::Duration;

use onlyonce_core::record::{CompletedBy, State, Step, StepName};
use onlyonce_core::transition::{
    ClaimAnswer, CompleteAnswer, EraseAnswer, ResolveAnswer, SweepAnswer, Token, Verdict,
};
use onlyonce_core::{Record, StateKind, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION, outcome};

use crate::scene::{
    NOT_EXECUTED, POLICIES, SECOND, START, Scene, THIRD, above, around, completed, executed, fence,
    first_record, unknown,
};

const FORCED: Verdict = Verdict::NotExecuted { force: true };

fn verdicts() -> [Verdict; 4] {
    [executed("found"), NOT_EXECUTED, FORCED, Verdict::StillUnknown]
}

#[test]
fn resolve_executed_completes_an_unknown_record() {
    let (in_flight, token) = Scene::in_flight();
    for scene in [Scene::unknown().0, Scene::recovering().0, in_flight.after(LEASE)] {
        let mut scene = scene.after(Duration::from_secs(3));
        assert_eq!(scene.resolve(token.fence, executed("found")), ResolveAnswer::Resolved);
        let state = completed(scene.now, CompletedBy::Resolve, outcome("found"));
        assert_eq!(*scene.record(), first_record(state));
    }
}

#[test]
fn resolve_not_executed_releases_an_unknown_record_with_its_fingerprint() {
    let (in_flight, token) = Scene::in_flight();
    for scene in [Scene::unknown().0, Scene::recovering().0, in_flight] {
        let mut scene = scene.after(RUN_MAX);
        assert_eq!(scene.resolve(token.fence, NOT_EXECUTED), ResolveAnswer::Resolved);
        let released = State::Released { expires_at: scene.now + RETENTION };
        assert_eq!(*scene.record(), first_record(released));
    }
}

#[test]
fn resolve_not_executed_is_too_early_while_the_attempt_may_still_run() {
    for (scene, token) in [Scene::unknown(), Scene::recovering(), Scene::sealed()] {
        for (age, over) in around(RUN_MAX) {
            let mut scene = scene.after(age);
            let expected = if over { ResolveAnswer::Resolved } else { ResolveAnswer::TooEarly(TICK) };
            assert_eq!(scene.resolve(token.fence, NOT_EXECUTED), expected, "at {age:?}");
            assert_eq!(scene.kept, !over);
        }
        let mut forced = scene;
        assert_eq!(forced.resolve(token.fence, FORCED), ResolveAnswer::Resolved);
        assert_eq!(forced.record().kind(), StateKind::Released);
    }
}

#[test]
fn resolve_still_unknown_ends_the_recovery_and_nothing_else() {
    let (mut scene, token) = Scene::recovering();
    scene.advance(LEASE - TICK);
    assert_eq!(scene.resolve(token.fence, Verdict::StillUnknown), ResolveAnswer::Resolved);
    assert_eq!(*scene.record(), first_record(unknown(START, None)));
}

#[test]
fn resolve_under_another_fence_is_stale_in_every_state() {
    for (name, mut scene, token) in Scene::each() {
        for other in [fence(token.fence.get() - 1), above(token, 1)] {
            for verdict in verdicts() {
                assert_eq!(scene.resolve(other, verdict), ResolveAnswer::Stale(token.fence), "{name}");
                assert!(scene.kept, "{name}");
            }
        }
    }
}

#[test]
fn resolve_of_an_absent_or_expired_record_finds_nothing() {
    let (_, token) = Scene::in_flight();
    for verdict in verdicts() {
        assert_eq!(Scene::new().resolve(token.fence, verdict), ResolveAnswer::Absent);
    }
    for (name, scene, token) in Scene::each() {
        let Some(expires_at) = scene.record().expires_at() else { continue };
        for verdict in verdicts() {
            let mut expired = Scene { now: expires_at, ..scene.clone() };
            assert_eq!(expired.resolve(token.fence, verdict.clone()), ResolveAnswer::Absent, "{name}");
            assert!(expired.kept, "{name}");
            let mut in_time = Scene { now: expires_at - TICK, ..scene.clone() };
            assert_ne!(in_time.resolve(token.fence, verdict), ResolveAnswer::Absent, "{name}");
        }
    }
}

#[test]
fn resolve_in_flight_has_nothing_to_say_before_the_lease_passed() {
    let (scene, token) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        for verdict in verdicts() {
            let mut scene = scene.after(age);
            let answer = scene.resolve(token.fence, verdict.clone());
            let refused = answer == ResolveAnswer::NotUnknown(StateKind::InFlight);
            assert_eq!(refused, !passed, "{verdict:?} at {age:?}: {answer:?}");
        }
    }
}

#[test]
fn resolve_of_a_record_completed_by_execution_changes_nothing() {
    let (mut scene, token) = Scene::completed();
    scene.advance(RUN_MAX);
    for verdict in verdicts().into_iter().chain([executed("done")]) {
        let answer = scene.resolve(token.fence, verdict);
        assert_eq!(answer, ResolveAnswer::NotUnknown(StateKind::Completed));
        assert!(scene.kept);
    }
}

#[test]
fn resolve_of_a_resolved_record_stands() {
    let (mut scene, token) = Scene::resolved();
    scene.advance(RUN_MAX);
    assert_eq!(scene.resolve(token.fence, executed("found")), ResolveAnswer::Already);
    assert!(scene.kept);
    for verdict in [executed("another"), NOT_EXECUTED, FORCED, Verdict::StillUnknown] {
        let answer = scene.resolve(token.fence, verdict);
        assert_eq!(answer, ResolveAnswer::NotUnknown(StateKind::Completed));
        assert!(scene.kept);
    }
}

#[test]
fn resolve_of_a_released_record_can_only_agree() {
    let (mut scene, token) = Scene::released();
    for verdict in [NOT_EXECUTED, FORCED] {
        assert_eq!(scene.resolve(token.fence, verdict), ResolveAnswer::Already);
        assert!(scene.kept);
    }
    for verdict in [executed("found"), Verdict::StillUnknown] {
        let answer = scene.resolve(token.fence, verdict);
        assert_eq!(answer, ResolveAnswer::NotUnknown(StateKind::Released));
        assert!(scene.kept);
    }
}

#[test]
fn resolve_of_a_sealed_record_says_what_nobody_knew() {
    let (sealed, token) = Scene::sealed();
    let mut scene = sealed.after(Duration::from_secs(3));
    assert_eq!(scene.resolve(token.fence, executed("found")), ResolveAnswer::Resolved);
    let state = completed(scene.now, CompletedBy::Resolve, outcome("found"));
    assert_eq!(*scene.record(), first_record(state));

    let mut scene = sealed.after(RUN_MAX);
    assert_eq!(scene.resolve(token.fence, NOT_EXECUTED), ResolveAnswer::Resolved);
    assert_eq!(*scene.record(), first_record(State::Released { expires_at: scene.now + RETENTION }));

    let mut scene = sealed;
    let answer = scene.resolve(token.fence, Verdict::StillUnknown);
    assert_eq!(answer, ResolveAnswer::NotUnknown(StateKind::Completed));
    assert!(scene.kept);
}

#[test]
fn resolve_loses_against_a_completion_by_the_true_owner() {
    let (mut scene, token) = Scene::recovering();
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Completed);
    scene.advance(RUN_MAX);
    for verdict in verdicts() {
        let answer = scene.resolve(token.fence, verdict);
        assert_eq!(answer, ResolveAnswer::NotUnknown(StateKind::Completed));
    }
}

#[test]
fn erase_drops_bodies_and_keeps_the_head_and_the_tombstone() {
    for (scene, token) in [Scene::completed(), Scene::sealed(), Scene::resolved()] {
        let mut scene = scene.after(RETENTION - TICK);
        scene.complete(token, "late");
        let before = scene.completion().clone();
        assert_eq!(scene.erase(), EraseAnswer::Erased);
        let after = scene.completion();
        assert!(after.outcome.is_erased());
        assert_eq!(after.outcome, before.outcome.erased());
        assert_eq!(after.outcome.head(), "head");
        assert_eq!((after.by, after.at, after.expires_at), (before.by, before.at, before.expires_at));
        assert_eq!(after.late, None);
        let answer = scene.claim(THIRD, UnknownPolicy::Hold);
        assert!(matches!(answer, ClaimAnswer::Replay(replay) if replay.outcome == before.outcome.erased()));
    }
}

#[test]
fn erase_drops_the_values_of_steps_and_keeps_their_names() {
    let ends: [fn(&mut Scene, Token); 4] = [
        |scene, token| _ = scene.complete(token, "done"),
        |scene, token| _ = scene.release(token, true),
        |scene, token| _ = scene.abandon(token),
        |scene, _| scene.advance(LEASE),
    ];
    for end in ends {
        let (mut scene, token) = Scene::in_flight();
        scene.step(token, "charge", "ch_1");
        end(&mut scene, token);
        assert_eq!(scene.erase(), EraseAnswer::Erased);
        assert_eq!(scene.record().steps, [Step { name: StepName::new("charge").unwrap(), value: None }]);
    }
}

#[test]
fn erase_in_flight_waits_for_the_lease() {
    let (scene, _) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        let mut scene = scene.after(age);
        let expected = if passed { EraseAnswer::Erased } else { EraseAnswer::InFlight };
        assert_eq!(scene.erase(), expected, "at {age:?}");
        assert_eq!(scene.kept, !passed);
        let kind = if passed { StateKind::Unknown } else { StateKind::InFlight };
        assert_eq!(scene.record().kind(), kind);
    }
}

#[test]
fn erase_leaves_an_unknown_record_unknown_and_a_released_one_released() {
    for (mut scene, _) in [Scene::unknown(), Scene::recovering(), Scene::released()] {
        let before = scene.record().clone();
        assert_eq!(scene.erase(), EraseAnswer::Erased);
        assert_eq!(*scene.record(), before);
    }
}

#[test]
fn erase_of_an_absent_or_expired_record_finds_nothing() {
    assert_eq!(Scene::new().erase(), EraseAnswer::Absent);
    for (name, scene, _) in Scene::each() {
        let Some(expires_at) = scene.record().expires_at() else { continue };
        let mut scene = Scene { now: expires_at, ..scene };
        assert_eq!(scene.erase(), EraseAnswer::Absent, "{name}");
        assert!(scene.kept, "{name}");
    }
}

#[test]
fn sweep_removes_what_has_expired_to_the_millisecond() {
    let cases = [
        (Scene::completed().0, RETENTION),
        (Scene::sealed().0, UNKNOWN_RETENTION),
        (Scene::resolved().0, RETENTION),
        (Scene::released().0, RETENTION),
        (Scene::unknown().0, UNKNOWN_RETENTION),
        (Scene::recovering().0, UNKNOWN_RETENTION),
    ];
    for (scene, retention) in cases {
        for (age, expired) in around(retention) {
            let mut scene = scene.after(age);
            let expected = if expired { SweepAnswer::Removed } else { SweepAnswer::Kept };
            assert_eq!(scene.sweep(), expected, "at {age:?}");
            assert_eq!(scene.stored.is_none(), expired);
            assert_eq!(scene.kept, !expired);
        }
    }
}

#[test]
fn sweep_never_removes_what_is_in_flight() {
    let (scene, _) = Scene::in_flight();
    for (age, passed) in around(LEASE).into_iter().chain([(UNKNOWN_RETENTION * 10, true)]) {
        let mut scene = scene.after(age);
        if passed {
            assert_eq!(scene.sweep(), SweepAnswer::MadeUnknown, "at {age:?}");
            let expires_at = scene.now + UNKNOWN_RETENTION;
            let state = State::Unknown { since: START + LEASE, expires_at, recovery: None };
            assert_eq!(*scene.record(), first_record(state));
        }
        assert_eq!(scene.sweep(), SweepAnswer::Kept, "at {age:?}");
        assert!(scene.kept);
    }
}

#[test]
fn sweep_of_an_absent_record_does_nothing() {
    let mut scene = Scene::new();
    assert_eq!(scene.sweep(), SweepAnswer::Kept);
    assert_eq!(scene.stored, None);
}

#[test]
fn sweep_does_not_change_what_a_claim_answers_next() {
    for (name, scene, _) in Scene::each() {
        for policy in POLICIES {
            for age in [Duration::ZERO, LEASE, RETENTION, UNKNOWN_RETENTION] {
                let mut swept = scene.after(age);
                swept.sweep();
                // The fence of a removed record is remembered by the store's own source.
                swept.next_fence = above(Scene::in_flight().1, 1);
                let mut unswept = Scene { stored: scene.stored.clone(), ..swept.clone() };
                let answers = (swept.claim(THIRD, policy), unswept.claim(THIRD, policy));
                assert_eq!(answers.0, answers.1, "{name} at {age:?}");
                assert_eq!(swept.stored, unswept.stored, "{name} at {age:?}");
            }
        }
    }
}

#[test]
fn sweep_leaves_a_second_attempt_alone() {
    let (mut scene, _) = Scene::unknown();
    scene.granted(SECOND, UnknownPolicy::Rerun);
    let before: Record = scene.record().clone();
    assert_eq!(scene.sweep(), SweepAnswer::Kept);
    assert_eq!(*scene.record(), before);
}
