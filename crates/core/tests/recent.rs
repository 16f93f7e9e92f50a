//! The tier in this process keeps the contract of the store it is in front of, and answers for it only what it may.
#![expect(clippy::unchecked_time_subtraction, reason = "of what is longer")]

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::tier::FRESH_FOR;
use onlyonce_core::store::tiered::TierFigures;
use onlyonce_core::transition::{Actor, ClaimAnswer, Erase, Resolve, ResolveAnswer, UnknownPolicy, Verdict};
use onlyonce_core::{MemoryLimits, MemoryStore, Recent, Tiered};
use onlyonce_testkit::fixture::{HOLD_FOR, LEASE, RETENTION, TICK, fingerprint, outcome};
use onlyonce_testkit::{Clocked, ManualClock, Scene, run};

const BYTES_MAX: usize = 1 << 20;

/// A memory store behind the tier, and the same store without it.
struct Pair {
    before: Clocked,
    behind: Clocked,
    tiered: Arc<Tiered>,
    tier: Arc<Recent>,
}

fn pair() -> Pair {
    let clock = Arc::new(ManualClock::default());
    let authority = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
    let tier = Arc::new(Recent::new(clock.clone(), BYTES_MAX));
    let tiered = Arc::new(Tiered::new(authority.clone(), tier.clone(), clock.clone()));
    let before = Clocked::new(tiered.clone(), clock.clone());
    Pair { before, behind: Clocked::new(authority, clock), tiered, tier }
}

onlyonce_testkit::store_suite!(std::future::ready(pair().before));

impl Pair {
    fn figures(&self) -> (u64, u64) {
        let TierFigures { answered, asked } = self.tiered.figures();
        (answered, asked)
    }
}

#[test]
fn the_second_retry_does_not_reach_the_store() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        scene.completed("done").await;
        scene.expect_replay("done").await;
        assert_eq!(pair.figures(), (0, 2), "a claim, and a retry that the tier learns from");
        let ClaimAnswer::Replay(first) = scene.claim().await else { panic!("a replay") };
        assert_eq!(pair.figures(), (1, 2));
        scene.advance(FRESH_FOR - TICK).await;
        let ClaimAnswer::Replay(second) = scene.claim().await else { panic!("a replay") };
        assert_eq!(pair.figures(), (2, 2));
        assert_eq!(second.age - first.age, FRESH_FOR - TICK);
        assert_eq!(first.left - second.left, FRESH_FOR - TICK);
        scene.advance(TICK).await;
        scene.expect_replay("done").await;
        assert_eq!(pair.figures(), (2, 3), "what is no longer fresh is asked for again");
    });
}

#[test]
fn another_request_is_refused_by_the_store_and_told_nothing_by_the_tier() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        scene.completed("done").await;
        scene.expect_replay("done").await;
        let mut other = scene.claim_of(scene.owner(), UnknownPolicy::Hold);
        other.fingerprint = fingerprint(b"another body");
        assert!(matches!(scene.send(&other).await, ClaimAnswer::Mismatch { .. }));
        assert_eq!(pair.figures(), (0, 3));
    });
}

#[test]
fn what_was_erased_elsewhere_is_gone_within_five_seconds() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        scene.completed("a secret").await;
        scene.expect_replay("a secret").await;
        // Another process, with a tier of its own.
        pair.behind_store().erase(&Erase { id: scene.id }).await.unwrap();
        scene.advance(Duration::from_secs(5)).await;
        let ClaimAnswer::Replay(replay) = scene.claim().await else { panic!("a replay") };
        assert!(replay.outcome.is_erased());
    });
}

#[test]
fn what_is_erased_here_is_gone_at_once() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        scene.completed("a secret").await;
        scene.expect_replay("a secret").await;
        scene.expect_replay("a secret").await;
        scene.store().erase(&Erase { id: scene.id }).await.unwrap();
        let ClaimAnswer::Replay(replay) = scene.claim().await else { panic!("a replay") };
        assert!(replay.outcome.is_erased());
    });
}

#[test]
fn a_sealed_answer_is_not_kept_because_it_may_be_resolved() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        let token = scene.granted().await;
        scene.advance(LEASE + HOLD_FOR).await;
        for _ in 0..2 {
            assert!(matches!(scene.claim().await, ClaimAnswer::Replay(_)));
        }
        let verdict = Verdict::Executed(outcome("found"));
        let resolve = Resolve { id: scene.id, fence: token.fence, verdict, actor: Actor::Hook };
        // In another process: this tier hears nothing of it.
        assert_eq!(pair.behind_store().resolve(&resolve).await.unwrap(), ResolveAnswer::Resolved);
        scene.expect_replay("found").await;
    });
}

#[test]
fn nothing_is_answered_past_the_retention() {
    run(async {
        let pair = pair();
        let scene = Scene::new(&pair.before);
        scene.completed("done").await;
        scene.advance(RETENTION - 2 * TICK).await;
        scene.expect_replay("done").await;
        scene.advance(TICK).await;
        scene.expect_replay("done").await;
        assert_eq!(pair.figures().0, 1);
        scene.advance(TICK).await;
        scene.granted().await;
    });
}

#[test]
fn it_takes_no_more_than_it_was_given() {
    run(async {
        let (pair, large) = (pair(), std::str::from_utf8(&BYTES).expect("text"));
        let mut kept = 0;
        for at in 0..4000 {
            let scene = Scene::new(&pair.before);
            scene.completed(if at % 100 == 0 { large } else { "small" }).await;
            scene.claim().await;
            kept = kept.max(pair.tier.len());
            assert!(pair.tier.bytes() <= BYTES_MAX as u64, "{pair:?}", pair = pair.tier);
        }
        assert!(kept > 500 && pair.tier.len() < 4000, "{:?}", pair.tier);
    });
}

/// More than a sixteenth of the whole.
static BYTES: [u8; BYTES_MAX / 16] = [b'x'; BYTES_MAX / 16];

impl Pair {
    fn behind_store(&self) -> Arc<dyn onlyonce_core::Store> {
        onlyonce_testkit::Fixture::store(&self.behind)
    }
}
