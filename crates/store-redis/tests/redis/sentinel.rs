//! A master that dies under Sentinels: the replica is found, used, and known to be another server.

use onlyonce_core::Store;
use onlyonce_core::transition::ClaimAnswer;
use onlyonce_store_redis::Options;
use onlyonce_testkit::run;
use onlyonce_testkit::servers::RedisSentinel;
use std::time::Duration;

use crate::stage::{Home, by_another, complete_one, fresh_claim, patient, until};

#[test]
fn a_fail_over_is_followed_counted_and_quarantined() {
    run(async {
        let servers = RedisSentinel::start().expect("a master, a replica and three Sentinels");
        let home = Home::new();
        let options = Options { quarantine: Duration::from_mins(30), ..patient() };
        let store = home.connect(&servers.url(), options).await.expect("the store opens");
        let done = complete_one(&*store).await;
        // The replica must have it, or it would be lost by right.
        let wanted = servers.nodes()[0].ask(&["DBSIZE"]).expect("DBSIZE");
        until("the replica has it", async || {
            servers.nodes()[1].ask(&["DBSIZE"]).is_ok_and(|has| has == wanted)
        })
        .await;

        servers.fail_over();
        until("the fail-over is noticed", async || store.incidents().failed_over == 1).await;
        let error = store.claim(&fresh_claim()).await.expect_err("a grant in quarantine");
        assert!(error.is_retryable() && !error.outcome_unknown(), "{error:?}");
        let replay = store.claim(&by_another(&done)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        assert_eq!(store.incidents().emptied, 0);
    });
}

#[test]
fn a_name_that_no_sentinel_knows_is_said_at_once() {
    run(async {
        let servers = RedisSentinel::start().expect("a master, a replica and three Sentinels");
        let url = servers.url().replace(RedisSentinel::NAME, "nobody");
        let error = Home::new().connect(&url, patient()).await.expect_err("nobody leads it");
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(source.contains("nobody"), "{source}");
    });
}
