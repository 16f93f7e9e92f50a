//! Replies that never arrive: the command is done, and asking again gets the same answer.

use std::time::Duration;

use onlyonce_core::record::StateKind;
use onlyonce_core::store::Listing;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::client::{PATIENCE, owner};
use crate::stage::{Stage, with};

/// Sends a request, and hangs up at once.
async fn send_and_vanish(stage: &Stage, path: &str, body: &str) {
    let mut stream = TcpStream::connect(&stage.address).await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// Waits until the store has as many records of `kind`.
async fn stored(stage: &Stage, kind: StateKind, count: usize) {
    let listing = Listing { states: vec![kind], ..Listing::default() };
    let watching = async {
        while stage.store.list(&listing).await.unwrap().records.len() < count {
            tokio::time::sleep(Duration::from_millis(2)).await; // tidy: sleep because nobody is told of a lost reply
        }
    };
    tokio::time::timeout(PATIENCE, watching).await.unwrap();
}

#[tokio::test]
async fn a3_a_claim_whose_reply_is_lost_is_asked_for_again() {
    let stage = Stage::open().await;
    for round in 0..20 {
        let claim = json!({ "key": format!("k{round}"), "owner": owner() });
        send_and_vanish(&stage, "/v1/claims", &claim.to_string()).await;
        stored(&stage, StateKind::InFlight, 1).await;
        let answer = stage.caller.ask("/v1/claims", claim.clone()).await;
        assert_eq!((&answer["answer"], &answer["attempt"]), (&json!("granted"), &json!(1)));
        let id = answer["id"].as_str().unwrap();
        let complete =
            json!({ "owner": claim["owner"], "fence": answer["fence"], "outcome": { "json": round } });
        let path = format!("/v1/claims/{id}/complete");
        send_and_vanish(&stage, &path, &complete.to_string()).await;
        stored(&stage, StateKind::Completed, round + 1).await;
        assert_eq!(stage.caller.ask(&path, complete).await, json!({ "answer": "already" }));
    }
}

#[tokio::test]
async fn a1_half_a_request_claims_nothing() {
    let stage = Stage::open().await;
    let claim = json!({ "key": "k", "owner": owner() }).to_string();
    for length in [0, 1, claim.len() - 1] {
        let mut stream = TcpStream::connect(&stage.address).await.unwrap();
        let head = format!(
            "POST /v1/claims HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            claim.len()
        );
        stream.write_all(format!("{head}{}", &claim[..length]).as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
    }
    let (_, holder) = stage.granted("other").await;
    assert!(holder["fence"].is_u64());
    assert_eq!(stage.store.stats().await.unwrap().records(), 1);
}

#[tokio::test]
async fn every_command_may_be_sent_again_as_it_is() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let step = with(&holder, &json!({ "value": { "json": 1 } }));
    let path = format!("/v1/claims/{id}/steps/charge");
    assert_eq!(stage.caller.ask(&path, step.clone()).await["answer"], "recorded");
    assert_eq!(stage.caller.ask(&path, step).await, json!({ "answer": "already", "value": { "json": 1 } }));
    for _ in 0..2 {
        let renewed = stage.caller.ask(&format!("/v1/claims/{id}/renew"), holder.clone()).await;
        assert_eq!(renewed["answer"], "renewed");
    }
}
