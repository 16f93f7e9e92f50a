//! `claim` of an UNKNOWN record, by policy; and the lease of whoever finds out.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::{CompletedBy, Recovery, State};
use onlyonce_core::transition::{Busy, Claim, ClaimAnswer, CompleteAnswer, RecoverGrant, Replay, Verdict};
use onlyonce_core::{Owner, Terms, UnknownPolicy};
use onlyonce_testkit::fixture::{HOLD_FOR, LEASE, RUN_MAX, TICK, UNKNOWN_RETENTION, outcome, terms};

use crate::scene::{
    FIRST, POLICIES, SECOND, START, Scene, THIRD, above, around, claim, completed, first_record, granted,
    held, unknown,
};

const SECONDS: Duration = Duration::from_secs(3);

fn rerun(owner: Owner, attempts_max: u32) -> Claim {
    let terms = Arc::new(Terms { attempts_max, ..terms(UnknownPolicy::Rerun) });
    Claim { terms, ..claim(owner, UnknownPolicy::Rerun) }
}

#[test]
fn claim_under_hold_is_held_and_changes_nothing() {
    let (scene, token) = Scene::unknown();
    for age in [Duration::ZERO, SECONDS, HOLD_FOR - TICK] {
        for owner in [FIRST, SECOND] {
            let mut scene = scene.after(age);
            assert_eq!(scene.claim(owner, UnknownPolicy::Hold), held(token, age));
            assert!(scene.kept);
        }
    }
}

#[test]
fn claim_under_hold_seals_once_it_was_held_for_long_enough() {
    let (abandoned, token) = Scene::unknown();
    let (in_flight, _) = Scene::in_flight();
    // Held since the abandonment, or since the end of the lease: not since somebody noticed.
    for (scene, since) in [(abandoned, Duration::ZERO), (in_flight, LEASE)] {
        for (age, over) in around(HOLD_FOR) {
            let mut scene = scene.after(since + age);
            let answer = scene.claim(SECOND, UnknownPolicy::Hold);
            if over {
                assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
                assert_eq!(scene.completion().by, CompletedBy::Seal);
                assert_eq!(scene.completion().at, scene.now);
            } else {
                assert_eq!(answer, held(token, age));
            }
        }
    }
}

#[test]
fn claim_under_hold_for_no_time_seals_at_once() {
    let (mut scene, _) = Scene::unknown();
    let terms = Arc::new(Terms { hold_for: Duration::ZERO, ..terms(UnknownPolicy::Hold) });
    let answer = scene.run(&Claim { terms, ..claim(SECOND, UnknownPolicy::Hold) });
    assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
}

#[test]
fn claim_under_hold_for_ever_never_seals() {
    let (scene, token) = Scene::unknown();
    let mut scene = scene.after(UNKNOWN_RETENTION - TICK);
    let terms = Arc::new(Terms { hold_for: Duration::MAX, ..terms(UnknownPolicy::Hold) });
    let answer = scene.run(&Claim { terms, ..claim(SECOND, UnknownPolicy::Hold) });
    assert_eq!(answer, held(token, UNKNOWN_RETENTION - TICK));
}

#[test]
fn claim_under_seal_completes_the_record_with_the_sealed_answer_and_replays_it() {
    let (abandoned, token) = Scene::unknown();
    let (in_flight, _) = Scene::in_flight();
    for (scene, age) in [(abandoned, SECONDS), (in_flight, LEASE)] {
        let mut scene = scene.after(age);
        // Sealing does not shorten how long the unknown outcome would have protected the key.
        let expires_at = if age == LEASE { scene.now + UNKNOWN_RETENTION } else { START + UNKNOWN_RETENTION };
        let replay = Replay {
            outcome: outcome("sealed"),
            by: CompletedBy::Seal,
            fence: token.fence,
            attempt: 1,
            age: Duration::ZERO,
            left: scene.now.until(expires_at),
        };
        assert_eq!(scene.claim(SECOND, UnknownPolicy::Seal), ClaimAnswer::Replay(replay.clone()));
        let mut state = completed(scene.now, CompletedBy::Seal, outcome("sealed"));
        if let State::Completed(completed) = &mut state {
            completed.expires_at = expires_at;
        }
        assert_eq!(*scene.record(), first_record(state));
        for policy in POLICIES {
            assert_eq!(scene.claim(THIRD, policy), ClaimAnswer::Replay(replay.clone()));
            assert!(scene.kept);
        }
    }
}

#[test]
fn claim_under_rerun_is_granted_with_the_next_fence_while_attempts_are_left() {
    for attempts_max in [0, 1, 2, 3, u32::MAX] {
        let mut scene = Scene::new();
        let mut grants = 0;
        for owner in (1..=5).map(|number| Owner::from_bytes([number; 16])) {
            match scene.run(&rerun(owner, attempts_max)) {
                ClaimAnswer::Granted(grant) => {
                    grants += 1;
                    assert_eq!(grant.attempt, grants);
                    assert_eq!(grant.fence.get(), 6 + u64::from(grants));
                }
                other => assert!(matches!(other, ClaimAnswer::Held(_)), "{other:?}"),
            }
            scene.advance(LEASE);
        }
        // The first grant is that of an absent record: no policy is asked.
        assert_eq!(grants, attempts_max.clamp(1, 5), "attempts_max {attempts_max}");
    }
}

#[test]
fn claim_under_rerun_counts_the_attempts_that_were_released_too() {
    let (mut scene, _) = Scene::released();
    let token = scene.granted(SECOND, UnknownPolicy::Rerun);
    scene.abandon(token);
    assert_eq!(scene.run(&rerun(THIRD, 2)), held(token, Duration::ZERO));
    assert_eq!(scene.run(&rerun(THIRD, 3)), granted(above(token, 1), 3));
}

