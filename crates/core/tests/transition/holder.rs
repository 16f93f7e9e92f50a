//! `renew`, `release`, `abandon` and `record_step`: what the owner of a grant does before it reports an outcome.

use std::time::Duration;

use onlyonce_core::record::{STEPS_BYTES_MAX, STEPS_MAX, State, Step, StepName};
use onlyonce_core::transition::{AbandonAnswer, ReleaseAnswer, Renew, RenewAnswer, StepAnswer, Token};
use onlyonce_core::{Lease, Record, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION};

use crate::scene::{FIRST, SECOND, START, Scene, above, around, fence, first_record, unknown};

const SECONDS: Duration = Duration::from_secs(3);

/// Tokens that are not `token`: of another owner, of an earlier grant, of a later one.
fn strangers(token: Token) -> [Token; 3] {
    let earlier = fence(token.fence.get() - 1);
    [
        Token { owner: SECOND, ..token },
        Token { fence: earlier, ..token },
        Token { fence: above(token, 1), ..token },
    ]
}

/// Every scene but IN FLIGHT with a valid lease, each with the token of its last grant; and ABSENT.
fn not_live() -> Vec<(&'static str, Scene, Token)> {
    let mut scenes = Scene::each();
    scenes.retain(|(name, ..)| *name != "in flight");
    let token = Token { fence: fence(7), ..scenes[0].2 };
    scenes.push(("absent", Scene::new(), token));
    scenes
}

#[test]
fn renew_extends_the_lease_from_now() {
    let (scene, token) = Scene::in_flight();
    for age in [Duration::ZERO, SECONDS, LEASE - TICK] {
        let mut scene = scene.after(age);
        assert_eq!(scene.renew(token), RenewAnswer::Renewed(LEASE));
        assert_eq!(*scene.record(), first_record(State::InFlight { lease_until: scene.now + LEASE }));
    }
}

#[test]
fn renew_at_the_end_of_the_lease_is_fenced() {
    let (scene, token) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        let mut scene = scene.after(age);
        assert_eq!(scene.renew(token) == RenewAnswer::Fenced, passed, "at {age:?}");
        assert_eq!(scene.kept, passed, "at {age:?}");
    }
}

#[test]
fn renew_goes_no_further_than_the_run_may_last() {
    let (mut scene, token) = Scene::in_flight();
    while START.until(scene.now) < RUN_MAX - LEASE {
        assert_eq!(scene.renew(token), RenewAnswer::Renewed(LEASE));
        scene.advance(LEASE - TICK);
    }
    let left = scene.now.until(START + RUN_MAX);
    assert!(left < LEASE);
    assert_eq!(scene.renew(token), RenewAnswer::Renewed(left));
    assert_eq!(scene.record().state, State::InFlight { lease_until: START + RUN_MAX });
    for (age, over) in around(left) {
        let mut scene = scene.after(age);
        let expected = if over { RenewAnswer::Fenced } else { RenewAnswer::Renewed(TICK) };
        assert_eq!(scene.renew(token), expected, "at {age:?}");
    }
}

#[test]
fn renew_takes_the_length_it_asks_for() {
    let (mut scene, token) = Scene::in_flight();
    let lease = Lease::new(LEASE * 3).unwrap();
    assert_eq!(scene.run(&Renew { token, lease }), RenewAnswer::Renewed(LEASE * 3));
    assert_eq!(scene.record().state, State::InFlight { lease_until: START + LEASE * 3 });
}

#[test]
fn renew_with_a_strange_token_is_fenced() {
    let (mut scene, token) = Scene::in_flight();
    for stranger in strangers(token) {
        assert_eq!(scene.renew(stranger), RenewAnswer::Fenced);
        assert!(scene.kept);
    }
}

#[test]
fn renew_is_fenced_unless_in_flight() {
    for (name, mut scene, token) in not_live() {
        assert_eq!(scene.renew(token), RenewAnswer::Fenced, "{name}");
        assert!(scene.kept, "{name}");
    }
}

