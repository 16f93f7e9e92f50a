//! What Redis can lose is noticed, counted, and no new grant is made until every lease from before has ended.

use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Secret, Store};
use onlyonce_store_redis::{Incidents, Options};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::RedisOptions;

use crate::stage::{
    Live, assert_quarantined, by_another, claim_of, complete_one, completion, fresh_claim, patient, token_of,
    until,
};
use crate::traffic::counts;

fn with_quarantine(quarantine: Duration) -> Options {
    Options { quarantine, ..patient() }
}

/// Longer than any of these tests takes, so that what is quarantined stays so.
const LONG: Duration = Duration::from_mins(30);

#[test]
fn a_flush_is_noticed_counted_and_quarantined_in_every_process() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(LONG)).await;
        let other =
            live.home.connect(&live.server.url(), with_quarantine(LONG)).await.expect("a second store");
        complete_one(&*live.store).await;
        live.server.flush();
        for store in [&live.store, &other] {
            until("the flush is noticed", async || store.incidents().emptied == 1).await;
            assert_quarantined(store).await;
        }
        let later =
            live.home.connect(&live.server.url(), with_quarantine(LONG)).await.expect("a third store");
        assert_quarantined(&later).await;
        assert_eq!(later.incidents(), Incidents::default(), "it knew nothing of what was lost");
    });
}

#[test]
fn what_was_there_is_answered_in_quarantine() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(LONG)).await;
        let done = complete_one(&*live.store).await;
        let running = fresh_claim();
        let token = token_of(&running, &live.store.claim(&running).await.expect("a grant"));
        // The mark alone is lost, as if the server had come back from an older copy.
        assert_eq!(live.server.ask(&["DEL", "onlyonce:epoch"]).expect("DEL"), "1");
        until("the loss is noticed", async || live.store.incidents().emptied == 1).await;
        assert_quarantined(&live.store).await;
        let replay = live.store.claim(&by_another(&done)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        let busy = live.store.claim(&by_another(&running)).await.expect("an answer");
        assert!(matches!(busy, ClaimAnswer::Busy(_)), "{busy:?}");
        let again = live.store.claim(&running).await.expect("the same grant");
        assert_eq!(token_of(&running, &again), token);
        assert_eq!(
            live.store.complete(&completion(token)).await.expect("an answer"),
            CompleteAnswer::Completed
        );
    });
}

#[test]
fn a_quarantine_ends() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(Duration::from_millis(50))).await;
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 1).await;
        let claim = fresh_claim();
        until("the quarantine ends", async || live.store.claim(&claim).await.is_ok()).await;
    });
}

#[test]
fn a_quarantine_lasts_as_long_as_the_longest_lease_that_was_seen() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(Duration::ZERO)).await;
        let claim = claim_of(fresh_claim().id, Duration::from_hours(1));
        live.store.claim(&claim).await.expect("a grant");
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 1).await;
        assert_quarantined(&live.store).await;
    });
}

#[test]
fn a_quarantine_outlasts_the_leases_of_a_process_that_is_gone() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(Duration::ZERO)).await;
        let other = live.home.connect(&live.server.url(), with_quarantine(Duration::ZERO)).await;
        let other = other.expect("a second store");
        other.claim(&claim_of(fresh_claim().id, Duration::from_hours(1))).await.expect("a grant");
        drop(other);
        // Two looks of the one that is left: the first may have begun before.
        let looks = || counts(&live.server).0;
        let enough = looks() + 2;
        until("the other one's lease is known", async || looks() >= enough).await;
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 1).await;
        assert_quarantined(&live.store).await;
    });
}

#[test]
fn a_mark_of_the_first_version_is_read() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        // As version 1 wrote it: without the longest lease.
        assert_eq!(live.server.ask(&["SETRANGE", "onlyonce:epoch", "0", ""]).expect("SETRANGE"), "40");
        let script = "redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, 32))";
        live.server.ask(&["EVAL", script, "1", "onlyonce:epoch"]).expect("EVAL");
        until("it is written anew", async || {
            live.server.ask(&["STRLEN", "onlyonce:epoch"]).is_ok_and(|bytes| bytes == "40")
        })
        .await;
        complete_one(&*live.store).await;
        assert_eq!(live.store.incidents(), Incidents::default());
    });
}

#[test]
fn a_restart_without_its_records_is_noticed() {
    run(async {
        let live = Live::new(RedisOptions::without_persistence(), with_quarantine(LONG)).await;
        let done = complete_one(&*live.store).await;
        live.server.restart().expect("the server starts again");
        until("the loss is noticed", async || live.store.incidents().emptied == 1).await;
        assert_quarantined(&live.store).await;
        assert_eq!(live.store.lookup(&done.id).await.expect("a lookup"), None);
        assert!(!live.store.durability().power_cut);
    });
}

