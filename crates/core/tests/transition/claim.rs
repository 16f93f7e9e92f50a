//! `claim`: every row but UNKNOWN, and the order in which its guards are tried.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::{CompletedBy, State, Step, StepName};
use onlyonce_core::transition::{Busy, Claim, ClaimAnswer, Grant, Replay};
use onlyonce_core::{Fingerprint, Record, Rules, StateKind, Terms, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION, outcome, terms};

use crate::scene::{
    FIRST, FIRST_FENCE, NOT_EXECUTED, POLICIES, SECOND, START, Scene, THIRD, above, around, claim, fence,
    fingerprint, first_record, granted, held, other_fingerprint, unknown,
};

const SECONDS: Duration = Duration::from_secs(3);

#[test]
fn claim_of_an_absent_record_is_granted_with_attempt_one() {
    for policy in POLICIES {
        let mut scene = Scene::new();
        assert_eq!(scene.claim(FIRST, policy), granted(fence(FIRST_FENCE), 1));
        assert_eq!(*scene.record(), first_record(State::InFlight { lease_until: START + LEASE }));
    }
}

#[test]
fn claim_takes_the_larger_of_the_offered_fence_and_one_more_than_the_stored() {
    for (offered, expected) in [(0, 1), (1, 1), (7, 7)] {
        let mut scene = Scene { next_fence: fence(offered), ..Scene::new() };
        assert_eq!(scene.granted(FIRST, UnknownPolicy::Hold).fence, fence(expected));
    }
    for (offered, expected) in [(0, 8), (7, 8), (8, 8), (9, 9), (1 << 52, 1 << 52)] {
        let (mut released, _) = Scene::released();
        released.next_fence = fence(offered);
        assert_eq!(released.granted(SECOND, UnknownPolicy::Hold).fence, fence(expected));
        // An expired record reads as ABSENT, but its fence still counts.
        let mut expired = Scene::completed().0.after(RETENTION);
        expired.next_fence = fence(offered);
        assert_eq!(expired.claim(SECOND, UnknownPolicy::Hold), granted(fence(expected), 1));
    }
}

#[test]
fn claim_leases_no_longer_than_the_run_may_last() {
    let lasting = |run_max| {
        let terms = Arc::new(Terms { run_max, ..terms(UnknownPolicy::Hold) });
        let mut scene = Scene::new();
        scene.run(&Claim { terms, ..claim(FIRST, UnknownPolicy::Hold) });
        (scene.record().run_until, scene.record().state.clone())
    };
    for (run_max, lease_until) in [(LEASE - TICK, LEASE - TICK), (LEASE, LEASE), (LEASE + TICK, LEASE)] {
        let state = State::InFlight { lease_until: START + lease_until };
        assert_eq!(lasting(run_max), (START + run_max, state));
    }
}

#[test]
fn claim_in_flight_by_the_same_owner_is_the_same_grant() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    let steps = vec![Step { name: StepName::new("charge").unwrap(), value: Some("ch_1".into()) }];
    scene.next_fence = fence(99);
    for policy in POLICIES {
        for age in [Duration::ZERO, LEASE - TICK] {
            let mut again = scene.after(age);
            let grant = Grant { fence: token.fence, attempt: 1, steps: steps.clone() };
            assert_eq!(again.claim(FIRST, policy), ClaimAnswer::Granted(grant));
            assert!(again.kept, "a repeated claim extends no lease");
        }
    }
}

#[test]
fn claim_in_flight_by_another_owner_is_busy_for_what_is_left_of_the_lease() {
    let (scene, _) = Scene::in_flight();
    for policy in POLICIES {
        for left in [LEASE, SECONDS, TICK] {
            let mut scene = scene.after(LEASE - left);
            assert_eq!(scene.claim(SECOND, policy), ClaimAnswer::Busy(Busy { left }));
            assert!(scene.kept);
        }
    }
}

