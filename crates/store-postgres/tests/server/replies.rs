//! Replies that are swallowed on their way: asking again gets the same grant and the same completion.

use onlyonce_core::Store as _;
use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer, Token};
use onlyonce_testkit::servers::Relay;

use crate::stage::{block_on, claim_of, complete_of, open, outcome_of, server};

const ROUNDS: u64 = 20;

#[test]
fn swallowed_replies_make_no_conflict_with_oneself() {
    let server = server(&[]);
    block_on(async {
        let relay = Relay::start(server.port()).expect("a relay");
        // One connection, so that the answer that is swallowed is the one that was asked for.
        let store = open(&format!("{}&connections=1", server.url_at(relay.port()))).await;
        for key in 0..ROUNDS {
            let claim = claim_of(key);
            relay.swallow_next();
            let error = store.claim(&claim).await.expect_err("its reply was swallowed");
            assert!(error.outcome_unknown() && error.is_retryable(), "{error:?}");
            let ClaimAnswer::Granted(grant) = store.claim(&claim).await.expect("an answer") else {
                panic!("the claim conflicts with itself");
            };
            assert_eq!(grant.attempt, 1, "it was granted the first time");

            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
            let complete = complete_of(key, token);
            relay.swallow_next();
            let error = store.complete(&complete).await.expect_err("its reply was swallowed");
            assert!(error.outcome_unknown());
            let again = store.complete(&complete).await.expect("an answer");
            // Cut while the server worked, the first may have been undone or done.
            assert!(matches!(again, CompleteAnswer::Already | CompleteAnswer::Completed), "{again:?}");
            match store.claim(&claim_of(key)).await.expect("an answer") {
                ClaimAnswer::Replay(replay) => assert_eq!(replay.outcome, outcome_of(key)),
                other => panic!("expected a replay, got {other:?}"),
            }
        }
        assert_eq!(relay.swallowed() as u64, 2 * ROUNDS);
    });
}
