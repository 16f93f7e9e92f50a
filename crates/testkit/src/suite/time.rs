//! Clauses 7 and 12: leases and retention on the store's clock, and sweeping.
#![expect(missing_docs, reason = "a clause is named by what it shows")]

use onlyonce_core::Retention;
use onlyonce_core::record::StateKind;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{ClaimAnswer, Complete, CompleteAnswer, Grant, RenewAnswer, UnknownPolicy};

use super::ownership::sweep_all;
use crate::fixture::{Fixture, LEASE, RETENTION, RUN_MAX, Scene, TICK, UNKNOWN_RETENTION, outcome};

pub async fn c7_the_lease_ends_on_the_stores_clock<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    scene.granted().await;
    scene.advance(LEASE - TICK).await;
    assert!(matches!(scene.claim().await, ClaimAnswer::Busy(_)));
    scene.advance(TICK).await;
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
}

pub async fn c7_a_renewed_lease_lasts_from_the_renewal<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE - TICK).await;
    assert_eq!(scene.renew(token).await, RenewAnswer::Renewed(LEASE));
    scene.advance(LEASE - TICK).await;
    assert!(matches!(scene.claim().await, ClaimAnswer::Busy(_)));
    scene.advance(TICK).await;
    assert_eq!(scene.renew(token).await, RenewAnswer::Fenced);
}

pub async fn c7_renewals_end_at_the_maximum_run_time<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    let mut elapsed = std::time::Duration::ZERO;
    while elapsed + LEASE / 2 < RUN_MAX {
        scene.advance(LEASE / 2).await;
        elapsed += LEASE / 2;
        let left = LEASE.min(RUN_MAX.checked_sub(elapsed).unwrap());
        assert_eq!(scene.renew(token).await, RenewAnswer::Renewed(left), "after {elapsed:?}");
    }
    scene.advance(RUN_MAX.checked_sub(elapsed).unwrap()).await;
    assert_eq!(scene.renew(token).await, RenewAnswer::Fenced);
    assert!(matches!(scene.claim().await, ClaimAnswer::Held(_)));
}

pub async fn c7_retention_counts_from_completion<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.advance(LEASE / 2).await;
    assert_eq!(scene.complete(token, "done").await, CompleteAnswer::Completed);
    scene.advance(RETENTION - TICK).await;
    scene.expect_replay("done").await;
    scene.advance(TICK).await;
    match scene.claim().await {
        ClaimAnswer::Granted(Grant { attempt: 1, steps, .. }) => assert!(steps.is_empty()),
        other => panic!("an expired record reads as absent, got {other:?}"),
    }
}

pub async fn c7_a_completion_may_bring_its_own_retention<F: Fixture>(fixture: &F) {
    for retention in [RETENTION / 10, RETENTION * 3] {
        let scene = Scene::new(fixture);
        let token = scene.granted().await;
        let own = Some(Retention::new(retention).unwrap());
        let complete = Complete { token, outcome: outcome("done"), retention: own };
        assert_eq!(scene.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
        scene.advance(retention - TICK).await;
        scene.expect_replay("done").await;
        scene.advance(TICK).await;
        scene.granted().await;
    }
}

pub async fn c7_released_and_unknown_records_expire_by_their_own_retention<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.release(token).await;
    scene.advance(RETENTION - TICK).await;
    assert_eq!(scene.lookup().await.map(|record| record.kind()), Some(StateKind::Released));
    scene.advance(TICK).await;
    assert_eq!(scene.lookup().await, None);

    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    scene.abandon(token).await;
    scene.advance(UNKNOWN_RETENTION - TICK).await;
    assert_eq!(scene.lookup().await.map(|record| record.kind()), Some(StateKind::Unknown));
    scene.advance(TICK).await;
    assert_eq!(scene.lookup().await, None);
    assert_eq!(scene.complete(token, "too late").await, CompleteAnswer::Fenced);
    scene.granted().await;
}

pub async fn c12_sweep_removes_only_what_has_expired<F: Fixture>(fixture: &F) {
    let expired = Scene::new(fixture);
    let token = expired.granted().await;
    let short = Some(Retention::new(RETENTION / 2).unwrap());
    let complete = Complete { token, outcome: outcome("short"), retention: short };
    expired.store().complete(&complete).await.unwrap();
    let kept = Scene::new(fixture);
    kept.completed("kept").await;
    let released = Scene::new(fixture);
    let token = released.granted().await;
    released.release(token).await;
    let unknown = Scene::new(fixture);
    let token = unknown.granted().await;
    unknown.abandon(token).await;

    fixture.advance(RETENTION / 2).await;
    let before = fixture.store().stats().await.unwrap();
    assert!(before.oldest_expired.is_some());
    sweep_all(&expired).await;
    let after = fixture.store().stats().await.unwrap();
    assert_eq!(after.records() + 1, before.records());
    assert_eq!(after.oldest_expired, None);
    kept.expect_replay("kept").await;
    assert_eq!(released.lookup().await.map(|record| record.attempt), Some(1));
    assert!(matches!(unknown.claim().await, ClaimAnswer::Held(_)));
    expired.granted().await;
}

pub async fn c12_sweep_never_removes_in_flight<F: Fixture>(fixture: &F) {
    let scene = Scene::new(fixture);
    let token = scene.granted().await;
    sweep_all(&scene).await;
    assert!(matches!(scene.claim_under(UnknownPolicy::Rerun).await, ClaimAnswer::Busy(_)));
    // Long past every retention: what was never unknown must first become so.
    scene.advance(LEASE + UNKNOWN_RETENTION * 2).await;
    sweep_all(&scene).await;
    assert_eq!(scene.lookup().await.map(|record| record.kind()), Some(StateKind::Unknown));
    assert_eq!(scene.complete(token, "late").await, CompleteAnswer::Completed);
}

pub async fn c12_sweep_keeps_to_its_budget<F: Fixture>(fixture: &F) {
    let scenes: Vec<_> = (0..7).map(|_| Scene::new(fixture)).collect();
    for scene in &scenes {
        scene.completed("done").await;
    }
    fixture.advance(RETENTION).await;
    let store = fixture.store();
    let mut removed = 0;
    for round in 0.. {
        let swept = store.sweep(SweepBudget::new(3).unwrap()).await.unwrap();
        assert!(swept.touched() <= 3, "swept {swept:?} on a budget of 3");
        removed += swept.removed + swept.dropped;
        if !swept.more {
            break;
        }
        assert!(round < 100, "a sweep says that there is more and does nothing");
    }
    assert!(removed >= 7, "removed {removed} of 7");
}
