//! An owner that stops in mid-work and wakes after its lease: a process of its own, stopped by SIGSTOP.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{Claim, ClaimAnswer, CompleteAnswer, Terms, UnknownPolicy};
use onlyonce_core::{RecordId, Store};
use onlyonce_testkit::fixture::any_id;
use onlyonce_testkit::servers::RedisOptions;
use onlyonce_testkit::{Soak, run};

use crate::peer::{Peer, play, role};
use crate::stage::{Live, claim_of, completion, patient, token_of};

const LEASE: Duration = Duration::from_millis(150);

#[test]
fn soak_zombie_owners_write_nothing_stale() {
    if let Some(url) = role() {
        return run(play(&url));
    }
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let test = "zombie::soak_zombie_owners_write_nothing_stale";
        let mut zombie = Peer::start(test, &live.server.url(), 0);
        let (mut soak, mut stopped) = (Soak::new("redis zombies", 20), 0);
        while soak.next_round().is_some() {
            let id = any_id();
            let stale = zombie.claim(&id, LEASE);
            assert_eq!(stale[0], "granted");
            zombie.signal("STOP");
            let claim = takeover(&*live.store, id).await;
            assert_ne!(claim.1.fence.to_string(), stale[1]);
            zombie.tell(&format!("complete {id}"));
            zombie.signal("CONT");
            assert_eq!(zombie.hear(), ["Fenced"]);
            let done = live.store.complete(&completion(claim.1)).await.expect("an answer");
            assert_eq!(done, CompleteAnswer::Completed);
            zombie_cannot_change(&*live.store, &claim.0).await;
            stopped += 1;
        }
        soak.report(stopped, "owners stopped past their lease, no stale write accepted");
    });
}

/// Claims under `rerun` until the lease of the owner before has passed.
async fn takeover(store: &dyn Store, id: RecordId) -> (Claim, onlyonce_core::transition::Token) {
    let mut claim = claim_of(id, Duration::from_secs(30));
    claim.terms = Arc::new(Terms { unknown: UnknownPolicy::Rerun, ..Terms::clone(&claim.terms) });
    loop {
        match store.claim(&claim).await.expect("an answer") {
            ClaimAnswer::Busy(busy) => {
                // tidy: sleep because the lease of another process is real time
                tokio::time::sleep(busy.left).await;
            }
            answer => return (claim.clone(), token_of(&claim, &answer)),
        }
    }
}

async fn zombie_cannot_change(store: &dyn Store, claim: &Claim) {
    let replay = store.claim(&crate::stage::by_another(claim)).await.expect("an answer");
    assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
}
