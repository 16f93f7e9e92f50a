//! The disk fills up: new claims are refused, what was granted is completed, and with room again all goes on.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Token};
use onlyonce_core::{RecordId, Store, StoreErrorKind, UnknownPolicy};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::{any_id, fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, run};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::disk::{Mode, SimDisk};
use crate::verify::open;
use crate::workload::owner;

/// Room for a few dozen records, and a reserve for as many completions.
const RESERVE: usize = 32 << 10;
const CAPACITY: usize = RESERVE + (8 << 10);
/// After this long a full store looks for room again.
const LATER: Duration = Duration::from_secs(2);
/// As often as the engine would.
const COMPLETIONS_MAX: usize = 4;

struct Stage {
    disk: SimDisk,
    clock: Arc<ManualClock>,
    options: Options,
    store: Option<EmbeddedStore>,
    claims: u64,
}

impl Stage {
    fn new(segment_bytes_max: u64) -> Self {
        let disk = SimDisk::default();
        disk.limit(Some(CAPACITY));
        let options = Options { reserve_bytes: RESERVE as u64, segment_bytes_max, ..Options::default() };
        let mut stage =
            Self { disk, clock: Arc::new(ManualClock::default()), options, store: None, claims: 0 };
        stage.open();
        stage
    }

    fn open(&mut self) {
        self.store = None;
        self.store = Some(open(&self.disk, &self.clock, self.options).unwrap());
    }

    fn store(&self) -> &EmbeddedStore {
        self.store.as_ref().unwrap()
    }

    /// Claims a record that nobody claimed before. `None` when the store is full.
    async fn claim(&mut self) -> Option<Token> {
        self.claims += 1;
        let terms = Arc::new(terms(UnknownPolicy::Hold));
        let (id, owner) = (any_id(), owner(self.claims));
        let claim = Claim { id, fingerprint: fingerprint(b"body"), owner, terms };
        match self.store().claim(&claim).await {
            Ok(ClaimAnswer::Granted(grant)) => Some(Token { id, owner, fence: grant.fence }),
            Ok(other) => panic!("a new record was answered {other:?}"),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}");
                None
            }
        }
    }

    /// Claims until the store is full.
    async fn fill(&mut self) -> Vec<Token> {
        let mut granted = Vec::new();
        while let Some(token) = self.claim().await {
            granted.push(token);
            assert!(granted.len() < 10_000, "the disk never gets full");
        }
        granted
    }

    /// Completes as the engine does: again, if the store is full.
    async fn complete(&self, token: Token) {
        let complete = Complete { token, outcome: outcome("done"), retention: None };
        for _ in 1..COMPLETIONS_MAX {
            match self.store().complete(&complete).await {
                Err(error) => assert_eq!(error.kind(), StoreErrorKind::Full, "{error:?}"),
                answer => return assert_eq!(answer.unwrap(), CompleteAnswer::Completed),
            }
        }
        assert_eq!(self.store().complete(&complete).await.unwrap(), CompleteAnswer::Completed);
    }

    async fn is_done(&self, id: &RecordId) {
        let claim = Claim {
            id: *id,
            fingerprint: fingerprint(b"body"),
            owner: owner(u64::MAX),
            terms: Arc::new(terms(UnknownPolicy::Hold)),
        };
        match self.store().claim(&claim).await {
            Ok(ClaimAnswer::Replay(replay)) => assert_eq!(replay.outcome, outcome("done")),
            other => panic!("{} was answered {other:?}", id.short()),
        }
    }

    async fn sweep(&self) {
        self.store().sweep(SweepBudget::DEFAULT).await.unwrap();
    }
}

async fn a_full_disk_refuses_claims_and_takes_completions(segment_bytes_max: u64) {
    let mut stage = Stage::new(segment_bytes_max);
    let granted = stage.fill().await;
    let (first, rest) = granted.split_at(granted.len() / 2);
    for token in first {
        stage.complete(*token).await;
    }
    assert!(stage.claim().await.is_none(), "a claim was granted from the reserve");
    // A sweep looks for room. While there is none, it must not take what completions need.
    stage.sweep().await;
    assert!(stage.claim().await.is_none(), "a claim was granted on a full disk");
    for token in rest {
        stage.complete(*token).await;
    }
    for token in &granted {
        stage.is_done(&token.id).await;
    }
    let mut rng = SmallRng::seed_from_u64(1);
    for mode in Mode::HONEST {
        let disk = stage.disk.after_power_cut(stage.disk.log_len(), mode, &mut rng);
        let reopened = open(&disk, &stage.clock, stage.options).unwrap();
        for token in &granted {
            let (found, expected) = (reopened.lookup(&token.id).await, stage.store().lookup(&token.id).await);
            assert_eq!(found.unwrap(), expected.unwrap(), "{mode:?}");
        }
    }
    stage.disk.limit(None);
    stage.sweep().await;
    assert!(stage.claim().await.is_some(), "there is room, and claims are refused");
    println!("{} granted, then full; {} completed from the reserve", granted.len(), granted.len());
}

#[test]
fn a_full_disk_refuses_claims_and_takes_completions_in_one_segment() {
    run(a_full_disk_refuses_claims_and_takes_completions(64 << 20));
}

#[test]
fn a_full_disk_refuses_claims_and_takes_completions_in_many_segments() {
    run(a_full_disk_refuses_claims_and_takes_completions(4096));
}

#[test]
fn a_store_opens_on_a_full_disk_and_keeps_what_was_granted() {
    run(async {
        let mut stage = Stage::new(4096);
        let granted = stage.fill().await;
        stage.complete(granted[0]).await;
        stage.open();
        stage.is_done(&granted[0].id).await;
        assert!(stage.claim().await.is_none(), "a claim was granted on a full disk");
        for token in &granted[1..] {
            let found = stage.store().lookup(&token.id).await.unwrap().unwrap();
            assert_eq!((found.fence, found.kind()), (token.fence, onlyonce_core::StateKind::Unknown));
            stage.complete(*token).await;
        }
    });
}

#[test]
fn a_disk_that_has_room_again_takes_claims_and_nobody_need_sweep() {
    run(async {
        let mut stage = Stage::new(4096);
        let granted = stage.fill().await;
        stage.complete(granted[0]).await;
        stage.disk.limit(None);
        stage.clock.advance(LATER);
        assert!(stage.claim().await.is_some(), "there is room, and claims are refused");
        assert!(stage.disk.image().files.contains_key("reserve"), "space is set aside again");
    });
}

#[test]
fn a_disk_with_room_for_the_reserve_alone_is_still_full() {
    run(async {
        let mut stage = Stage::new(64 << 20);
        let granted = stage.fill().await;
        for _ in 0..3 {
            stage.clock.advance(LATER);
            assert!(stage.claim().await.is_none(), "a claim was granted on a full disk");
            assert!(!stage.disk.image().files.contains_key("reserve"), "completions were left no room");
        }
        for token in granted {
            stage.complete(token).await;
        }
    });
}

#[test]
fn what_has_expired_makes_room_and_nobody_need_sweep() {
    run(async {
        let mut stage = Stage::new(4096);
        for token in stage.fill().await {
            stage.complete(token).await;
        }
        assert!(stage.claim().await.is_none(), "a claim was granted from the reserve");
        // Longer than anything is kept, and than a segment takes entries: one look drops, the next finds room.
        for _ in 0..3 {
            stage.clock.advance(Duration::from_hours(24 * 40));
            stage.claim().await;
        }
        assert!(stage.claim().await.is_some(), "all has expired, and claims are refused");
    });
}
