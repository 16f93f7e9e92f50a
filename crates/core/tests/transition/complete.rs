//! `complete`: the only command that may come late.

use onlyonce_core::record::{Completed, CompletedBy, State};
use onlyonce_core::transition::{ClaimAnswer, Complete, CompleteAnswer, Token};
use onlyonce_core::{Outcome, Record, Retention, Tombstone, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION, outcome};

use crate::scene::{
    FIRST, NOT_EXECUTED, SECOND, START, Scene, THIRD, above, around, completed, executed, fence, first_record,
};

#[test]
fn complete_in_flight_stores_the_outcome_for_its_retention() {
    let (mut scene, token) = Scene::in_flight();
    scene.advance(LEASE - TICK);
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Completed);
    let state = completed(scene.now, CompletedBy::Execution, outcome("done"));
    assert_eq!(*scene.record(), first_record(state));
}

#[test]
fn complete_takes_a_retention_of_its_own() {
    let (mut scene, token) = Scene::in_flight();
    let retention = Some(Retention::new(RETENTION * 3).unwrap());
    scene.run(&Complete { token, outcome: outcome("done"), retention });
    assert_eq!(scene.expires_at(), START + RETENTION * 3);
    for (age, expired) in around(RETENTION * 3) {
        let answer = scene.after(age).claim(SECOND, UnknownPolicy::Hold);
        assert_eq!(matches!(answer, ClaimAnswer::Granted(_)), expired, "at {age:?}");
    }
}

#[test]
fn complete_is_welcome_past_the_lease_and_past_the_run() {
    let (scene, token) = Scene::in_flight();
    for late in [LEASE, LEASE + TICK, RUN_MAX, RUN_MAX + TICK, UNKNOWN_RETENTION * 10] {
        let mut scene = scene.after(late);
        assert_eq!(scene.complete(token, "done"), CompleteAnswer::Completed, "at {late:?}");
        let state = completed(START + late, CompletedBy::Execution, outcome("done"));
        assert_eq!(scene.record().state, state);
    }
}

#[test]
fn complete_of_an_unknown_record_is_welcome_until_it_expires() {
    for (scene, token) in [Scene::unknown(), Scene::recovering()] {
        for (age, expired) in around(UNKNOWN_RETENTION) {
            let mut scene = scene.after(age);
            let expected = if expired { CompleteAnswer::Fenced } else { CompleteAnswer::Completed };
            assert_eq!(scene.complete(token, "done"), expected, "at {age:?}");
            assert_eq!(scene.kept, expired);
        }
    }
}

#[test]
fn complete_again_with_the_same_outcome_is_already_done() {
    let (completed, token) = Scene::completed();
    let (sealed, _) = Scene::sealed();
    let (resolved, _) = Scene::resolved();
    let cases = [
        (completed, "done", RETENTION),
        (sealed, "sealed", UNKNOWN_RETENTION),
        (resolved, "found", RETENTION),
    ];
    for (scene, body, retention) in cases {
        for (age, expired) in around(retention) {
            let mut scene = scene.after(age);
            let expected = if expired { CompleteAnswer::Fenced } else { CompleteAnswer::Already };
            assert_eq!(scene.complete(token, body), expected, "{body} at {age:?}");
            assert!(scene.kept, "a repeated completion extends no retention");
        }
    }
}

#[test]
fn complete_again_with_another_outcome_is_an_alarm() {
    let (mut scene, token) = Scene::completed();
    let others = [
        outcome("another"),
        Outcome::kept(7, "done").with_head("another head").unwrap(),
        Outcome::kept(8, "done").with_head("head").unwrap(),
        Outcome::tombstone(7, Tombstone::TooLarge).with_head("head").unwrap(),
        outcome("done").erased(),
    ];
    for outcome in others {
        let complete = Complete { token, outcome, retention: None };
        assert_eq!(scene.run(&complete), CompleteAnswer::Alarm);
        assert!(scene.kept);
    }
}