#[test]
fn release_keeps_fence_and_attempt_and_the_fingerprint_if_told_so() {
    for keep_fingerprint in [false, true] {
        let (mut scene, token) = Scene::in_flight();
        scene.advance(SECONDS);
        assert_eq!(scene.release(token, keep_fingerprint), ReleaseAnswer::Released);
        let released = first_record(State::Released { expires_at: scene.now + RETENTION });
        let fingerprint = released.fingerprint.clone().filter(|_| keep_fingerprint);
        assert_eq!(*scene.record(), Record { fingerprint, ..released });
    }
}

#[test]
fn release_at_the_end_of_the_lease_is_fenced() {
    let (scene, token) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        let mut scene = scene.after(age);
        assert_eq!(scene.release(token, true) == ReleaseAnswer::Fenced, passed, "at {age:?}");
        assert_eq!(scene.kept, passed, "at {age:?}");
    }
}

#[test]
fn release_with_a_strange_token_is_fenced() {
    let (mut scene, token) = Scene::in_flight();
    for stranger in strangers(token) {
        assert_eq!(scene.release(stranger, true), ReleaseAnswer::Fenced);
        assert!(scene.kept);
    }
}

#[test]
fn release_is_fenced_unless_in_flight() {
    for (name, mut scene, token) in not_live() {
        assert_eq!(scene.release(token, false), ReleaseAnswer::Fenced, "{name}");
        assert!(scene.kept, "{name}");
    }
}

#[test]
fn abandon_makes_the_record_unknown_from_now() {
    let (mut scene, token) = Scene::in_flight();
    scene.advance(SECONDS);
    assert_eq!(scene.abandon(token), AbandonAnswer::Abandoned);
    assert_eq!(*scene.record(), first_record(unknown(START + SECONDS, None)));
}

#[test]
fn abandon_past_the_lease_makes_the_record_unknown_from_the_end_of_the_lease() {
    let (scene, token) = Scene::in_flight();
    for (age, _) in around(LEASE) {
        let mut scene = scene.after(age);
        assert_eq!(scene.abandon(token), AbandonAnswer::Abandoned);
        let expires_at = scene.now + UNKNOWN_RETENTION;
        let since = START + age.min(LEASE);
        assert_eq!(scene.record().state, State::Unknown { since, expires_at, recovery: None });
    }
}

#[test]
fn abandon_of_an_unknown_record_changes_nothing() {
    for (mut scene, token) in [Scene::unknown(), Scene::recovering()] {
        assert_eq!(scene.abandon(token), AbandonAnswer::Abandoned);
        assert!(scene.kept, "not even the recovery");
        for (age, expired) in around(UNKNOWN_RETENTION) {
            let mut scene = scene.after(age);
            assert_eq!(scene.abandon(token) == AbandonAnswer::Fenced, expired, "at {age:?}");
            assert!(scene.kept);
        }
    }
}

#[test]
fn abandon_with_a_strange_token_is_fenced() {
    let (mut scene, token) = Scene::in_flight();
    for stranger in strangers(token) {
        assert_eq!(scene.abandon(stranger), AbandonAnswer::Fenced);
        assert!(scene.kept);
    }
}

#[test]
fn abandon_of_an_ended_record_is_fenced() {
    for (name, mut scene, token) in not_live() {
        if !["lapsed", "unknown", "recovering"].contains(&name) {
            assert_eq!(scene.abandon(token), AbandonAnswer::Fenced, "{name}");
            assert!(scene.kept, "{name}");
        }
    }
}

#[test]
fn record_step_stores_a_value_once() {
    let (mut scene, token) = Scene::in_flight();
    assert_eq!(scene.step(token, "charge", "ch_1"), StepAnswer::Recorded);
    assert_eq!(scene.step(token, "mail", ""), StepAnswer::Recorded);
    for again in ["ch_1", "ch_2"] {
        assert_eq!(scene.step(token, "charge", again), StepAnswer::Already("ch_1".into()));
        assert!(scene.kept);
    }
    assert_eq!(scene.step(token, "mail", "sent"), StepAnswer::Already("".into()));
    let step =
        |name, value: &'static str| Step { name: StepName::new(name).unwrap(), value: Some(value.into()) };
    let in_flight = first_record(State::InFlight { lease_until: START + LEASE });
    assert_eq!(
        *scene.record(),
        Record { steps: vec![step("charge", "ch_1"), step("mail", "")], ..in_flight }
    );
}

