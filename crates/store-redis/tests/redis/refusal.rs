//! Servers that records must not be kept on are refused, and the refusal says what to do.

use std::time::Duration;

use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{Store, StoreError, StoreErrorKind};
use onlyonce_store_redis::Options;
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{Port, RedisOptions, RedisServer};

use crate::stage::{Home, Live, by_another, complete_one, completion, fresh_claim, patient, token_of, until};

pub(crate) fn text(error: &StoreError) -> String {
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
        let replica =
            RedisServer::start(RedisOptions::default().following(master.port())).expect("a replica");
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

/// A user with all rights but these, and the URL to be that user.
fn limited(server: &RedisServer, rules: &[&str]) -> String {
    let all = ["ACL", "SETUSER", "limited", "reset", "on", ">pw", "~onlyonce:*", "&onlyonce:*", "+@all"];
    server.ask(&[&all, rules].concat()).expect("ACL SETUSER");
    format!("redis://limited:pw@127.0.0.1:{}", server.port())
}

#[test]
fn without_rights_on_channels_all_is_done_and_waiters_look_for_themselves() {
    run(async {
        let server = RedisServer::start(RedisOptions::default()).expect("a server");
        let options = Options { wake_within: Duration::from_millis(10), ..patient() };
        let home = Home::new();
        for missing in [&["resetchannels"][..], &["-subscribe"], &["-publish"]] {
            let url = limited(&server, missing);
            let store = home.connect(&url, options.clone()).await.expect("the store opens");
            let told = store.survival().to_string();
            assert!(told.contains("waiters look for themselves"), "{missing:?}: {told}");
            complete_one(&*store).await;
            store.watch(&fresh_claim().id).await.expect("a watch").await;
        }
        let store = home.connect(&limited(&server, &[]), options).await.expect("the store opens");
        let told = store.survival().to_string();
        assert!(!told.contains("waiters"), "{told}");
    });
}

#[test]
fn missing_rights_are_named_at_start() {
    run(async {
        let server = RedisServer::start(RedisOptions::default()).expect("a server");
        for missing in [&["-get"][..], &["-evalsha"], &["-script"], &["resetkeys"], &["-info"]] {
            let url = limited(&server, missing);
            let error = Home::new().connect(&url, patient()).await.expect_err("rights are missing");
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{missing:?}: {}", text(&error));
            let told = text(&error);
            assert!(told.contains("+evalsha") && told.contains("~PREFIX:*"), "{missing:?}: {told}");
        }
    });
}
