//! What grants and outcomes wait for: the wait is for what they say, and over the connection that wrote it.

use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Store, StoreErrorKind};
use onlyonce_store_redis::{Acknowledgement, Options};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::refusal::text;
use crate::stage::{
    Home, Live, Monitor, by_another, complete_one, completion, fresh_claim, patient, token_of, until,
};

/// One replica, in so short a time that it can be waited for in vain.
const SOON: Acknowledgement = Acknowledgement::Replicas { count: 1, within: Duration::from_millis(20) };
/// One replica, in a time in which also a busy machine answers.
const LATER: Acknowledgement = Acknowledgement::Replicas { count: 1, within: Duration::from_secs(25) };

/// A replica of `server`.
fn follow(server: &RedisServer, options: RedisOptions) -> RedisServer {
    RedisServer::start(options.following(server.port())).expect("a replica")
}

/// Waits until a replica has all of `server`.
async fn followed(server: &RedisServer) {
    let is_online = || server.ask(&["INFO", "replication"]).is_ok_and(|info| info.contains("state=online"));
    until("the replica follows", async || is_online()).await;
}

#[test]
fn an_answer_waits_for_the_disk_where_the_server_can() {
    run(async {
        let server = RedisOptions { appendfsync: Some("everysec"), ..RedisOptions::default() };
        let server = RedisServer::start(server).expect("a server");
        let acknowledgement =
            Acknowledgement::Disks { master: true, replicas: 0, within: Duration::from_secs(20) };
        let options = Options { acknowledgement, ..patient() };
        let home = Home::new();
        let opened = home.connect(&server.url(), options).await;
        if server
            .ask(&["COMMAND", "INFO", "WAITAOF"])
            .expect("COMMAND INFO")
            .to_lowercase()
            .contains("waitaof")
        {
            complete_one(&*opened.expect("the store opens")).await;
        } else {
            let told = text(&opened.expect_err("the server is too old"));
            assert!(told.contains("7.2"), "{told}");
        }
    });
}

#[test]
fn too_few_replicas_fail_the_command_and_its_repetition_is_the_same_command() {
    run(async {
        let options = Options { acknowledgement: SOON, ..patient() };
        let live = Live::new(RedisOptions::default(), options).await;
        let claim = fresh_claim();
        let error = live.store.claim(&claim).await.expect_err("there is no replica");
        assert!(error.is_retryable() && error.outcome_unknown(), "{}", text(&error));
        let _replica = follow(&live.server, RedisOptions::default());
        let mut answer = None;
        until("the replica follows", async || {
            answer = live.store.claim(&claim).await.ok();
            answer.is_some()
        })
        .await;
        let token = token_of(&claim, &answer.expect("an answer"));
        let mut answer = None;
        until("the outcome is acknowledged", async || {
            answer = live.store.complete(&completion(token)).await.ok();
            answer.is_some()
        })
        .await;
        let others = [by_another(&claim), by_another(&claim)];
        until("a batch is acknowledged", async || {
            let batch = live.store.claim_many(&others).await.expect("a batch");
            batch.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_))))
        })
        .await;
    });
}

#[test]
fn a_wait_goes_over_the_connection_of_what_it_waits_for_also_when_that_is_sent_again() {
    run(async {
        let options = Options { acknowledgement: LATER, connections: 3, ..patient() };
        let live = Live::new(RedisOptions::default(), options).await;
        let _replica = follow(&live.server, RedisOptions::default());
        followed(&live.server).await;
        let monitor = Monitor::new(&live.server);
        for _ in 0..3 {
            live.server.ask(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
            complete_one(&*live.store).await;
        }
        let heard = monitor.heard(&live.server);
        let mut sent_again = 0;
        for (at, (client, name)) in heard.iter().enumerate() {
            if name == "EVAL" {
                let mut later = heard[at + 1..].iter().filter(|(other, _)| other == client);
                let next = later.next().map(|(_, name)| name.as_str());
                assert_eq!(next, Some("WAIT"), "after {at} of {heard:?}");
                sent_again += 1;
            }
        }
        assert_eq!(sent_again, 6, "3 claims and 3 completions were forgotten: {heard:?}");
    });
}

#[test]
fn a_batch_that_the_server_forgot_is_sent_again_as_a_batch() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let claims: Vec<_> = (0..50).map(|_| fresh_claim()).collect();
        let monitor = Monitor::new(&live.server);
        live.server.ask(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
        for answer in live.store.claim_many(&claims).await.expect("a batch") {
            assert!(matches!(answer, Ok(ClaimAnswer::Granted(_))), "{answer:?}");
        }
        let heard = monitor.heard(&live.server);
        let brought = heard.iter().filter(|(_, name)| name == "EVAL").count();
        assert_eq!(brought, 1, "{heard:?}");
    });
}