#[test]
fn claim_in_flight_past_its_lease_makes_it_unknown_in_the_same_step() {
    let (scene, token) = Scene::in_flight();
    for (age, passed) in around(LEASE) {
        let mut scene = scene.after(age);
        let answer = scene.claim(SECOND, UnknownPolicy::Hold);
        if passed {
            assert_eq!(answer, held(token, age - LEASE));
            let since = START + LEASE;
            let expires_at = scene.now + UNKNOWN_RETENTION;
            let state = State::Unknown { since, expires_at, recovery: None };
            assert_eq!(*scene.record(), first_record(state));
        } else {
            assert_eq!(answer, ClaimAnswer::Busy(Busy { left: TICK }));
        }
    }
}

#[test]
fn claim_of_a_completed_record_replays_its_outcome() {
    let (mut scene, token) = Scene::in_flight();
    scene.advance(SECONDS);
    scene.complete(token, "done");
    for (policy, owner) in POLICIES.into_iter().zip([FIRST, SECOND].into_iter().cycle()) {
        for age in [Duration::ZERO, SECONDS, RETENTION - TICK] {
            let mut scene = scene.after(age);
            let replay = Replay {
                outcome: outcome("done"),
                by: CompletedBy::Execution,
                fence: token.fence,
                attempt: 1,
                age,
                left: RETENTION - age,
            };
            assert_eq!(scene.claim(owner, policy), ClaimAnswer::Replay(replay));
            assert!(scene.kept);
        }
    }
}

#[test]
fn claim_of_a_released_record_is_granted_with_the_next_fence_and_attempt() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    scene.release(token, true);
    for policy in POLICIES {
        let mut scene = scene.after(SECONDS);
        let steps = scene.record().steps.clone();
        let again = scene.granted(SECOND, policy);
        assert_eq!(again.fence, above(token, 1));
        let now = START + SECONDS;
        let expected = Record {
            fence: again.fence,
            attempt: 2,
            owner: SECOND,
            granted_at: now,
            run_until: now + RUN_MAX,
            steps,
            ..first_record(State::InFlight { lease_until: now + LEASE })
        };
        assert_eq!(*scene.record(), expected);
    }
}

#[test]
fn claim_of_a_released_record_by_its_last_owner_is_fenced() {
    for policy in POLICIES {
        let (mut scene, _) = Scene::released();
        assert_eq!(scene.claim(FIRST, policy), ClaimAnswer::Fenced);
        assert!(scene.kept);
    }
}

#[test]
fn claim_of_a_record_that_forgot_its_fingerprint_is_another_request() {
    for other in [false, true] {
        let (mut scene, token) = Scene::in_flight();
        scene.step(token, "charge", "ch_1");
        scene.release(token, false);
        let policy = UnknownPolicy::Hold;
        let answer = if other { scene.claim_other(SECOND, policy) } else { scene.claim(SECOND, policy) };
        // What the refused request recorded is not read back by the corrected one.
        assert_eq!(answer, granted(above(token, 1), 2));
        let expected = if other { other_fingerprint() } else { fingerprint() };
        assert_eq!(scene.record().fingerprint, Some(expected));
        assert_eq!(scene.record().steps, []);
    }
}

#[test]
fn claim_with_another_fingerprint_is_a_mismatch_in_every_state() {
    for (name, scene, _) in Scene::each() {
        for policy in POLICIES {
            for owner in [FIRST, SECOND, THIRD] {
                let mut scene = scene.clone();
                let mismatch = ClaimAnswer::Mismatch { rules: None };
                assert_eq!(scene.claim_other(owner, policy), mismatch, "{name}");
                assert!(scene.kept, "{name}");
            }
        }
    }
}

#[test]
fn claim_by_other_rules_is_a_mismatch_that_names_the_stored_rules() {
    let (mut scene, _) = Scene::in_flight();
    let rules = Rules::new("body=json").unwrap();
    // The same digest under other rules says nothing about the request.
    let fingerprint = Fingerprint::from_parts(rules, *fingerprint().digest());
    let answer = scene.run(&Claim { fingerprint, ..claim(SECOND, UnknownPolicy::Hold) });
    assert_eq!(answer, ClaimAnswer::Mismatch { rules: Some(Rules::standard()) });
    assert!(scene.kept);
}

