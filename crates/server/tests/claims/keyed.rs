//! The way of a key from the claim to the replay.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Caller, owner};
use crate::stage::{Stage, granted, with};

#[tokio::test]
async fn a_claim_is_granted_once_and_its_outcome_replayed() {
    let stage = Stage::open().await;
    for caller in [stage.caller.clone(), Caller::over_http2(&stage.address)] {
        let key = owner();
        let (first, second) = (owner(), owner());
        let claim =
            |owner: &str| json!({ "key": key, "owner": owner, "payload": { "amount": 1, "to": "x" } });
        let answer = caller.ask("/v1/claims", claim(&first)).await;
        assert_eq!((&answer["answer"], &answer["attempt"]), (&json!("granted"), &json!(1)));
        let again = caller.ask("/v1/claims", claim(&first)).await;
        assert_eq!(again, answer, "i16: the same owner gets the same grant");
        let busy = caller.ask("/v1/claims", claim(&second)).await;
        assert_eq!((&busy["answer"], &busy["left_ms"]), (&json!("busy"), &json!(30_000)));
        let id = answer["id"].as_str().unwrap();
        let outcome = json!({ "json": { "charge": [1, null, "ü"] } });
        let complete = json!({ "owner": first, "fence": answer["fence"], "outcome": outcome });
        let path = format!("/v1/claims/{id}/complete");
        assert_eq!(caller.ask(&path, complete.clone()).await, json!({ "answer": "completed" }));
        assert_eq!(caller.ask(&path, complete).await, json!({ "answer": "already" }));
        // Members in another order are the same payload.
        let replay = json!({ "key": key, "owner": second, "payload": { "to": "x", "amount": 1 } });
        let replay = caller.ask("/v1/claims", replay).await;
        assert_eq!((&replay["answer"], &replay["outcome"]), (&json!("replay"), &outcome));
        assert_eq!((&replay["by"], &replay["left_ms"]), (&json!("execution"), &json!(86_400_000)));
        let other = json!({ "key": key, "owner": second, "payload": { "amount": 2 } });
        assert_eq!(caller.ask("/v1/claims", other).await, json!({ "id": id, "answer": "mismatch" }));
        let raw = caller.get(&format!("/v1/claims/{id}/outcome")).await;
        assert_eq!(raw.status, StatusCode::OK);
        assert_eq!(raw.headers["content-type"], "application/json");
        assert_eq!(raw.body, r#"{"charge":[1,null,"ü"]}"#);
    }
}

#[tokio::test]
async fn principals_and_paths_separate_keys() {
    let stage = Stage::open().await;
    let claims = [
        json!({ "key": "k" }),
        json!({ "key": "k", "principal": "alice" }),
        json!({ "key": "k", "principal": "bob" }),
        json!({ "key": "k", "path": "/a" }),
        json!({ "key": "k", "principal": "alice", "path": "/a" }),
    ];
    for claim in &claims {
        let answer = stage.caller.ask("/v1/claims", with(claim, &json!({ "owner": owner() }))).await;
        assert_eq!(answer["answer"], "granted", "{claim}");
    }
}

#[tokio::test]
async fn only_the_owner_may_write() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let fence = holder["fence"].as_u64().unwrap();
    let strangers = [
        json!({ "owner": owner(), "fence": fence }),
        json!({ "owner": holder["owner"], "fence": fence + 1 }),
    ];
    for stranger in strangers {
        for (verb, more) in [
            ("renew", json!({})),
            ("complete", json!({ "outcome": { "json": "forged" } })),
            ("release", json!({})),
            ("abandon", json!({})),
            ("steps/charge", json!({ "value": { "json": "forged" } })),
        ] {
            let answer = stage.caller.ask(&format!("/v1/claims/{id}/{verb}"), with(&stranger, &more)).await;
            assert_eq!(answer, json!({ "answer": "fenced" }), "{verb}");
        }
    }
    let renewed =
        stage.caller.ask(&format!("/v1/claims/{id}/renew"), with(&holder, &json!({ "lease": "1m" }))).await;
    assert_eq!(renewed, json!({ "answer": "renewed", "left_ms": 60_000 }));
    let shown = stage.caller.get(&format!("/v1/claims/{id}")).await;
    let text = String::from_utf8(shown.body.to_vec()).unwrap();
    assert!(!text.contains(holder["owner"].as_str().unwrap()), "an owner is a secret: {text}");
}

#[tokio::test]
async fn released_keys_run_again_and_abandoned_ones_are_held() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let released = stage.caller.ask(&format!("/v1/claims/{id}/release"), holder).await;
    assert_eq!(released, json!({ "answer": "released" }));
    let again = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!((&again["answer"], &again["attempt"]), (&json!("granted"), &json!(2)));

    let (id, holder) = stage.granted("lost").await;
    assert_eq!(
        stage.caller.ask(&format!("/v1/claims/{id}/abandon"), holder.clone()).await["answer"],
        "abandoned"
    );
    let held = stage.caller.ask("/v1/claims", json!({ "key": "lost", "owner": owner() })).await;
    assert_eq!((&held["answer"], &held["fence"]), (&json!("held"), &holder["fence"]));
    let rerun = json!({ "key": "lost", "owner": owner(), "unknown": "rerun" });
    assert_eq!(stage.caller.ask("/v1/claims", rerun).await["attempt"], 2);
}

