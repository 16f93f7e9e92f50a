//! A store behind a tier that others share keeps the contract, whatever the tier forgets.
#![expect(clippy::unchecked_time_subtraction, clippy::unwrap_used, reason = "a mistake in the test fails it")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::store::StoreFuture;
use onlyonce_core::store::tier::{HINT_FOR, Keeps, Known, LEARN_WITHIN, Look, Tier};
use onlyonce_core::transition::{Busy, ClaimAnswer, Complete, Erase, Token, UnknownPolicy};
use onlyonce_core::{
    Clock as _, MemoryLimits, MemoryStore, RecordId, Retention, StoreError, StoreErrorKind, Tiered, Timestamp,
};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::fixture::{LEASE, RETENTION, TICK, fingerprint, outcome};
use onlyonce_testkit::{Clocked, Fault, Faulty, Fixture as _, ManualClock, Scene, run};
use tokio::sync::Notify;

/// A tier that remembers everything it is told, until it is made to forget.
#[derive(Debug)]
struct Shelf {
    clock: Arc<ManualClock>,
    known: Mutex<HashMap<RecordId, (Known, Timestamp)>>,
    /// Of so many looks one finds nothing; 0 for none.
    forgets: u64,
    looks: AtomicU64,
    is_away: Mutex<bool>,
}

impl Shelf {
    fn holds(&self, id: &RecordId) -> bool {
        self.known.lock().unwrap().contains_key(id)
    }
}

impl Tier for Shelf {
    fn get<'a>(&'a self, id: &'a RecordId) -> Look<'a> {
        Look::Coming(Box::pin(async move {
            tokio::task::yield_now().await;
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            let mut known = self.known.lock().unwrap();
            if self.forgets > 0 && look.is_multiple_of(self.forgets) {
                known.remove(id);
            }
            let (known, at) = known.get(id)?.clone();
            Some(known.aged(at.until(self.clock.now())))
        }))
    }

    fn put(&self, id: &RecordId, known: Known) {
        self.known.lock().unwrap().insert(*id, (known, self.clock.now()));
    }

    fn forget(&self, id: &RecordId) {
        self.known.lock().unwrap().remove(id);
    }

    fn void<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, ()> {
        let away = *self.is_away.lock().unwrap();
        if !away {
            self.forget(id);
        }
        let answer = if away { Err(StoreError::new(StoreErrorKind::Unavailable, "voiding")) } else { Ok(()) };
        Box::pin(std::future::ready(answer))
    }

    fn keeps(&self) -> Keeps {
        Keeps::Everything
    }
}

/// Two processes that share an authority and a tier.
struct Stage {
    here: Clocked,
    there: Clocked,
    tiered: Arc<Tiered>,
    tier: Arc<Shelf>,
    faults: Arc<Faulty>,
    clock: Arc<ManualClock>,
}

fn stage(forgets: u64) -> Stage {
    let clock = Arc::new(ManualClock::default());
    let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
    let faults = Arc::new(Faulty::new(store));
    let tier = Arc::new(Shelf {
        clock: clock.clone(),
        known: Mutex::default(),
        forgets,
        looks: AtomicU64::new(1),
        is_away: Mutex::new(false),
    });
    let process = || Arc::new(Tiered::new(faults.clone(), tier.clone(), clock.clone()));
    let (tiered, other) = (process(), process());
    let (here, there) = (Clocked::new(tiered.clone(), clock.clone()), Clocked::new(other, clock.clone()));
    Stage { here, there, tiered, tier, faults, clock }
}

impl Stage {
    /// Claims and renews, and gives the hint that is left of it.
    async fn hinted(&self, scene: &Scene<'_, Clocked>) -> (Token, (Known, Timestamp)) {
        let token = scene.granted().await;
        scene.renew(token).await;
        (token, self.tier.known.lock().unwrap()[&scene.id].clone())
    }
}

mod whole {
    onlyonce_testkit::store_suite!(std::future::ready(super::stage(0).here));
}

mod forgetful {
    onlyonce_testkit::store_suite!(std::future::ready(super::stage(3).here));
}

