//! Clauses 1, 2, 5 and 6: one owner, fencing, re-entry, fences.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use std::sync::{Arc, Barrier};
use std::thread;

use onlyonce_core::record::StepName;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{
    AbandonAnswer, Busy, ClaimAnswer, CompleteAnswer, Grant, RecordStep, ReleaseAnswer, RenewAnswer,
    StepAnswer, Token, UnknownPolicy,
};
use onlyonce_core::{Fence, Owner};

use crate::fixture::{Fixture, LEASE, RETENTION, Scene, TICK, run};

pub async fn c1_the_first_claim_is_granted_with_attempt_one<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    match scene.claim().await {
        ClaimAnswer::Granted(Grant { fence, attempt: 1, steps }) => {
            assert!(fence > Fence::default() && steps.is_empty());
        }
        other => panic!("expected the first grant, got {other:?}"),
    }
}

pub async fn c1_a_second_claim_is_busy_while_the_lease_lasts<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    scene.granted().await;
    for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun] {
        assert_eq!(scene.claim_under(policy).await, ClaimAnswer::Busy(Busy { left: LEASE }));
    }
    scene.advance(LEASE - TICK).await;
    assert_eq!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Busy(Busy { left: TICK }));
}

pub async fn c1_of_many_concurrent_claims_one_is_granted<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let mut claims = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (store, claim) = (scene.store(), scene.claim_of(scene.owner(), UnknownPolicy::Hold));
        claims.spawn(async move { store.claim(&claim).await.unwrap() });
    }
    let answers = claims.join_all().await;
    let granted = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count();
    let busy = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Busy(_))).count();
    assert_eq!((granted, busy), (1, 31));
}

pub async fn c1_of_claims_on_many_threads_one_is_granted<F: Fixture>(fixture: &F) {
    for _ in 0..50 {
        let scene = Scene::new(fixture);
        let start = Arc::new(Barrier::new(4));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (store, start) = (scene.store(), Arc::clone(&start));
                let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
                thread::spawn(move || {
                    start.wait();
                    run(async { store.claim(&claim).await.unwrap() })
                })
            })
            .collect();
        let answers = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        assert_eq!(answers.filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count(), 1);
    }
}

pub async fn c1_waiting_claims_leave_the_record_alone<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let before = scene.lookup().await;
    for _ in 0..20 {
        assert!(matches!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Busy(_)));
    }
    assert_eq!(scene.lookup().await, before);
    assert_eq!(scene.complete(token, "done").await, CompleteAnswer::Completed);
}

pub async fn c2_a_stale_owner_cannot_complete_after_takeover<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let stale = scene.granted().await;
    scene.advance(LEASE).await;
    let live = scene.granted_under(UnknownPolicy::Rerun).await;
    assert_eq!(scene.complete(stale, "stale").await, CompleteAnswer::Fenced);
    assert_eq!(scene.complete(live, "live").await, CompleteAnswer::Completed);
    assert_eq!(scene.complete(stale, "stale").await, CompleteAnswer::Fenced);
    scene.expect_replay("live").await;
}

pub async fn c2_a_stale_owner_cannot_release_renew_or_abandon_after_takeover<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let stale = scene.granted().await;
    scene.advance(LEASE).await;
    let live = scene.granted_under(UnknownPolicy::Rerun).await;
    let before = scene.lookup().await;
    assert_eq!(scene.release(stale).await, ReleaseAnswer::Fenced);
    assert_eq!(scene.renew(stale).await, RenewAnswer::Fenced);
    assert_eq!(scene.abandon(stale).await, AbandonAnswer::Fenced);
    assert_eq!(scene.lookup().await, before);
    assert!(matches!(scene.claim().await, ClaimAnswer::Busy(_)));
    assert_eq!(scene.complete(live, "live").await, CompleteAnswer::Completed);
}

pub async fn c2_a_wrong_owner_or_fence_changes_nothing<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let before = scene.lookup().await;
    let other_fence = |by: u64| Token { fence: Fence::new(token.fence.get() + by).unwrap(), ..token };
    let wrong = [Token { owner: Owner::from_bytes([99; 16]), ..token }, other_fence(1), other_fence(1000)];
    for token in wrong {
        assert_eq!(scene.complete(token, "wrong").await, CompleteAnswer::Fenced);
        assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
        assert_eq!(scene.renew(token).await, RenewAnswer::Fenced);
        assert_eq!(scene.abandon(token).await, AbandonAnswer::Fenced);
        let step = RecordStep { token, name: StepName::new("s").unwrap(), value: "v".into() };
        assert_eq!(scene.store().record_step(&step).await.unwrap(), StepAnswer::Fenced);
    }
    assert_eq!(scene.lookup().await, before);
    assert_eq!(scene.complete(token, "right").await, CompleteAnswer::Completed);
    for token in wrong {
        assert_eq!(scene.complete(token, "wrong").await, CompleteAnswer::Fenced);
    }
    scene.expect_replay("right").await;
}

