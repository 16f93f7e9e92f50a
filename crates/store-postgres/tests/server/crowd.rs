//! Many claims of one key at once travel together and get one grant; a renewal never shortens.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, Renew, RenewAnswer};
use onlyonce_core::{Lease, Store as _};

use crate::stage::{block_on, claim_of, complete_of, granted, open, open_on_clock, outcome_of, server};

/// How many claim the same key.
const CROWD: usize = 500;

#[test]
fn of_a_crowd_one_gets_the_key_and_all_get_its_outcome() {
    let server = server(&[]);
    block_on(async {
        let stores = [open(&server.url()).await, open(&server.url()).await];
        for key in 0..5 {
            let mut claims = tokio::task::JoinSet::new();
            for caller in 0..CROWD {
                let (store, claim) = (Arc::clone(&stores[caller % 2]), claim_of(key));
                claims.spawn(async move { (store.claim(&claim).await.expect("an answer"), claim) });
            }
            let answers = claims.join_all().await;
            let busy = answers.iter().filter(|(answer, _)| matches!(answer, ClaimAnswer::Busy(_))).count();
            assert_eq!(busy, CROWD - 1);
            let winner = answers.iter().find(|(answer, _)| matches!(answer, ClaimAnswer::Granted(_)));
            let (_, claim) = winner.expect("one is granted");
            let token = granted(&stores[0], claim).await;
            stores[1].complete(&complete_of(key, token)).await.expect("completed");
            let again: Vec<_> = (0..CROWD).map(|_| claim_of(key)).collect();
            for answer in stores[0].claim_many(&again).await.expect("answers") {
                let answer = answer.expect("an answer");
                let ClaimAnswer::Replay(replay) = answer else { panic!("expected a replay, got {answer:?}") };
                assert_eq!(replay.outcome, outcome_of(key));
            }
        }
    });
}

#[test]
fn a_shorter_renewal_does_not_shorten() {
    let server = server(&[]);
    block_on(async {
        let (store, clock) = open_on_clock(&server).await;
        let token = granted(&store, &claim_of(1)).await;
        let renewed = async |seconds| {
            let lease = Lease::new(Duration::from_secs(seconds)).expect("a lease");
            store.renew(&Renew { token, lease }).await.expect("an answer")
        };
        assert_eq!(renewed(60).await, RenewAnswer::Renewed(Duration::from_mins(1)));
        clock.advance(Duration::from_secs(10));
        assert_eq!(renewed(5).await, RenewAnswer::Renewed(Duration::from_secs(50)));
    });
}