#[test]
fn a_completion_is_known_everywhere_without_asking_the_authority() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        let token = scene.granted().await;
        stage.clock.advance(Duration::from_secs(2));
        let retention = Some(Retention::new(RETENTION * 2).unwrap());
        let complete = Complete { token, outcome: outcome("done"), retention };
        scene.store().complete(&complete).await.unwrap();
        stage.clock.advance(Duration::from_secs(3));
        let ClaimAnswer::Replay(replay) = scene.claim().await else { panic!("a replay") };
        assert_eq!(
            (replay.age, replay.left),
            (Duration::from_secs(3), RETENTION * 2 - Duration::from_secs(3))
        );
        assert_eq!((replay.fence, replay.attempt), (token.fence, 1));
        assert_eq!(stage.tiered.figures().answered, 1);
    });
}

#[test]
fn a_released_or_abandoned_key_leaves_no_hint() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        let token = scene.granted().await;
        scene.renew(token).await;
        assert!(stage.tier.holds(&scene.id), "long work leaves a hint");
        scene.release(token).await;
        assert!(!stage.tier.holds(&scene.id));
        scene.granted().await;
    });
}

#[test]
fn a_hint_is_believed_for_a_moment_by_others_and_never_by_its_owner() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        let ClaimAnswer::Granted(grant) = scene.send(&claim).await else { panic!("a grant") };
        let token = Token { id: scene.id, owner: claim.owner, fence: grant.fence };
        scene.renew(token).await;
        let asked = stage.tiered.figures().asked;
        assert_eq!(scene.claim().await, ClaimAnswer::Busy(Busy { left: LEASE }));
        assert_eq!(stage.tiered.figures().asked, asked, "by the tier");
        assert_eq!(scene.send(&claim).await, ClaimAnswer::Granted(grant), "a lost reply is asked for again");
        let mut other = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        other.fingerprint = fingerprint(b"another body");
        assert!(matches!(scene.send(&other).await, ClaimAnswer::Mismatch { .. }), "mismatch before busy");
        stage.clock.advance(HINT_FOR);
        assert_eq!(
            scene.claim().await,
            ClaimAnswer::Busy(Busy { left: LEASE - HINT_FOR }),
            "by the authority"
        );
    });
}

#[test]
fn whoever_waits_is_not_held_up_by_a_hint() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        let (token, hint) = stage.hinted(&scene).await;
        // The owner's process ends it, and its word to the tier is lost.
        let watch = stage.there.store().watch(&scene.id).await.unwrap();
        scene.release(token).await;
        stage.tier.known.lock().unwrap().insert(scene.id, hint);
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        let answer = stage.there.store().claim(&claim).await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
        drop(watch);
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        assert!(matches!(stage.there.store().claim(&claim).await.unwrap(), ClaimAnswer::Busy(_)));
    });
}

#[test]
fn a_claim_whose_reply_was_lost_is_not_told_that_somebody_else_is_at_it() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        let (token, hint) = stage.hinted(&scene).await;
        scene.release(token).await;
        // Another is granted the record and does not hear of it, and the first one's hint is still there.
        stage.faults.next(Operation::Claim, Fault::LoseReply);
        let claim = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        assert!(scene.store().claim(&claim).await.is_err());
        stage.tier.known.lock().unwrap().insert(scene.id, hint);
        let answer = scene.send(&claim).await;
        assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
    });
}

#[test]
fn an_erasure_is_answered_only_when_the_tier_has_forgotten() {
    run(async {
        let stage = stage(0);
        let scene = Scene::new(&stage.here);
        scene.completed("a secret").await;
        *stage.tier.is_away.lock().unwrap() = true;
        let erase = Erase { id: scene.id };
        let error = stage.there.store().erase(&erase).await.expect_err("the tier is away");
        assert!(error.is_retryable());
        *stage.tier.is_away.lock().unwrap() = false;
        stage.there.store().erase(&erase).await.unwrap();
        let ClaimAnswer::Replay(replay) = scene.claim().await else { panic!("a replay") };
        assert!(replay.outcome.is_erased());
    });
}

#[test]
fn what_took_too_long_to_learn_is_not_kept() {
    run(async {
        for (delay, kept) in [(LEARN_WITHIN, true), (LEARN_WITHIN + TICK, false)] {
            let stage = stage(0);
            let scene = Scene::new(&stage.here);
            let token = scene.granted().await;
            let arrived = Arc::new(Notify::new());
            stage.faults.next(Operation::Complete, Fault::LateReply(Arc::clone(&arrived)));
            let complete = async { scene.complete(token, "done").await };
            let late = async {
                stage.clock.advance(delay);
                arrived.notify_one();
            };
            tokio::join!(complete, late);
            assert_eq!(
                stage.tier.holds(&scene.id),
                kept,
                "an erasure in between would not have been noticed"
            );
        }
    });
}
