//! The memory store keeps the contract, and refuses when it is full.

use std::sync::Arc;

use onlyonce_core::transition::{ClaimAnswer, UnknownPolicy};
use onlyonce_core::{MemoryLimits, MemoryStore, RecordId, Store, StoreErrorKind, house};
use onlyonce_testkit::fixture::RETENTION;
use onlyonce_testkit::{Clocked, ManualClock, Scene, run};

fn fixture() -> Clocked {
    bounded(MemoryLimits::default())
}

fn bounded(limits: MemoryLimits) -> Clocked {
    let clock = Arc::new(ManualClock::default());
    Clocked::new(Arc::new(MemoryStore::new(clock.clone(), limits)), clock)
}

onlyonce_testkit::store_suite!(std::future::ready(fixture()));

#[test]
fn a_full_store_refuses_new_claims_and_completes_what_it_granted() {
    run(async {
        for limits in [
            MemoryLimits { records_max: 3, ..MemoryLimits::default() },
            MemoryLimits { bytes_max: 700, ..MemoryLimits::default() },
        ] {
            let fixture = bounded(limits);
            let mut scenes = Vec::new();
            let refused = loop {
                let scene = Scene::new(&fixture);
                match scene.store().claim(&scene.claim_of(scene.owner(), UnknownPolicy::Hold)).await {
                    Ok(answer) => assert!(matches!(answer, ClaimAnswer::Granted(_))),
                    Err(error) => break error,
                }
                scenes.push(scene);
                assert!(scenes.len() < 10, "a bounded store took everything");
            };
            assert_eq!(refused.kind(), StoreErrorKind::Full);
            assert!(refused.is_retryable() && !refused.outcome_unknown());

            let first = &scenes[0];
            let owner = first.lookup().await.unwrap();
            let token =
                onlyonce_core::transition::Token { id: first.id, owner: owner.owner, fence: owner.fence };
            first.complete(token, "kept although the store is full").await;
            first.expect_replay("kept although the store is full").await;
            let late = Scene::new(&fixture);
            let claim = late.claim_of(late.owner(), UnknownPolicy::Hold);
            assert!(late.store().claim(&claim).await.is_err());

            // What has expired makes room by itself, without a sweeper.
            first.advance(RETENTION).await;
            assert!(matches!(late.store().claim(&claim).await, Ok(ClaimAnswer::Granted(_))));
        }
    });
}

#[test]
fn a_new_process_goes_on_above_the_fences_of_the_last() {
    run(async {
        let clock = Arc::new(ManualClock::default());
        let mut last = None;
        for _ in 0..3 {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
            let fixture = Clocked::new(store, clock.clone());
            let fence = Scene::new(&fixture).granted().await.fence;
            assert!(last < Some(fence));
            last = Some(fence);
            clock.advance(std::time::Duration::from_millis(1));
        }
    });
}

#[test]
fn watches_that_nobody_waits_on_are_forgotten() {
    run(async {
        let fixture = fixture();
        let scene = Scene::new(&fixture);
        scene.granted().await;
        for _ in 0..100 {
            drop(scene.store().watch(&scene.id).await.unwrap());
            scene.store().sweep(onlyonce_core::store::SweepBudget::DEFAULT).await.unwrap();
        }
        let watch = scene.store().watch(&scene.id).await.unwrap();
        scene.store().sweep(onlyonce_core::store::SweepBudget::DEFAULT).await.unwrap();
        let token = scene.lookup().await.unwrap();
        scene
            .complete(
                onlyonce_core::transition::Token { id: scene.id, owner: token.owner, fence: token.fence },
                "d",
            )
            .await;
        watch.await;
    });
}

#[test]
fn a_sweep_with_a_small_budget_always_gets_on() {
    run(async {
        let fixture = fixture();
        let (soon, later) = (Scene::new(&fixture), Scene::new(&fixture));
        soon.completed("soon").await;
        later.advance(std::time::Duration::from_millis(500)).await;
        later.completed("later").await;
        later.advance(RETENTION.saturating_sub(std::time::Duration::from_millis(500))).await;
        let one = onlyonce_core::store::SweepBudget::new(1).unwrap();
        for _ in 0..10 {
            if !soon.store().sweep(one).await.unwrap().more {
                return;
            }
        }
        panic!("a sweep says that there is more and does nothing");
    });
}

#[test]
fn expired_records_make_room_for_a_whole_batch() {
    run(async {
        let fixture = bounded(MemoryLimits { records_max: 1000, ..MemoryLimits::default() });
        for _ in 0..1000 {
            Scene::new(&fixture).completed("old").await;
        }
        Scene::new(&fixture).advance(RETENTION).await;
        let scenes: Vec<_> = (0..900).map(|_| Scene::new(&fixture)).collect();
        let claims: Vec<_> =
            scenes.iter().map(|scene| scene.claim_of(scene.owner(), UnknownPolicy::Hold)).collect();
        let answers = scenes[0].store().claim_many(&claims).await.unwrap();
        assert!(answers.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Granted(_)))));
    });
}

#[test]
fn who_sweeps_takes_no_callers_place_and_is_refused_by_no_bound() {
    run(async {
        let fixture = bounded(MemoryLimits { records_max: 1, ..MemoryLimits::default() });
        let scene = |id| {
            let mut scene = Scene::new(&fixture);
            scene.id = id;
            scene
        };
        scene(house::SWEEP).granted().await;
        Scene::new(&fixture).granted().await;
        let (full, stranger) = (Scene::new(&fixture), scene(RecordId::from_bytes([0; 32])));
        for refused in [full, stranger] {
            let claim = refused.claim_of(refused.owner(), UnknownPolicy::Hold);
            let error = refused.store().claim(&claim).await.expect_err("it is full");
            assert_eq!(error.kind(), StoreErrorKind::Full);
        }
        scene(house::SWEEP_SPARE).granted().await;
    });
}
