//! Clauses 8 and 9: mismatches, and what each policy does when nobody knows.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use onlyonce_core::Secret;
use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::record::{CompletedBy, State, StateKind};
use onlyonce_core::transition::{
    Actor, Busy, ClaimAnswer, CompleteAnswer, Grant, ReleaseAnswer, Resolve, ResolveAnswer, UnknownPolicy,
    Verdict,
};

use crate::fixture::{Fixture, HOLD_FOR, LEASE, RETENTION, RUN_MAX, Scene, TICK, fingerprint, outcome};

const MISMATCH: ClaimAnswer = ClaimAnswer::Mismatch { rules: None };

async fn other_request<F: Fixture>(scene: &Scene<'_, F>, policy: UnknownPolicy) -> ClaimAnswer {
    let mut claim = scene.claim_of(scene.owner(), policy);
    claim.fingerprint = fingerprint(b"another body");
    scene.send(&claim).await
}

pub async fn c8_another_fingerprint_is_refused_in_every_state<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    assert_eq!(other_request(&scene, UnknownPolicy::Rerun).await, MISMATCH, "in flight");
    scene.advance(LEASE).await;
    for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun] {
        assert_eq!(other_request(&scene, policy).await, MISMATCH, "lapsed, {policy:?}");
    }
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)), "a mismatch changed the record");
    assert_eq!(other_request(&scene, UnknownPolicy::Seal).await, MISMATCH, "unknown");
    scene.complete(token, "done").await;
    assert_eq!(other_request(&scene, UnknownPolicy::Hold).await, MISMATCH, "completed");
    scene.advance(RETENTION).await;
    assert!(matches!(other_request(&scene, UnknownPolicy::Hold).await, ClaimAnswer::Granted(_)), "expired");

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.release(token).await;
    assert_eq!(other_request(&scene, UnknownPolicy::Hold).await, MISMATCH, "released");
}

pub async fn c8_a_mismatch_names_the_stored_rules_only_when_they_differ<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let rules = Rules::new("body=json;exclude=/sent_at").unwrap();
    let mut first = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    first.fingerprint =
        Fingerprint::builder(&Secret::new([1; 32]), rules.clone()).field("body", b"x").finish();
    assert!(matches!(scene.send(&first).await, ClaimAnswer::Granted(_)));
    assert_eq!(scene.claim().await, ClaimAnswer::Mismatch { rules: Some(rules) });
    let mut again = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    again.fingerprint = first.fingerprint;
    assert!(matches!(scene.send(&again).await, ClaimAnswer::Busy(_)));
}

pub async fn c9_hold_refuses_and_seals_after_hold_for<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE).await;
    match scene.claim().await {
        ClaimAnswer::Held(held) => assert_eq!(held.fence, token.fence),
        other => panic!("expected to be held, got {other:?}"),
    }
    scene.advance(HOLD_FOR - TICK).await;
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
    scene.advance(TICK).await;
    scene.expect_replay("sealed").await;
    scene.advance(RETENTION - TICK).await;
    scene.expect_replay("sealed").await;
}

pub async fn c9_seal_answers_the_sealed_outcome<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    scene.granted().await;
    scene.advance(LEASE).await;
    match scene.claim_under(UnknownPolicy::Seal).await {
        ClaimAnswer::Replay(replay) => {
            assert_eq!((replay.by, replay.outcome), (CompletedBy::Seal, outcome("sealed")));
        }
        other => panic!("expected the seal, got {other:?}"),
    }
    assert!(matches!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Replay(_)));
}

pub async fn c9_rerun_grants_up_to_attempts_max<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    scene.granted_under(UnknownPolicy::Rerun).await;
    scene.advance(LEASE).await;
    let second = scene.claim_under(UnknownPolicy::Rerun).await;
    assert!(matches!(second, ClaimAnswer::Granted(Grant { attempt: 2, .. })), "got {second:?}");
    scene.advance(LEASE).await;
    assert!(matches!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Held(_)));
}

pub async fn c9_query_gives_one_recovery_at_a_time<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE).await;
    let claim = scene.claim_of(scene.owner(), UnknownPolicy::Query);
    let recover = scene.send(&claim).await;
    match &recover {
        ClaimAnswer::Recover(grant) => {
            assert_eq!((grant.fence, grant.attempt), (token.fence, 1));
            assert_eq!(grant.quiet_in, RUN_MAX - LEASE);
        }
        other => panic!("expected a recovery, got {other:?}"),
    }
    assert_eq!(scene.send(&claim).await, recover, "repeating the claim gets the same recovery");
    for policy in [UnknownPolicy::Query, UnknownPolicy::Rerun, UnknownPolicy::Seal, UnknownPolicy::Hold] {
        assert_eq!(scene.claim_under(policy).await, ClaimAnswer::Busy(Busy { left: LEASE }), "{policy:?}");
    }
    let still =
        Resolve { id: scene.id, fence: token.fence, verdict: Verdict::StillUnknown, actor: Actor::Hook };
    assert_eq!(scene.store().resolve(&still).await.unwrap(), ResolveAnswer::Resolved);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
    assert!(matches!(scene.claim_under(UnknownPolicy::Query).await, ClaimAnswer::Recover(_)));
    scene.advance(LEASE).await;
    assert!(
        matches!(scene.claim_under(UnknownPolicy::Query).await, ClaimAnswer::Recover(_)),
        "the recoverer died"
    );
    assert_eq!(scene.complete(token, "true owner").await, CompleteAnswer::Completed, "it was not fenced");
    assert_eq!(
        scene.store().resolve(&still).await.unwrap(),
        ResolveAnswer::NotUnknown(StateKind::Completed),
        "the recovery came second",
    );
}

pub async fn c9_a_late_completion_by_the_same_fence_is_welcome<F: Fixture>(fixture: &F) {
    for claimed_meanwhile in [false, true] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        scene.advance(LEASE * 3).await;
        if claimed_meanwhile {
            assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
        }
        assert_eq!(scene.complete(token, "late").await, CompleteAnswer::Completed);
        scene.expect_replay("late").await;
    }
}

pub async fn c9_a_late_completion_of_a_sealed_record_is_kept_aside<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE).await;
    scene.claim_under(UnknownPolicy::Seal).await;
    assert_eq!(scene.complete(token, "truth").await, CompleteAnswer::Late);
    assert_eq!(scene.complete(token, "truth").await, CompleteAnswer::Late);
    scene.expect_replay("sealed").await;
    match scene.lookup().await.unwrap().state {
        State::Completed(completed) => assert_eq!(completed.late, Some(outcome("truth").into())),
        other => panic!("expected a completed record, got {other:?}"),
    }
}

pub async fn c9_an_abandoned_record_is_unknown<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.abandon(token).await;
    assert_eq!(scene.lookup().await.unwrap().kind(), StateKind::Unknown);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)), "abandoned is not released");
    assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
    scene.abandon(token).await;
    assert!(matches!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Granted(_)));
}
