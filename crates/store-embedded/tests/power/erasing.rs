//! Erasure overwrites bodies where they lie. That must not look like a torn write, or what lies behind it is cut off.

use std::sync::Arc;

use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Erase, EraseAnswer, Token, UnknownPolicy};
use onlyonce_core::{StateKind, Store};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::{RETENTION, any_id, fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, run};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::disk::{Mode, SimDisk};
use crate::verify::open;
use crate::workload::owner;

/// Two records, claimed together and completed together: neighbours in one group.
async fn neighbours(store: &EmbeddedStore) -> [Token; 2] {
    let terms = Arc::new(terms(UnknownPolicy::Hold));
    let claims = [1, 2].map(|number| Claim {
        id: any_id(),
        fingerprint: fingerprint(b"body"),
        owner: owner(number),
        terms: Arc::clone(&terms),
    });
    let mut fences = Vec::new();
    for answer in store.claim_many(&claims).await.unwrap() {
        let ClaimAnswer::Granted(grant) = answer.unwrap() else { panic!("no grant") };
        fences.push(grant.fence);
    }
    let tokens = [0, 1].map(|at| Token { id: claims[at].id, owner: claims[at].owner, fence: fences[at] });
    let completes = tokens.map(|token| Complete { token, outcome: outcome("done"), retention: None });
    assert!(store.complete_many(&completes).await.unwrap().iter().all(Result::is_ok));
    tokens
}

#[test]
fn erasing_a_record_does_not_lose_its_neighbour() {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::default());
    let options = Options { reserve_bytes: 512, ..Options::default() };
    let store = open(&disk, &clock, options).unwrap();
    let _held_up = disk.hold_up_sealing();
    let tokens = run(async {
        let tokens = neighbours(&store).await;
        // What is written from now on goes to another segment: no mark follows the group.
        clock.advance(RETENTION * 9 / 10);
        let answer = store.erase(&Erase { id: tokens[0].id }).await.unwrap();
        assert_eq!(answer, EraseAnswer::Erased);
        tokens
    });
    let mut rng = SmallRng::seed_from_u64(1);
    for mode in Mode::HONEST {
        let cut = disk.after_power_cut(disk.log_len(), mode, &mut rng);
        let reopened = open(&cut, &clock, options).unwrap();
        for token in tokens {
            let found = run(reopened.lookup(&token.id)).unwrap().map(|record| record.kind());
            assert_eq!(found, Some(StateKind::Completed), "{mode:?}");
        }
    }
}