#[test]
fn record_step_reads_back_what_an_earlier_attempt_recorded() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    scene.abandon(token);
    let again = scene.granted(SECOND, UnknownPolicy::Rerun);
    assert_eq!(scene.step(again, "charge", "ch_2"), StepAnswer::Already("ch_1".into()));
    assert_eq!(scene.step(token, "charge", "ch_2"), StepAnswer::Fenced);
}

#[test]
fn record_step_does_not_bring_an_erased_value_back() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    scene.abandon(token);
    scene.erase();
    let again = scene.granted(SECOND, UnknownPolicy::Rerun);
    assert_eq!(scene.step(again, "charge", "ch_1"), StepAnswer::Erased);
    assert!(scene.kept);
}

#[test]
fn record_step_keeps_no_more_than_the_most_steps() {
    let (mut scene, token) = Scene::in_flight();
    for at in 0..STEPS_MAX {
        assert_eq!(scene.step(token, &format!("step {at}"), ""), StepAnswer::Recorded);
    }
    assert_eq!(scene.step(token, "one more", ""), StepAnswer::Full);
    assert!(scene.kept);
    assert_eq!(
        scene.step(token, "step 0", "x"),
        StepAnswer::Already("".into()),
        "what is kept is still read"
    );
}

#[test]
fn record_step_keeps_no_more_than_the_most_bytes() {
    let (mut scene, token) = Scene::in_flight();
    assert_eq!(scene.step(token, "too much", vec![0; STEPS_BYTES_MAX + 1]), StepAnswer::Full);
    assert_eq!(scene.step(token, "all but one", vec![0; STEPS_BYTES_MAX - 1]), StepAnswer::Recorded);
    assert_eq!(scene.step(token, "two", "xx"), StepAnswer::Full);
    assert!(scene.kept);
    assert_eq!(scene.step(token, "one", "x"), StepAnswer::Recorded);
    assert_eq!(scene.step(token, "none", ""), StepAnswer::Recorded);
    assert_eq!(scene.step(token, "one more", "x"), StepAnswer::Full);
}

#[test]
fn record_step_at_the_end_of_the_lease_is_fenced() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    for (age, passed) in around(LEASE) {
        let mut scene = scene.after(age);
        let expected = if passed { StepAnswer::Fenced } else { StepAnswer::Recorded };
        assert_eq!(scene.step(token, "mail", "sent"), expected, "at {age:?}");
        let expected = if passed { StepAnswer::Fenced } else { StepAnswer::Already("ch_1".into()) };
        assert_eq!(scene.step(token, "charge", "ch_1"), expected, "at {age:?}");
    }
}

#[test]
fn record_step_with_a_strange_token_is_fenced() {
    let (mut scene, token) = Scene::in_flight();
    for stranger in strangers(token) {
        assert_eq!(scene.step(stranger, "charge", "ch_1"), StepAnswer::Fenced);
        assert!(scene.kept);
    }
}

#[test]
fn record_step_is_fenced_unless_in_flight() {
    for (name, mut scene, token) in not_live() {
        assert_eq!(scene.step(token, "charge", "ch_1"), StepAnswer::Fenced, "{name}");
        assert!(scene.kept, "{name}");
    }
}

#[test]
fn an_owner_that_was_overtaken_can_do_nothing() {
    let (mut scene, token) = Scene::unknown();
    let again = scene.granted(SECOND, UnknownPolicy::Rerun);
    assert_eq!((token.owner, again.owner), (FIRST, SECOND));
    assert_eq!(scene.renew(token), RenewAnswer::Fenced);
    assert_eq!(scene.release(token, true), ReleaseAnswer::Fenced);
    assert_eq!(scene.abandon(token), AbandonAnswer::Fenced);
    assert_eq!(scene.step(token, "charge", "ch_1"), StepAnswer::Fenced);
    assert_eq!(scene.renew(again), RenewAnswer::Renewed(LEASE));
}
