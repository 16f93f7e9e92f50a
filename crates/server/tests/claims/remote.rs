//! The door for engines: what is sent is what the store gets, and back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::client::owner;
use crate::stage::{Stage, with};

fn outcome(body: &str) -> Value {
    json!({ "content_version": 7, "head": "aGVhZA==", "body": body })
}

fn item(id: &str, owner: &str) -> Value {
    let terms = json!({ "lease_ms": 10_000, "run_max_ms": 60_000, "retention_ms": 100_000,
        "unknown_retention_ms": 1_000_000, "unknown": "rerun", "attempts_max": 2, "hold_for_ms": 500_000,
        "sealed": outcome("c2VhbGVk"), "remote": false });
    let fingerprint = json!({ "rules": "cnVsZXM=", "digest": "ab".repeat(32) });
    json!({ "id": id, "owner": owner, "fingerprint": fingerprint, "terms": terms })
}

#[tokio::test]
async fn a_record_goes_its_way_by_id() {
    let stage = Stage::open().await;
    let (id, one) = ("01".repeat(32), owner());
    let items = json!({ "items": [item(&id, &one), item(&id, &owner())] });
    let answers = stage.caller.ask("/v1/store/claim", items).await;
    let grant = &answers["answers"][0];
    assert_eq!(
        (&grant["answer"], &grant["attempt"], &grant["steps"]),
        (&json!("granted"), &json!(1), &json!([]))
    );
    assert_eq!(answers["answers"][1], json!({ "answer": "busy", "left_ms": 10_000 }));
    let token = json!({ "id": id, "owner": one, "fence": grant["fence"] });
    let step = with(&token, &json!({ "name": "charge", "value": "AP8=" }));
    assert_eq!(stage.caller.ask("/v1/store/step", step.clone()).await, json!({ "answer": "recorded" }));
    assert_eq!(
        stage.caller.ask("/v1/store/step", step).await,
        json!({ "answer": "already", "value": "AP8=" })
    );
    stage.clock.advance(Duration::from_secs(10));
    let second = owner();
    let answers = stage.caller.ask("/v1/store/claim", json!({ "items": [item(&id, &second)] })).await;
    let grant = &answers["answers"][0];
    assert_eq!(
        (&grant["attempt"], &grant["steps"]),
        (&json!(2), &json!([{ "name": "charge", "value": "AP8=" }]))
    );
    let complete = |token: &Value| json!({ "items": [with(token, &json!({ "outcome": outcome("AQI=") }))] });
    let stale = stage.caller.ask("/v1/store/complete", complete(&token)).await;
    assert_eq!(stale, json!({ "answers": [{ "answer": "fenced" }] }));
    let token = json!({ "id": id, "owner": second, "fence": grant["fence"] });
    let done = stage.caller.ask("/v1/store/complete", complete(&token)).await;
    assert_eq!(done, json!({ "answers": [{ "answer": "completed" }] }));
    let replay = stage.caller.ask("/v1/store/claim", json!({ "items": [item(&id, &owner())] })).await;
    assert_eq!(replay["answers"][0]["outcome"], outcome("AQI="));
    // What an engine wrote, the other door shows as the bytes it is.
    let shown = stage.caller.get(&format!("/v1/claims/{id}")).await.json();
    assert_eq!(shown["outcome"], json!({ "base64": "AQI=", "content_version": 7, "head": "aGVhZA==" }));
    let mut other = item(&id, &owner());
    other["fingerprint"]["rules"] = json!("");
    let mismatch = stage.caller.ask("/v1/store/claim", json!({ "items": [other] })).await;
    assert_eq!(mismatch["answers"][0], json!({ "answer": "mismatch", "rules": "cnVsZXM=" }));
}

#[tokio::test]
async fn records_move_from_one_service_to_another() {
    let (stage, target) = (Stage::open().await, Stage::open().await);
    let (id, holder) = stage.granted("k").await;
    let complete = with(&holder, &json!({ "outcome": { "json": "moved" } }));
    stage.caller.ask(&format!("/v1/claims/{id}/complete"), complete).await;
    let page =
        stage.caller.ask("/v1/store/list", json!({ "states": ["completed"], "scope": &id[48..] })).await;
    assert_eq!(page["next"], Value::Null);
    let records = json!({ "records": page["records"] });
    let taken = target.caller.ask("/v1/store/import", records.clone()).await;
    assert_eq!(taken, json!({ "taken": 1, "left": 0 }));
    assert_eq!(target.caller.ask("/v1/store/import", records).await, json!({ "taken": 0, "left": 1 }));
    let shown = target.caller.get(&format!("/v1/claims/{id}")).await.json();
    assert_eq!(shown["outcome"], json!({ "json": "moved" }));
    let looked_up = stage.caller.ask("/v1/store/lookup", json!({ "id": id })).await;
    assert_eq!(looked_up["record"], page["records"][0]["record"]);
    let stats = target.caller.ask("/v1/store/stats", json!({})).await;
    assert_eq!((&stats["completed"], &stats["in_flight"]), (&json!(1), &json!(0)));
    let mut damaged = page["records"][0].clone();
    damaged["id"] = json!("01".repeat(32));
    let answer = target.caller.post("/v1/store/import", &json!({ "records": [damaged] })).await;
    assert_eq!(answer.problem(), "request-invalid", "a record of another id is damage");
}

#[tokio::test]
async fn what_the_store_refuses_is_told_with_its_code() {
    let stage = Stage::open().await;
    let items: Vec<_> = (0..1001).map(|_| item(&"01".repeat(32), &owner())).collect();
    let answer = stage.caller.post("/v1/store/claim", &json!({ "items": items })).await;
    assert_eq!(answer.problem(), "request-invalid");
    assert_eq!(
        (&answer.json()["code"], &answer.json()["outcome_unknown"]),
        (&json!("store-misuse"), &json!(false))
    );
    assert_eq!(stage.caller.ask("/v1/store/claim", json!({ "items": [] })).await, json!({ "answers": [] }));
    let about = stage.caller.get("/v1/store").await.json();
    assert_eq!((&about["api"], &about["namespace"]), (&json!(1), &json!("default")));
    assert_eq!(
        about["durability"],
        json!({ "process_crash": false, "power_cut": false, "node_loss": false })
    );
    for budget in [0, 10_001] {
        let answer = stage.caller.post("/v1/store/sweep", &json!({ "budget": budget })).await;
        assert_eq!(answer.problem(), "request-invalid");
    }
}
