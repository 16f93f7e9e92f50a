//! Servers that records must not be kept on are refused, and the refusal says what to do.

use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Store, StoreError, StoreErrorKind};
use onlyonce_store_redis::{Acknowledgement, Options};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{Port, RedisOptions, RedisServer};

use crate::stage::{Home, Live, by_another, complete_one, completion, fresh_claim, patient, token_of, until};

fn text(error: &StoreError) -> String {
    format!("{error}: {}", std::error::Error::source(error).map(ToString::to_string).unwrap_or_default())
}

async fn refused(server: &RedisServer) -> String {
    text(&Home::new().connect(&server.url(), patient()).await.expect_err("the server is refused"))
}

#[test]
fn a_server_that_evicts_is_refused_unless_asked_for() {
    run(async {
        for policy in ["allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"] {
            let server = RedisOptions::default().with("maxmemory-policy", policy);
            let server = RedisServer::start(server).expect("a server");
            let told = refused(&server).await;
            assert!(
                told.contains(policy) && told.contains("CONFIG SET maxmemory-policy noeviction"),
                "{told}"
            );
            let home = Home::new();
            let options = Options { allow_eviction: true, ..patient() };
            let store = home.connect(&server.url(), options).await.expect("the override counts");
            complete_one(&*store).await;
            assert!(store.survival().to_string().contains("MAY EVICT"));
        }
    });
}

#[test]
fn a_server_that_begins_to_evict_gets_no_new_grants() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let done = complete_one(&*live.store).await;
        let running = fresh_claim();
        let token = token_of(&running, &live.store.claim(&running).await.expect("a grant"));
        live.server.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).expect("CONFIG SET");
        until("it is noticed", async || live.store.claim(&fresh_claim()).await.is_err()).await;
        assert_eq!(
            live.store.complete(&completion(token)).await.expect("an answer"),
            CompleteAnswer::Completed
        );
        let replay = live.store.claim(&by_another(&done)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        live.server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).expect("CONFIG SET");
        until("it is noticed", async || live.store.claim(&fresh_claim()).await.is_ok()).await;
    });
}

#[test]
fn a_full_server_refuses_new_records_and_completes_what_was_granted() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let done = complete_one(&*live.store).await;
        let running = fresh_claim();
        let token = token_of(&running, &live.store.claim(&running).await.expect("a grant"));
        live.server.ask(&["CONFIG", "SET", "maxmemory", "1"]).expect("CONFIG SET");
        let claim = fresh_claim();
        let error = live.store.claim(&claim).await.expect_err("no room");
        assert_eq!(error.kind(), StoreErrorKind::Full, "{}", text(&error));
        assert!(error.is_retryable() && !error.outcome_unknown());
        assert!(text(&error).contains("maxmemory"), "{}", text(&error));
        let replay = live.store.claim(&by_another(&done)).await.expect("an answer");
        assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        assert_eq!(
            live.store.complete(&completion(token)).await.expect("an answer"),
            CompleteAnswer::Completed
        );
        live.server.ask(&["CONFIG", "SET", "maxmemory", "0"]).expect("CONFIG SET");
        let granted = live.store.claim(&claim).await.expect("there is room again");
        assert!(
            matches!(granted, ClaimAnswer::Granted(_)),
            "the refused claim left nothing behind: {granted:?}"
        );
    });
}

#[test]
fn a_replica_is_refused() {
    run(async {
        let master = RedisServer::start(RedisOptions::default()).expect("a server");
        let following = format!("127.0.0.1 {}", master.port());
        let replica =
            RedisServer::start(RedisOptions::default().with("replicaof", &following)).expect("a replica");
        let told = refused(&replica).await;
        assert!(told.contains("replica") || told.contains("READONLY"), "{told}");
    });
}

#[test]
fn nobody_there_is_said_at_once() {
    run(async {
        let port = Port::free().expect("a port");
        let url = format!("redis://127.0.0.1:{}", port.get());
        let error = Home::new().connect(&url, patient()).await.expect_err("nobody is there");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        assert!(error.is_retryable() && !error.outcome_unknown());
        assert!(text(&error).contains(&port.get().to_string()), "{}", text(&error));
    });
}

#[test]
fn a_password_is_used_and_never_shown() {
    run(async {
        let server =
            RedisServer::start(RedisOptions::default().with("requirepass", "opensesame")).expect("a server");
        let with = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
        let home = Home::new();
        let store = home.connect(&with("opensesame"), patient()).await.expect("the password is right");
        complete_one(&*store).await;
        assert!(!format!("{store:?}").contains("opensesame"));
        for url in [server.url(), with("abracadabra")] {
            let error = home.connect(&url, patient()).await.expect_err("the password is wrong");
            assert!(!text(&error).contains("abracadabra"), "{}", text(&error));
        }
    });
}

#[test]
fn an_answer_waits_for_the_disk_where_the_server_can() {
    run(async {
        let server = RedisOptions { appendfsync: Some("everysec"), ..RedisOptions::default() };
        let server = RedisServer::start(server).expect("a server");
        let acknowledgement = Acknowledgement::Disks { replicas: 0, within: Duration::from_secs(20) };
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
        let within = Duration::from_millis(20);
        let acknowledgement = Acknowledgement::Replicas { count: 1, within };
        let live = Live::new(RedisOptions::default(), Options { acknowledgement, ..patient() }).await;
        let claim = fresh_claim();
        let error = live.store.claim(&claim).await.expect_err("there is no replica");
        assert!(error.is_retryable() && error.outcome_unknown(), "{}", text(&error));
        let following = format!("127.0.0.1 {}", live.server.port());
        let _replica =
            RedisServer::start(RedisOptions::default().with("replicaof", &following)).expect("a replica");
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
