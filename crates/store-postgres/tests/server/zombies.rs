//! Owners that freeze for longer than their lease and wake up: nothing that they then say is taken.
//!
//! The test runs itself again as the owner, freezes it once it has its grant, takes the key over, and lets it go on.

use std::time::Duration;

use onlyonce_core::Store as _;
use onlyonce_core::transition::{
    ClaimAnswer, CompleteAnswer, Release, ReleaseAnswer, Renew, RenewAnswer, Token,
};
use onlyonce_core::{Lease, Outcome};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::Soak;

use crate::process::{Process, say};
use crate::stage::{block_on, claim_under, granted, open, outcome_of, rerun, server};

const OWNER: &str = "ONLYONCE_TEST_OWNER";
const LEASE: Duration = Duration::from_millis(100);

/// Claims keys as they are named on its input, waits for the next line, and completes. Not a test of its own: does
/// nothing unless it was started as an owner.
#[test]
fn owner() {
    let Ok(url) = std::env::var(OWNER) else { return };
    block_on(async {
        let store = open(&url).await;
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        while let Some(key) = lines.next() {
            let claim = claim_under(key.parse().expect("a key"), rerun(LEASE));
            let token = granted(&store, &claim).await;
            say("granted");
            // It is frozen here, and goes on as if nothing had happened.
            lines.next();
            say(&format!("completed {:?}", finish(&store, token).await));
        }
    });
}

/// What a zombie tries.
async fn finish(store: &PostgresStore, token: Token) -> CompleteAnswer {
    let renew = Renew { token, lease: Lease::new(LEASE).expect("a lease") };
    assert_eq!(store.renew(&renew).await.expect("an answer"), RenewAnswer::Fenced);
    let release = Release { token, keep_fingerprint: true };
    assert_eq!(store.release(&release).await.expect("an answer"), ReleaseAnswer::Fenced);
    let complete = onlyonce_core::transition::Complete {
        token,
        outcome: Outcome::kept(1, "a zombie's outcome"),
        retention: None,
    };
    store.complete(&complete).await.expect("an answer")
}

#[test]
fn soak_frozen_owners_change_nothing_when_they_wake() {
    let server = server(&[]);
    let mut owner = Process::start("zombies::owner", &[(OWNER, &server.url())]);
    let mut soak = Soak::new("frozen owners", 12);
    let mut frozen = 0;
    while let Some((key, _)) = soak.next_round() {
        owner.tell(&key.to_string());
        owner.hear("granted");
        owner.signal("STOP");
        block_on(async {
            let store = open(&server.url()).await;
            let claim = claim_under(key, rerun(Duration::from_mins(1)));
            let token = loop {
                match store.claim(&claim).await.expect("an answer") {
                    ClaimAnswer::Granted(grant) => {
                        break Token { id: claim.id, owner: claim.owner, fence: grant.fence };
                    }
                    // tidy: sleep because the server's own clock must pass the end of the lease
                    ClaimAnswer::Busy(busy) => tokio::time::sleep(busy.left).await,
                    other => panic!("expected the takeover, got {other:?}"),
                }
            };
            if key % 2 == 0 {
                complete(&store, key, token).await;
            }
            owner.signal("CONT");
            owner.tell("");
            assert_eq!(owner.hear("completed"), "completed Fenced");
            if key % 2 == 1 {
                complete(&store, key, token).await;
            }
            let answer = store.claim(&claim_under(key, rerun(LEASE))).await.expect("an answer");
            let ClaimAnswer::Replay(replay) = answer else { panic!("expected a replay, got {answer:?}") };
            assert_eq!((replay.outcome, replay.fence), (outcome_of(key), token.fence));
        });
        frozen += 1;
    }
    soak.report(frozen, "owners frozen past their lease, no stale write accepted");
}

async fn complete(store: &PostgresStore, key: u64, token: Token) {
    let complete = crate::stage::complete_of(key, token);
    assert_eq!(store.complete(&complete).await.expect("an answer"), CompleteAnswer::Completed);
}