#[tokio::test]
async fn a_lease_ends_on_the_stores_clock_and_a_late_outcome_counts() {
    let stage = Stage::open().await;
    let owner_one = owner();
    let claim = json!({ "key": "k", "owner": owner_one, "lease": "5s", "retention": "1h" });
    let answer = stage.caller.ask("/v1/claims", claim).await;
    stage.clock.advance(Duration::from_secs(5));
    let held = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!(held["answer"], "held");
    let id = answer["id"].as_str().unwrap();
    let late =
        json!({ "owner": owner_one, "fence": answer["fence"], "outcome": { "json": 1 }, "retention": "2h" });
    assert_eq!(stage.caller.ask(&format!("/v1/claims/{id}/complete"), late).await["answer"], "completed");
    let replay = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!((&replay["answer"], &replay["left_ms"]), (&json!("replay"), &json!(7_200_000)));
}

#[tokio::test]
async fn bytes_of_any_type_are_outcomes_and_steps() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let fence = holder["fence"].to_string();
    let headers = [
        ("content-type", "image/png"),
        ("onlyonce-owner", holder["owner"].as_str().unwrap()),
        ("onlyonce-fence", fence.as_str()),
    ];
    let step = format!("/v1/claims/{id}/steps/a%20step");
    let answer = stage.caller.send(Method::POST, &step, &headers, b"\0\xff").await;
    assert_eq!(answer.json(), json!({ "answer": "recorded" }));
    let again = stage.caller.ask(&step, with(&holder, &json!({ "value": { "json": 2 } }))).await;
    let png = |base64: &str| json!({ "content_type": "image/png", "base64": base64 });
    assert_eq!(again, json!({ "answer": "already", "value": png("AP8=") }));
    let path = format!("/v1/claims/{id}/complete");
    let answer = stage.caller.send(Method::POST, &path, &headers, b"\x89PNG").await;
    assert_eq!(answer.json(), json!({ "answer": "completed" }));
    let replay = stage.caller.ask("/v1/claims", json!({ "key": "k", "owner": owner() })).await;
    assert_eq!(replay["outcome"], png("iVBORw=="));
    let raw = stage.caller.get(&format!("/v1/claims/{id}/outcome")).await;
    assert_eq!(raw.headers["content-type"], "image/png");
    assert_eq!(raw.body, &b"\x89PNG"[..]);
}

#[tokio::test]
async fn steps_are_read_back_by_the_next_attempt() {
    let stage = Stage::open().await;
    let (id, holder) = stage.granted("k").await;
    let step = with(&holder, &json!({ "value": { "json": { "charge": 7 } } }));
    let path = format!("/v1/claims/{id}/steps/charge");
    assert_eq!(stage.caller.ask(&path, step).await, json!({ "answer": "recorded" }));
    stage.caller.ask(&format!("/v1/claims/{id}/abandon"), holder).await;
    let rerun = json!({ "key": "k", "owner": owner(), "unknown": "rerun" });
    let answer = stage.caller.ask("/v1/claims", rerun).await;
    assert_eq!(answer["steps"], json!([{ "name": "charge", "value": { "json": { "charge": 7 } } }]));
    let shown = stage.caller.get(&format!("/v1/claims/{id}")).await.json();
    assert_eq!((&shown["steps"], &shown["state"]), (&json!(["charge"]), &json!("in-flight")));
}

#[tokio::test]
async fn a_batch_answers_each_for_itself() {
    let stage = Stage::open().await;
    granted(&stage.caller, "taken").await;
    let claim = |key: &str| json!({ "key": key, "owner": owner() });
    let batch =
        json!({ "claims": [claim("one"), claim("taken"), { "key": "", "owner": owner() }, claim("two")] });
    let answers = stage.caller.ask("/v1/claims/batch", batch).await;
    let told: Vec<&Value> =
        answers["answers"].as_array().unwrap().iter().map(|item| &item["answer"]).collect();
    assert_eq!(told, [&json!("granted"), &json!("busy"), &Value::Null, &json!("granted")]);
    assert_eq!(answers["answers"][2]["error"]["type"], "urn:onlyonce:error:request-invalid");
    assert_eq!(stage.caller.ask("/v1/claims/batch", json!({ "claims": [] })).await, json!({ "answers": [] }));
    let many = json!({ "claims": vec![claim("x"); 1001] });
    assert_eq!(stage.caller.post("/v1/claims/batch", &many).await.problem(), "request-invalid");
}