#[test]
fn claim_of_an_expired_record_starts_over_to_the_millisecond() {
    let cases = [
        (Scene::completed(), RETENTION),
        (Scene::sealed(), UNKNOWN_RETENTION),
        (Scene::resolved(), RETENTION),
        (Scene::released(), RETENTION),
        (Scene::unknown(), UNKNOWN_RETENTION),
        (Scene::recovering(), UNKNOWN_RETENTION),
    ];
    for ((scene, token), retention) in cases {
        for (age, expired) in around(retention) {
            let mut scene = scene.after(age);
            let kind = scene.record().kind();
            let answer = scene.claim(THIRD, UnknownPolicy::Hold);
            let over = granted(above(token, 1), 1);
            assert_eq!(answer == over, expired, "{kind} at {age:?}: {answer:?}");
            if expired {
                assert_eq!((scene.record().created_at, scene.record().attempt), (START + age, 1));
            }
        }
    }
}

#[test]
fn claim_order_expiry_is_judged_before_the_fingerprint() {
    for (scene, token) in [Scene::completed(), Scene::released(), Scene::unknown()] {
        let mut scene = Scene { now: scene.expires_at(), ..scene };
        assert_eq!(scene.claim_other(SECOND, UnknownPolicy::Hold), granted(above(token, 1), 1));
        assert_eq!(scene.record().fingerprint, Some(other_fingerprint()));
    }
}

#[test]
fn claim_order_the_fingerprint_is_judged_before_a_passed_lease() {
    for policy in POLICIES {
        let mut scene = Scene::in_flight().0.after(LEASE);
        assert_eq!(scene.claim_other(SECOND, policy), ClaimAnswer::Mismatch { rules: None });
        assert_eq!(scene.record().kind(), StateKind::InFlight, "not even that the lease passed is disclosed");
    }
}

#[test]
fn claim_order_the_fingerprint_is_judged_before_the_owner() {
    let (mut scene, _) = Scene::in_flight();
    let answer = scene.claim_other(FIRST, UnknownPolicy::Hold);
    assert_eq!(answer, ClaimAnswer::Mismatch { rules: None });
}

#[test]
fn claim_order_a_passed_lease_is_judged_before_the_owner() {
    let (scene, token) = Scene::in_flight();
    let scene = scene.after(LEASE);
    let answer = |policy| {
        let mut scene = scene.clone();
        let answer = scene.claim(FIRST, policy);
        (answer, scene.record().kind())
    };
    assert_eq!(answer(UnknownPolicy::Hold), (held(token, Duration::ZERO), StateKind::Unknown));
    assert!(matches!(answer(UnknownPolicy::Seal), (ClaimAnswer::Replay(_), StateKind::Completed)));
    assert!(matches!(answer(UnknownPolicy::Query), (ClaimAnswer::Recover(_), StateKind::Unknown)));
    // An owner is for one attempt: it cannot be the one that runs again.
    assert_eq!(answer(UnknownPolicy::Rerun), (ClaimAnswer::Fenced, StateKind::Unknown));
}

#[test]
fn claim_after_a_resolution_of_not_executed_is_granted() {
    for (mut scene, token) in [Scene::unknown(), Scene::sealed(), Scene::recovering()] {
        scene.advance(RUN_MAX);
        scene.resolve(token.fence, NOT_EXECUTED);
        assert_eq!(scene.claim(THIRD, UnknownPolicy::Hold), granted(above(token, 1), 2));
    }
}

#[test]
fn claim_finds_a_record_unknown_although_it_lapsed_long_ago() {
    // Nobody came by for longer than unknown records are kept: whoever must find out still gets the whole time.
    let (scene, token) = Scene::in_flight();
    let mut scene = scene.after(UNKNOWN_RETENTION * 10);
    let answer = scene.claim(SECOND, UnknownPolicy::Query);
    assert!(matches!(answer, ClaimAnswer::Recover(_)), "{answer:?}");
    assert_eq!(scene.record().fence, token.fence);
    assert_eq!(scene.expires_at(), scene.now + UNKNOWN_RETENTION);
    let (abandoned, _) = Scene::unknown();
    assert_eq!(abandoned.record().state, unknown(START, None));
}