#[test]
fn a_restart_of_a_server_that_syncs_later_is_quarantined() {
    run(async {
        let server = RedisOptions { appendfsync: Some("everysec"), ..RedisOptions::default() };
        let live = Live::new(server, with_quarantine(LONG)).await;
        complete_one(&*live.store).await;
        // The mark must be on the disk, or the server would come back empty.
        live.server.ask(&["CONFIG", "SET", "appendfsync", "always"]).expect("CONFIG SET");
        live.server.ask(&["SET", "other", "1"]).expect("SET");
        live.server.ask(&["CONFIG", "SET", "appendfsync", "everysec"]).expect("CONFIG SET");
        live.server.restart().expect("the server starts again");
        until("the restart is noticed", async || live.store.incidents().restarted_unsynced == 1).await;
        assert_quarantined(&live.store).await;
        assert!(!live.store.durability().power_cut);
    });
}

#[test]
fn a_restart_of_a_server_that_syncs_first_loses_nothing_and_grants_at_once() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(LONG)).await;
        let done = complete_one(&*live.store).await;
        live.server.restart().expect("the server starts again");
        until("the restart is noticed", async || live.store.incidents().restarted == 1).await;
        let replay = live.store.claim(&by_another(&done)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        complete_one(&*live.store).await;
        assert_eq!(live.store.incidents(), Incidents { restarted: 1, ..Incidents::default() });
        assert!(live.store.durability().power_cut && !live.store.durability().node_loss);
        let text = live.store.survival().to_string();
        assert!(text.contains("a power cut loses nothing") && text.contains("fail-over may lose"), "{text}");
    });
}

#[test]
fn fences_go_on_growing_when_the_servers_memory_is_lost() {
    run(async {
        let live = Live::new(RedisOptions::default(), with_quarantine(Duration::from_millis(1))).await;
        let claim = claim_of(fresh_claim().id, Duration::from_millis(100));
        let before = token_of(&claim, &live.store.claim(&claim).await.expect("a grant"));
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 1).await;
        let again = by_another(&claim);
        let mut answer = None;
        until("the quarantine ends", async || {
            answer = live.store.claim(&again).await.ok();
            answer.is_some()
        })
        .await;
        let after = token_of(&again, &answer.expect("an answer"));
        assert!(after.fence > before.fence);
    });
}

#[test]
fn claims_that_wait_for_the_server_know_of_what_it_lost() {
    run(async {
        let options = Options { timeout: Duration::from_secs(3), ..with_quarantine(LONG) };
        let live = Live::new(RedisOptions::without_persistence(), options).await;
        complete_one(&*live.store).await;
        live.server.kill();
        // From here on the connection is known to be gone, and claims wait for the next one.
        let refused = live.store.claim(&fresh_claim()).await;
        assert!(refused.is_err(), "the server is gone: {refused:?}");
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let store = std::sync::Arc::clone(&live.store);
                tokio::spawn(async move { store.claim(&fresh_claim()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        live.server.restart().expect("the server starts again");
        for claim in waiting {
            let answer = claim.await.expect("no panic");
            assert!(answer.is_err(), "granted by a server that has forgotten everything: {answer:?}");
        }
        until("the loss is noticed", async || live.store.incidents().emptied == 1).await;
    });
}

#[test]
fn the_secret_is_put_back_after_a_loss_and_another_one_ends_all_grants() {
    run(async {
        let options = with_quarantine(Duration::ZERO);
        let live = Live::new(RedisOptions::default(), options.clone()).await;
        let (ours, theirs) = (Secret::new([1; 32]), Secret::new([2; 32]));
        assert_eq!(live.store.secret(&ours).await.expect("a secret"), ours);
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 1).await;
        live.store.sweep(SweepBudget::DEFAULT).await.expect("a sweep");
        let other = live.home.connect(&live.server.url(), options).await.expect("a second store");
        assert_eq!(other.secret(&theirs).await.expect("a secret"), ours, "a new process gets the old one");
        // The next time somebody else is faster.
        live.server.flush();
        until("the flush is noticed", async || live.store.incidents().emptied == 2).await;
        assert_eq!(other.secret(&theirs).await.expect("a secret"), theirs);
        live.store.sweep(SweepBudget::DEFAULT).await.expect("a sweep");
        assert_quarantined(&live.store).await;
    });
}