pub async fn c2_nothing_can_be_written_to_an_absent_record<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = Token { id: scene.id, owner: scene.owner(), fence: Fence::new(1).unwrap() };
    assert_eq!(scene.complete(token, "forged").await, CompleteAnswer::Fenced);
    assert_eq!(scene.release(token).await, ReleaseAnswer::Fenced);
    assert_eq!(scene.renew(token).await, RenewAnswer::Fenced);
    assert_eq!(scene.abandon(token).await, AbandonAnswer::Fenced);
    assert_eq!(scene.lookup().await, None);
    scene.granted().await;
}

pub async fn c2_a_lost_grant_answers_fenced_to_its_last_owner<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let released = scene.granted().await;
    assert_eq!(scene.release(released).await, ReleaseAnswer::Released);
    assert_eq!(scene.release(released).await, ReleaseAnswer::Fenced);
    assert_eq!(scene.complete(released, "late").await, CompleteAnswer::Fenced);
    assert_eq!(scene.abandon(released).await, AbandonAnswer::Fenced);
    assert_eq!(scene.renew(released).await, RenewAnswer::Fenced);

    let scene = Scene::new(fixture);
    let lapsed = scene.granted().await;
    scene.advance(LEASE).await;
    assert_eq!(scene.renew(lapsed).await, RenewAnswer::Fenced);
    assert_eq!(scene.release(lapsed).await, ReleaseAnswer::Fenced);
}

pub async fn c5_a_repeated_claim_gets_the_same_grant<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
    let first = scene.send(&claim).await;
    let lease = scene.lookup().await;
    scene.advance(LEASE / 2).await;
    assert_eq!(scene.send(&claim).await, first);
    assert_eq!(scene.lookup().await, lease, "repeating a claim does not extend its lease");
    scene.advance(LEASE / 2).await;
    assert!(matches!(scene.send(&claim).await, ClaimAnswer::Held(_)), "the lease passes also for its owner");
}

pub async fn c5_a_repeated_completion_is_already_done<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.completed("done").await;
    let before = scene.lookup().await;
    scene.advance(LEASE).await;
    assert_eq!(scene.complete(token, "done").await, CompleteAnswer::Already);
    assert_eq!(scene.lookup().await, before, "repeating a completion does not extend its retention");
}

pub async fn c5_an_owner_is_granted_once<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let claim = scene.claim_of(scene.owner(), UnknownPolicy::Rerun);
    let ClaimAnswer::Granted(grant) = scene.send(&claim).await else { panic!("expected a grant") };
    let token = Token { id: scene.id, owner: claim.owner, fence: grant.fence };
    assert_eq!(scene.release(token).await, ReleaseAnswer::Released);
    assert_eq!(scene.send(&claim).await, ClaimAnswer::Fenced, "a claim that arrives twice starts nothing");

    let scene = Scene::new(fixture);
    let claim = scene.claim_of(scene.owner(), UnknownPolicy::Rerun);
    assert!(matches!(scene.send(&claim).await, ClaimAnswer::Granted(_)));
    scene.advance(LEASE).await;
    assert_eq!(scene.send(&claim).await, ClaimAnswer::Fenced);
    scene.granted_under(UnknownPolicy::Rerun).await;
}

pub async fn c6_fences_grow_across_release_rerun_expiry_and_sweep<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let mut fences = Vec::new();
    fences.push(scene.granted().await.fence);
    scene.advance(LEASE).await;
    let token = scene.granted_under(UnknownPolicy::Rerun).await;
    fences.push(token.fence);
    scene.release(token).await;
    let token = scene.granted().await;
    fences.push(token.fence);
    scene.complete(token, "done").await;
    scene.advance(RETENTION).await;
    let token = scene.granted().await;
    fences.push(token.fence);
    scene.complete(token, "done").await;
    scene.advance(RETENTION).await;
    sweep_all(&scene).await;
    fences.push(scene.granted().await.fence);
    assert!(fences.is_sorted_by(|a, b| a < b), "fences went {fences:?}");
    assert!(fences.iter().all(|fence| fence.get() < 1 << 53));
}

pub async fn c6_fences_grow_across_restart<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.completed("done").await;
    scene.advance(RETENTION).await;
    sweep_all(&scene).await;
    if fixture.restart().await {
        let next = scene.granted().await;
        assert!(next.fence > token.fence, "{:?} then {:?}", token.fence, next.fence);
    } else {
        assert!(!scene.store().durability().process_crash);
    }
}

/// Sweeps until nothing is left to do.
pub(super) async fn sweep_all<F: Fixture>(scene: &Scene<'_, F>) {
    let store = Arc::clone(&scene.store());
    while store.sweep(SweepBudget::DEFAULT).await.unwrap().more {}
}
