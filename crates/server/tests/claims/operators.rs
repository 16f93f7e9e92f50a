//! What operators see and say.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::json;

use crate::client::owner;
use crate::stage::{Stage, with};

#[tokio::test]
async fn an_unknown_record_is_resolved_by_its_fence() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let path = format!("/v1/claims/{id}/resolve");
    let fence = holder["fence"].as_u64().unwrap();
    let not_executed = json!({ "fence": fence, "verdict": "not-executed", "actor": "alice" });
    let answer = stage.caller.ask(&path, not_executed.clone()).await;
    assert_eq!(answer, json!({ "answer": "not-unknown", "state": "in-flight" }));
    stage.caller.ask(&format!("/v1/claims/{id}/abandon"), holder.clone()).await;
    let stale = json!({ "fence": fence + 1, "verdict": "not-executed" });
    assert_eq!(stage.caller.ask(&path, stale).await, json!({ "answer": "stale", "fence": fence }));
    let early = stage.caller.ask(&path, not_executed.clone()).await;
    assert_eq!(early, json!({ "answer": "too-early", "left_ms": 300_000 }));
    stage.clock.advance(Duration::from_mins(5));
    let executed = json!({ "fence": fence, "verdict": "executed", "outcome": { "json": "found" } });
    assert_eq!(stage.caller.ask(&path, executed.clone()).await, json!({ "answer": "resolved" }));
    assert_eq!(stage.caller.ask(&path, executed).await, json!({ "answer": "already" }));
    let replay = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!((&replay["by"], &replay["outcome"]), (&json!("resolve"), &json!({ "json": "found" })));
    let late = with(&holder, &json!({ "outcome": { "json": "late" } }));
    assert_eq!(
        stage.caller.ask(&format!("/v1/claims/{id}/complete"), late).await,
        json!({ "answer": "late" })
    );
    let shown = stage.caller.get(&format!("/v1/claims/{id}")).await.json();
    assert_eq!(shown["late"], json!({ "json": "late" }));
    for wrong in [
        json!({ "fence": fence, "verdict": "executed" }),
        json!({ "fence": fence, "verdict": "not-executed", "outcome": { "json": 1 } }),
        json!({ "fence": fence, "verdict": "still-unknown", "force": true }),
        json!({ "fence": fence, "verdict": "perhaps" }),
        json!({ "fence": 1_u64 << 53, "verdict": "still-unknown" }),
    ] {
        assert_eq!(stage.caller.post(&path, &wrong).await.problem(), "request-invalid", "{wrong}");
    }
}

#[tokio::test]
async fn an_erased_body_is_gone_and_its_key_stays_used() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let erase = async |id: &str| {
        let answer = stage.caller.send(Method::POST, &format!("/v1/claims/{id}/erase"), &[], b"").await;
        (answer.status, answer.json()["answer"].as_str().unwrap().to_owned())
    };
    assert_eq!(erase(&id).await, (StatusCode::OK, "in-flight".to_owned()));
    let complete = with(&holder, &json!({ "outcome": { "json": "personal" } }));
    stage.caller.ask(&format!("/v1/claims/{id}/complete"), complete).await;
    assert_eq!(erase(&id).await, (StatusCode::OK, "erased".to_owned()));
    let replay = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!(replay["outcome"], json!({ "tombstone": "erased" }));
    assert_eq!(stage.caller.get(&format!("/v1/claims/{id}/outcome")).await.problem(), "not-found");
    assert_eq!(erase(&"01".repeat(32)).await.1, "absent");
}

#[tokio::test]
async fn a_listing_goes_through_every_record_once_and_keeps_to_what_was_asked() {
    let stage = Stage::open().await;
    let mut ids = Vec::new();
    for number in 0..7 {
        let claim =
            json!({ "key": format!("k{number}"), "owner": owner(), "principal": format!("p{}", number % 2) });
        ids.push(stage.caller.ask("/v1/claims", claim).await["id"].as_str().unwrap().to_owned());
    }
    ids.sort();
    let (mut seen, mut next) = (Vec::new(), String::new());
    loop {
        let page = stage.caller.get(&format!("/v1/claims?limit=3{next}")).await.json();
        let records = page["records"].as_array().unwrap();
        assert!(records.len() <= 3);
        seen.extend(records.iter().map(|record| record["id"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(after) => next = format!("&after={after}"),
            None => break,
        }
    }
    assert_eq!(seen, ids);
    let count = async |query: &str| {
        stage.caller.get(&format!("/v1/claims?{query}")).await.json()["records"].as_array().unwrap().len()
    };
    assert_eq!(count("principal=p0").await, 4);
    assert_eq!(count("principal=nobody").await, 0);
    assert_eq!(count("state=in-flight").await, 7);
    assert_eq!(count("state=completed,released,unknown").await, 0);
    assert_eq!(count(&format!("prefix={}", &ids[0][..20])).await, 1);
    assert_eq!(count("created_before_ms=0").await, 0);
    for wrong in ["state=gone", "after=1", "limit=many", "colour=red", "limit=-1"] {
        assert_eq!(
            stage.caller.get(&format!("/v1/claims?{wrong}")).await.problem(),
            "request-invalid",
            "{wrong}"
        );
    }
}