#[test]
fn claim_under_rerun_keeps_the_steps_and_the_birthday_of_the_record() {
    let (mut scene, token) = Scene::in_flight();
    scene.step(token, "charge", "ch_1");
    let steps = scene.record().steps.clone();
    scene.advance(LEASE);
    let answer = scene.claim(SECOND, UnknownPolicy::Rerun);
    assert!(matches!(answer, ClaimAnswer::Granted(grant) if grant.steps == steps));
    assert_eq!(scene.record().steps, steps);
    assert_eq!((scene.record().created_at, scene.record().granted_at), (START, START + LEASE));
}

#[test]
fn claim_under_rerun_without_attempts_left_seals_like_hold() {
    let (scene, token) = Scene::unknown();
    for (age, over) in around(HOLD_FOR) {
        let mut scene = scene.after(age);
        let answer = scene.run(&rerun(SECOND, 1));
        if over {
            assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
            assert_eq!(scene.completion().by, CompletedBy::Seal);
        } else {
            assert_eq!(answer, held(token, age));
        }
    }
}

#[test]
fn claim_under_rerun_by_the_owner_that_lost_the_record_is_fenced() {
    let (mut scene, _) = Scene::unknown();
    assert_eq!(scene.claim(FIRST, UnknownPolicy::Rerun), ClaimAnswer::Fenced);
    assert!(scene.kept);
}

#[test]
fn claim_under_query_gets_a_lease_to_find_out_on_the_same_fence() {
    let (abandoned, token) = Scene::unknown();
    let (in_flight, _) = Scene::in_flight();
    for (scene, since, age) in [(abandoned, START, SECONDS), (in_flight, START + LEASE, LEASE)] {
        let mut scene = scene.after(age);
        let noticed = if since == START { since } else { scene.now };
        let quiet_in = RUN_MAX - age;
        let grant = RecoverGrant { fence: token.fence, attempt: 1, quiet_in, steps: Vec::new() };
        assert_eq!(scene.claim(SECOND, UnknownPolicy::Query), ClaimAnswer::Recover(grant));
        let recovery = Some(Recovery { owner: SECOND, lease_until: scene.now + LEASE });
        let state = State::Unknown { since, expires_at: noticed + UNKNOWN_RETENTION, recovery };
        assert_eq!(*scene.record(), first_record(state));
    }
}

#[test]
fn claim_under_query_says_how_long_the_lost_attempt_may_still_run() {
    let (scene, _) = Scene::unknown();
    for (age, left) in [(RUN_MAX - TICK, TICK), (RUN_MAX, Duration::ZERO), (RUN_MAX + TICK, Duration::ZERO)] {
        let answer = scene.after(age).claim(SECOND, UnknownPolicy::Query);
        assert!(matches!(&answer, ClaimAnswer::Recover(grant) if grant.quiet_in == left), "{answer:?}");
    }
}

#[test]
fn claim_during_a_recovery_is_busy_under_every_policy() {
    let (scene, _) = Scene::recovering();
    for policy in POLICIES {
        for owner in [FIRST, THIRD] {
            for left in [LEASE, TICK] {
                let mut scene = scene.after(LEASE - left);
                assert_eq!(scene.claim(owner, policy), ClaimAnswer::Busy(Busy { left }));
                assert!(scene.kept);
            }
        }
    }
}

#[test]
fn claim_during_its_own_recovery_is_the_same_recovery() {
    let (scene, token) = Scene::recovering();
    for policy in POLICIES {
        let mut scene = scene.after(LEASE - TICK);
        let quiet_in = RUN_MAX + TICK - LEASE;
        let grant = RecoverGrant { fence: token.fence, attempt: 1, quiet_in, steps: Vec::new() };
        assert_eq!(scene.claim(SECOND, policy), ClaimAnswer::Recover(grant));
        assert!(scene.kept, "a repeated claim extends no lease");
    }
}

#[test]
fn claim_after_a_recovery_lapsed_goes_by_its_own_policy() {
    let (scene, token) = Scene::recovering();
    for (age, passed) in around(LEASE) {
        for policy in POLICIES {
            let mut scene = scene.after(age);
            let answer = scene.claim(THIRD, policy);
            let expected = match (passed, policy) {
                (false, _) => matches!(answer, ClaimAnswer::Busy(Busy { left }) if left == TICK),
                (true, UnknownPolicy::Hold) => answer == held(token, age),
                (true, UnknownPolicy::Seal) => matches!(&answer, ClaimAnswer::Replay(_)),
                (true, UnknownPolicy::Query) => matches!(&answer, ClaimAnswer::Recover(_)),
                (true, UnknownPolicy::Rerun) => answer == granted(above(token, 1), 2),
            };
            assert!(expected, "{policy:?} at {age:?}: {answer:?}");
            if passed && policy == UnknownPolicy::Query {
                let recovery = Recovery { owner: THIRD, lease_until: scene.now + LEASE };
                assert_eq!(scene.record().state, unknown(START, Some(recovery)));
            }
        }
    }
}

#[test]
fn claim_under_query_does_not_fence_the_true_owner() {
    let (mut scene, token) = Scene::recovering();
    assert_eq!(scene.complete(token, "done"), CompleteAnswer::Completed);
    let state = completed(START, CompletedBy::Execution, outcome("done"));
    assert_eq!(*scene.record(), first_record(state));
}

#[test]
fn claim_under_query_may_be_repeated_at_once_after_nothing_was_found_out() {
    let (mut scene, token) = Scene::recovering();
    scene.resolve(token.fence, Verdict::StillUnknown);
    let answer = scene.claim(THIRD, UnknownPolicy::Query);
    assert!(matches!(answer, ClaimAnswer::Recover(_)), "{answer:?}");
}