#[test]
fn complete_after_a_seal_or_a_resolution_is_late_and_kept_beside_the_answer() {
    for ((mut scene, token), retention) in
        [(Scene::sealed(), UNKNOWN_RETENTION), (Scene::resolved(), RETENTION)]
    {
        let before = scene.completion().clone();
        scene.advance(retention - TICK);
        assert_eq!(scene.complete(token, "late"), CompleteAnswer::Late);
        assert_eq!(*scene.completion(), Completed { late: Some(outcome("late").into()), ..before.clone() });
        // One is kept, the first one; the answer stays what it was.
        for body in ["late", "later"] {
            assert_eq!(scene.complete(token, body), CompleteAnswer::Late);
            assert!(scene.kept);
        }
        let answer = scene.claim(THIRD, UnknownPolicy::Hold);
        assert!(matches!(answer, ClaimAnswer::Replay(replay) if replay.outcome == before.outcome));
        scene.advance(TICK);
        assert_eq!(scene.complete(token, "late"), CompleteAnswer::Fenced, "expired");
    }
}

#[test]
fn complete_late_can_be_made_the_answer_of_a_sealed_record_by_an_operator() {
    let (mut scene, token) = Scene::sealed();
    scene.complete(token, "late");
    scene.resolve(token.fence, executed("late"));
    let state = completed(START, CompletedBy::Resolve, outcome("late"));
    assert_eq!(*scene.record(), first_record(state));
    assert_eq!(scene.complete(token, "late"), CompleteAnswer::Already);
}

#[test]
fn complete_under_a_higher_stored_fence_is_fenced() {
    let (mut scene, token) = Scene::unknown();
    let again = scene.granted(SECOND, UnknownPolicy::Rerun);
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Fenced);
    assert!(scene.kept);
    assert_eq!(scene.complete(again, "done"), CompleteAnswer::Completed);
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Fenced, "not even the same outcome");
    assert!(scene.kept);
}

#[test]
fn complete_with_a_strange_token_is_fenced_in_every_state() {
    for (name, mut scene, token) in Scene::each() {
        let strangers = [
            Token { owner: SECOND, ..token },
            Token { fence: fence(token.fence.get() - 1), ..token },
            Token { fence: above(token, 1), ..token },
        ];
        for stranger in strangers {
            assert_eq!(scene.complete(stranger, "done"), CompleteAnswer::Fenced, "{name}");
            assert!(scene.kept, "{name}");
        }
    }
}

#[test]
fn complete_of_an_absent_record_is_fenced() {
    let (_, token) = Scene::in_flight();
    let mut scene = Scene::new();
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Fenced);
    assert_eq!(scene.stored, None);
}

#[test]
fn complete_of_a_released_record_is_fenced_for_its_last_owner() {
    let (released, token) = Scene::released();
    let (unknown, _) = Scene::unknown();
    let mut resolved = unknown.after(RUN_MAX);
    resolved.resolve(token.fence, NOT_EXECUTED);
    for mut scene in [released, resolved] {
        assert_eq!(scene.complete(token, "done"), CompleteAnswer::Fenced);
        assert!(scene.kept);
        assert!(matches!(scene.record().state, State::Released { .. }));
    }
}

#[test]
fn complete_again_after_an_erasure_is_already_done_whatever_it_says() {
    let (mut scene, token) = Scene::completed();
    scene.erase();
    for body in ["done", "another"] {
        assert_eq!(scene.complete(token, body), CompleteAnswer::Already);
        assert!(scene.kept, "the body does not come back");
    }
}

#[test]
fn complete_late_after_an_erasure_keeps_nothing() {
    for (mut scene, token) in [Scene::sealed(), Scene::resolved()] {
        scene.erase();
        let erased = scene.record().clone();
        assert_eq!(scene.complete(token, "late"), CompleteAnswer::Late);
        assert_eq!(*scene.record(), erased);
    }
}

#[test]
fn complete_keeps_the_steps_and_the_attempt() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    let before = scene.record().clone();
    scene.complete(token, "done");
    let state = completed(START, CompletedBy::Execution, outcome("done"));
    assert_eq!(*scene.record(), Record { state, ..before });
    assert_eq!((scene.record().owner, scene.record().attempt), (FIRST, 1));
}
