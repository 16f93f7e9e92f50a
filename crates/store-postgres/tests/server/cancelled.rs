//! Callers that vanish: what they asked for is done or not, and no connection is left inside a transaction.

use std::sync::Arc;

use onlyonce_core::Store as _;
use onlyonce_core::transition::ClaimAnswer;
use rand::{Rng as _, SeedableRng as _};

use crate::stage::{block_on, claim_of, client, granted, open, server};

#[test]
fn a_dropped_call_leaves_no_transaction_behind() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
        let claims: Vec<_> = (0..300).map(claim_of).collect();
        for claim in &claims {
            let asking = tokio::spawn({
                let (store, claim) = (Arc::clone(&store), claim.clone());
                async move {
                    let _ = store.claim(&claim).await;
                    let _ = store.lookup(&claim.id).await;
                }
            });
            for _ in 0..rng.random_range(0..40) {
                tokio::task::yield_now().await;
            }
            asking.abort();
            let _ = asking.await;
        }
        // Every claim can be asked again, with the same owner, and is granted exactly once.
        for claim in &claims {
            let token = granted(&store, claim).await;
            let other = store.claim(&claim_of(claims.len() as u64)).await.expect("an answer");
            assert!(!matches!(other, ClaimAnswer::Mismatch { .. }));
            assert_eq!(
                store.lookup(&claim.id).await.expect("readable").map(|found| found.fence),
                Some(token.fence)
            );
        }
        let inside = "SELECT count(*) FROM pg_stat_activity \
            WHERE application_name = 'onlyonce' AND state LIKE 'idle in transaction%'";
        let left: i64 = client(&server).await.query_one(inside, &[]).await.expect("an answer").get(0);
        assert_eq!(left, 0);
    });
}