#[test]
fn a_handle_waits_for_what_it_was_made_for() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let sure = live.store.acknowledged(SOON).expect("a handle");
        let claim = fresh_claim();
        let error = sure.claim(&claim).await.expect_err("there is no replica");
        assert!(error.is_retryable() && error.outcome_unknown(), "{}", text(&error));
        let token =
            token_of(&claim, &live.store.claim(&claim).await.expect("the same owner asks the other handle"));
        let error = sure.complete(&completion(token)).await.expect_err("there is no replica");
        assert!(error.outcome_unknown(), "{}", text(&error));
        let done = live.store.complete(&completion(token)).await.expect("an answer");
        assert_eq!(done, CompleteAnswer::Already);
        assert!(sure.survival().to_string().contains("(WAIT)"));
        assert!(!live.store.survival().to_string().contains("(WAIT)"));
        let back = sure.acknowledged(Acknowledgement::None).expect("a handle");
        complete_one(&back).await;
    });
}

#[test]
fn who_waits_holds_nobody_else_up() {
    run(async {
        let live = Live::new(RedisOptions::default(), Options { connections: 1, ..patient() }).await;
        let replica = follow(&live.server, RedisOptions::default());
        followed(&live.server).await;
        let sure = live.store.acknowledged(LATER).expect("a handle");
        complete_one(&sure).await;
        replica.pause();
        // The second one waits for the first to be done waiting.
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let sure = sure.clone();
                tokio::spawn(async move { sure.claim(&fresh_claim()).await })
            })
            .collect();
        let waits =
            || live.server.ask(&["INFO", "clients"]).is_ok_and(|info| info.contains("blocked_clients:1"));
        until("one waits", async || waits()).await;
        complete_one(&*live.store).await;
        assert!(waits(), "nobody waits any more: the others were held up");
        replica.resume();
        for claim in waiting {
            let answer = claim.await.expect("no panic");
            assert!(matches!(answer, Ok(ClaimAnswer::Granted(_))), "{answer:?}");
        }
    });
}

#[test]
fn a_handle_that_could_never_be_served_is_refused() {
    run(async {
        let live = Live::new(RedisOptions::without_persistence(), patient()).await;
        let within = Duration::from_secs(1);
        for wrong in [
            Acknowledgement::Replicas { count: 0, within },
            Acknowledgement::Disks { master: false, replicas: 0, within },
            Acknowledgement::Replicas { count: 1, within: Duration::ZERO },
            Acknowledgement::Replicas { count: 1, within: patient().timeout },
        ] {
            let error = live.store.acknowledged(wrong).expect_err("it makes no sense");
            assert_eq!(error.kind(), StoreErrorKind::Misuse, "{wrong:?}: {}", text(&error));
        }
        let on_disk = Acknowledgement::Disks { master: true, replicas: 0, within };
        let error = live.store.acknowledged(on_disk).expect_err("it has no disk, or is too old to say");
        assert!(text(&error).contains("WAITAOF"), "{}", text(&error));
    });
}

/// The servers here know which connection wrote what, as all do since 7.2.
#[test]
fn what_another_connection_wrote_is_acknowledged_before_it_is_told() {
    run(async {
        let live = Live::new(RedisOptions::valkey(), patient()).await;
        let replica = follow(&live.server, RedisOptions::valkey());
        followed(&live.server).await;
        let other = live.home.connect(&live.server.url(), patient()).await.expect("another process");
        let (soon, later) = (other.acknowledged(SOON), other.acknowledged(LATER));
        let (soon, later) = (soon.expect("a handle"), later.expect("a handle"));
        complete_one(&later).await;
        // From here on the replica hears of nothing, and is still counted as one.
        replica.pause();
        let claim = fresh_claim();
        let token = token_of(&claim, &live.store.claim(&claim).await.expect("a grant"));
        let error = soon.claim(&claim).await.expect_err("the replica does not have the grant");
        assert!(error.outcome_unknown(), "{}", text(&error));
        live.store.complete(&completion(token)).await.expect("a completion");
        let error = soon.complete(&completion(token)).await.expect_err("it does not have the outcome");
        assert!(error.outcome_unknown(), "{}", text(&error));
        let error = soon.claim(&by_another(&claim)).await.expect_err("it does not have what is replayed");
        assert!(error.outcome_unknown(), "{}", text(&error));
        replica.resume();
        assert_eq!(later.complete(&completion(token)).await.expect("an answer"), CompleteAnswer::Already);
        let replay = later.claim(&by_another(&claim)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
    });
}
