//! Long polls: woken by the change they wait for, bounded in number, and no burden to a shutdown.

use std::time::Duration;

use http::StatusCode;
use onlyonce_server::config::File;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Caller, owner};
use crate::stage::{Setup, Stage, with};

/// The claims of the issue, on as many connections as it takes.
const WAITERS: usize = 10_000;
const WAITERS_PER_CONNECTION: usize = 200;

async fn complete(stage: &Stage, id: &str, holder: &serde_json::Value) {
    let body = with(holder, &json!({ "outcome": { "json": "done" } }));
    let answer = stage.caller.ask(&format!("/v1/claims/{id}/complete"), body).await;
    assert_eq!(answer, json!({ "answer": "completed" }));
}

async fn with_waiters_max(waiters_max: usize) -> Stage {
    let mut flags = File::default();
    flags.serve.waiters_max = Some(waiters_max);
    Box::pin(Stage::set(Setup { flags, ..Setup::default() })).await
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_outcome() {
    let stage = with_waiters_max(1).await;
    let (id, holder) = stage.granted("k").await;
    let path = format!("/v1/claims/{id}/wait?for=60s");
    let caller = stage.caller.clone();
    let waiting = tokio::spawn(async move { caller.get(&path).await.json() });
    stage.waiters(1).await;
    complete(&stage, &id, &holder).await;
    let shown = waiting.await.unwrap();
    assert_eq!((&shown["state"], &shown["outcome"]), (&json!("completed"), &json!({ "json": "done" })));
    // It is known now: nobody waits.
    assert_eq!(stage.caller.get(&format!("/v1/claims/{id}/wait?for=60s")).await.json(), shown);
}

#[tokio::test]
async fn a_claim_that_waits_gets_the_outcome_or_the_grant() {
    let stage = with_waiters_max(1).await;
    for ends in ["complete", "release"] {
        let (id, holder) = stage.granted(ends).await;
        let claim = json!({ "key": ends, "owner": owner(), "wait": "60s" });
        let caller = stage.caller.clone();
        let waiting = tokio::spawn(async move { caller.ask("/v1/claims", claim).await });
        stage.waiters(1).await;
        match ends {
            "complete" => complete(&stage, &id, &holder).await,
            _ => drop(stage.caller.ask(&format!("/v1/claims/{id}/release"), holder).await),
        }
        let answer = waiting.await.unwrap();
        let expected = if ends == "complete" { "replay" } else { "granted" };
        assert_eq!(answer["answer"], expected, "{answer}");
    }
}

#[tokio::test]
async fn a_version_is_waited_for_through_the_store_door() {
    let stage = with_waiters_max(1).await;
    let (id, holder) = stage.granted("k").await;
    let known = stage.caller.ask("/v1/store/wait", json!({ "id": id })).await;
    assert_eq!(known["changed"], false);
    let same = json!({ "id": id, "version": known["version"], "within_ms": 1 });
    assert_eq!(stage.caller.ask("/v1/store/wait", same).await, known);
    let wait = json!({ "id": id, "version": known["version"], "within_ms": 60_000 });
    let caller = stage.caller.clone();
    let waiting = tokio::spawn(async move { caller.ask("/v1/store/wait", wait).await });
    stage.waiters(1).await;
    complete(&stage, &id, &holder).await;
    let changed = waiting.await.unwrap();
    assert_eq!(changed["changed"], true);
    // A change between the question and the wait is not missed.
    let late = json!({ "id": id, "version": known["version"], "within_ms": 60_000 });
    assert_eq!(stage.caller.ask("/v1/store/wait", late).await, changed);
}

#[tokio::test]
async fn one_more_waiter_than_may_is_refused_and_told_when_to_ask_again() {
    let stage = with_waiters_max(1).await;
    let (id, holder) = stage.granted("k").await;
    let path = format!("/v1/claims/{id}/wait?for=60s");
    let (caller, first) = (stage.caller.clone(), path.clone());
    let waiting = tokio::spawn(async move { caller.get(&first).await });
    stage.waiters(1).await;
    let refused = stage.caller.get(&path).await;
    assert_eq!((refused.status, refused.problem().as_str()), (StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
    assert_eq!(refused.headers["retry-after"], "1");
    let (other, _) = stage.granted("other").await;
    let shown = stage.caller.get(&format!("/v1/claims/{other}/wait?for=1ms")).await;
    assert_eq!(shown.json()["state"], "in-flight", "another record has seats of its own");
    complete(&stage, &id, &holder).await;
    assert_eq!(waiting.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_waiter_who_is_gone_leaves_the_seat() {
    let stage = with_waiters_max(1).await;
    let (id, _) = stage.granted("k").await;
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let request = format!("GET /v1/claims/{id}/wait?for=60s HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stage.waiters(1).await;
    drop(stream);
    // Well before the minute that it would have waited for.
    tokio::time::timeout(Duration::from_secs(50), stage.waiters(0)).await.expect("the seat is free");
}

#[tokio::test]
async fn a_shutdown_tells_those_who_wait() {
    let mut stage = with_waiters_max(1).await;
    let (id, _) = stage.granted("k").await;
    let (caller, path) = (stage.caller.clone(), format!("/v1/claims/{id}/wait?for=60s"));
    let waiting = tokio::spawn(async move { caller.get(&path).await });
    stage.waiters(1).await;
    stage.stop();
    let answer = tokio::time::timeout(Duration::from_secs(50), waiting).await.unwrap().unwrap();
    assert_eq!(answer.json()["state"], "in-flight", "told how it stands, and not cut off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_waiters_on_one_key_are_all_woken() {
    let stage = with_waiters_max(WAITERS).await;
    let (id, holder) = stage.granted("k").await;
    let before = resident();
    let mut waiting = JoinSet::new();
    for _ in 0..WAITERS / WAITERS_PER_CONNECTION {
        let caller = Caller::over_http2(&stage.address);
        for _ in 0..WAITERS_PER_CONNECTION {
            let (caller, path) = (caller.clone(), format!("/v1/claims/{id}/wait?for=60s"));
            waiting.spawn(async move {
                // Who was told how it stands asks again: on a loaded machine a minute passes.
                loop {
                    let shown = caller.get(&path).await.json();
                    if shown["state"] != "in-flight" {
                        return shown;
                    }
                }
            });
        }
    }
    stage.waiters(WAITERS).await;
    let grown = resident().saturating_sub(before);
    complete(&stage, &id, &holder).await;
    let mut woken = 0;
    while let Some(shown) = waiting.join_next().await {
        assert_eq!(shown.unwrap()["outcome"], json!({ "json": "done" }));
        woken += 1;
    }
    assert_eq!(woken, WAITERS);
    assert!(grown < 1 << 30, "{WAITERS} waiters and their callers took {grown} bytes");
}

/// The bytes of this process that are in memory.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
