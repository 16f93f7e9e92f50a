//! Two tenants cannot see each other, in any endpoint; and nobody gets in without the right token.

use std::collections::BTreeSet;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::client::{Answer, Caller, owner};
use crate::stage::{Setup, Stage, granted, with};

const TOKENS: &str = r#"
[[token]]
secret = "alice-alice-alice-alice"
scopes = ["claim", "read", "resolve", "erase", "store"]
[[token]]
secret = "bob-bob-bob-bob-bob-bob"
namespace = "bob"
scopes = ["claim", "read", "resolve", "erase", "store"]
[[token]]
secret = "powerless-powerless"
namespace = "bob"
scopes = []
"#;

/// One request to each endpoint that names a record, about `id`, as somebody who knows everything about it.
fn requests(id: &str, holder: &Value) -> Vec<(Method, &'static str, Value)> {
    let grant = with(holder, &json!({ "id": id }));
    let outcome = json!({ "content_version": 1, "head": "", "body": "" });
    let fence = &holder["fence"];
    vec![
        (Method::GET, "/v1/claims/{id}", Value::Null),
        (Method::GET, "/v1/claims/{id}/outcome", Value::Null),
        (Method::GET, "/v1/claims/{id}/wait", Value::Null),
        (Method::POST, "/v1/claims/{id}/renew", holder.clone()),
        (Method::POST, "/v1/claims/{id}/complete", with(holder, &json!({ "outcome": { "json": "forged" } }))),
        (Method::POST, "/v1/claims/{id}/release", holder.clone()),
        (Method::POST, "/v1/claims/{id}/abandon", holder.clone()),
        (Method::POST, "/v1/claims/{id}/steps/{name}", with(holder, &json!({ "value": { "json": 1 } }))),
        (
            Method::POST,
            "/v1/claims/{id}/resolve",
            json!({ "fence": fence, "verdict": "not-executed", "force": true }),
        ),
        (Method::POST, "/v1/claims/{id}/erase", Value::Null),
        (Method::POST, "/v1/store/renew", json!({ "items": [with(&grant, &json!({ "lease_ms": 1000 }))] })),
        (
            Method::POST,
            "/v1/store/complete",
            json!({ "items": [with(&grant, &json!({ "outcome": outcome }))] }),
        ),
        (
            Method::POST,
            "/v1/store/release",
            json!({ "items": [with(&grant, &json!({ "keep_fingerprint": true }))] }),
        ),
        (Method::POST, "/v1/store/abandon", grant.clone()),
        (Method::POST, "/v1/store/step", with(&grant, &json!({ "name": "charge", "value": "" }))),
        (
            Method::POST,
            "/v1/store/resolve",
            json!({ "id": id, "fence": fence, "verdict": "not-executed", "force": true }),
        ),
        (Method::POST, "/v1/store/erase", json!({ "id": id })),
        (Method::POST, "/v1/store/lookup", json!({ "id": id })),
        (Method::POST, "/v1/store/wait", json!({ "id": id })),
    ]
}

/// Requests to the endpoints that name no record of their own.
fn others(id: &str) -> Vec<(Method, &'static str, Value)> {
    vec![
        (Method::GET, "/v1/claims", Value::Null),
        (Method::POST, "/v1/store/list", json!({})),
        (Method::POST, "/v1/store/stats", json!({})),
        (Method::POST, "/v1/store/sweep", json!({ "budget": 100 })),
        (Method::POST, "/v1/store/secret", json!({ "offered": id })),
        (Method::POST, "/v1/store/import", json!({ "records": [] })),
        (Method::GET, "/v1/store", Value::Null),
    ]
}

/// Requests that make records.
fn claims(id: &str) -> Vec<(Method, &'static str, Value)> {
    let outcome = json!({ "content_version": 0, "head": "", "tombstone": "indeterminate" });
    let terms = json!({ "lease_ms": 1000, "run_max_ms": 1000, "retention_ms": 1000, "unknown_retention_ms": 1000,
        "unknown": "hold", "attempts_max": 1, "hold_for_ms": 1000, "sealed": outcome, "remote": true });
    let fingerprint = json!({ "rules": "", "digest": "00".repeat(32) });
    let item = json!({ "id": id, "owner": owner(), "fingerprint": fingerprint, "terms": terms });
    vec![
        (Method::POST, "/v1/claims", json!({ "key": "k", "owner": owner(), "principal": "other" })),
        (Method::POST, "/v1/claims/batch", json!({ "claims": [] })),
        (Method::POST, "/v1/store/claim", json!({ "items": [item] })),
    ]
}

async fn send(caller: &Caller, (method, path, body): &(Method, &'static str, Value), id: &str) -> Answer {
    let path = path.replace("{id}", id).replace("{name}", "charge");
    match body {
        Value::Null => caller.send(method.clone(), &path, &[], b"").await,
        body => {
            let headers = [("content-type", "application/json")];
            caller.send(method.clone(), &path, &headers, body.to_string().as_bytes()).await
        }
    }
}

#[tokio::test]
async fn i10_nothing_crosses_a_namespace_in_any_endpoint() {
    let stage = Stage::of(TOKENS).await;
    let (alice, bob) =
        (stage.caller.with("alice-alice-alice-alice"), stage.caller.with("bob-bob-bob-bob-bob-bob"));
    let (running, running_holder) = granted(&alice, "running").await;
    let (done, done_holder) = granted(&alice, "done").await;
    let complete = with(&done_holder, &json!({ "outcome": { "json": "alices-secret" } }));
    alice.ask(&format!("/v1/claims/{done}/complete"), complete).await;
    let before = alice.get("/v1/claims").await.json();
    for (id, holder) in [(&running, &running_holder), (&done, &done_holder)] {
        for request in requests(id, holder) {
            let answer = send(&bob, &request, id).await;
            let (path, text) = (request.1, String::from_utf8_lossy(&answer.body).into_owned());
            assert!(!text.contains("alices-secret"), "{path}: {text}");
            let shows_nothing = answer.status == StatusCode::NOT_FOUND
                || ["fenced", "absent"]
                    .iter()
                    .any(|answer| text.contains(&format!("\"answer\":\"{answer}\"")))
                || text.contains("\"record\":null")
                || text.contains("\"changed\":false");
            assert!(shows_nothing, "{path}: {text}");
        }
    }
    for request in others(&running).into_iter().chain(claims(&running)) {
        let answer = send(&bob, &request, &running).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, StatusCode::OK, "{} {text}", request.1);
        assert!(!text.contains("alices-secret"), "{text}");
        let is_about_it = request.1 == "/v1/store/claim";
        assert!(is_about_it || !text.contains(&running) && !text.contains(&done), "{} {text}", request.1);
    }
    // The same id is a record of his own to Bob, and no change to Alice's.
    assert_eq!(bob.ask("/v1/claims", json!({ "key": "done", "owner": owner() })).await["answer"], "granted");
    assert_eq!(alice.get("/v1/claims").await.json(), before);
    assert_ne!(
        alice.ask("/v1/store/secret", json!({ "offered": "00".repeat(32) })).await,
        bob.ask("/v1/store/secret", json!({ "offered": "00".repeat(32) })).await,
    );
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_that_may() {
    let stage = Stage::of(TOKENS).await;
    let id = "01".repeat(32);
    let holder = json!({ "owner": owner(), "fence": 1 });
    let all: Vec<_> = requests(&id, &holder).into_iter().chain(others(&id)).chain(claims(&id)).collect();
    for request in &all {
        for (caller, status, problem) in [
            (stage.caller.clone(), StatusCode::UNAUTHORIZED, "unauthorized"),
            (stage.caller.with("alice-alice-alice-alicf"), StatusCode::UNAUTHORIZED, "unauthorized"),
            (stage.caller.with("powerless-powerless"), StatusCode::FORBIDDEN, "forbidden"),
        ] {
            let answer = send(&caller, request, &id).await;
            assert_eq!((answer.status, answer.problem().as_str()), (status, problem), "{}", request.1);
            let asks = answer.headers.get("www-authenticate").map(http::HeaderValue::as_bytes);
            assert_eq!(asks, (status == StatusCode::UNAUTHORIZED).then_some(&b"Bearer"[..]));
        }
    }
    // None was left out: what the document describes is what was tried.
    let document = stage.caller.get("/openapi.json").await.json();
    let tried: BTreeSet<_> =
        all.iter().map(|(method, path, _)| (method.as_str().to_lowercase(), *path)).collect();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys().filter(|_| path != "/health/live") {
            assert!(tried.contains(&(method.clone(), path.as_str())), "{method} {path} was not tried");
        }
    }
}

#[tokio::test]
async fn each_scope_opens_its_own_endpoints() {
    const SCOPED: &str = r#"
        [[token]]
        secret = "claim-claim-claim-claim"
        scopes = ["claim"]
        [[token]]
        secret = "read-read-read-read"
        scopes = ["read"]
        [[token]]
        secret = "resolve-resolve-resolve"
        scopes = ["resolve"]
        [[token]]
        secret = "erase-erase-erase-erase"
        scopes = ["erase"]
        [[token]]
        secret = "store-store-store-store"
        scopes = ["store"]
    "#;
    let stage = Stage::of(SCOPED).await;
    let id = "01".repeat(32);
    let holder = json!({ "owner": owner(), "fence": 1 });
    let all: Vec<_> = requests(&id, &holder).into_iter().chain(others(&id)).chain(claims(&id)).collect();
    for (token, may) in [
        ("claim-claim-claim-claim", &["claim", "watch"][..]),
        ("read-read-read-read", &["read", "watch"]),
        ("resolve-resolve-resolve", &["resolve"]),
        ("erase-erase-erase-erase", &["erase"]),
        ("store-store-store-store", &["store"]),
    ] {
        let caller = stage.caller.with(token);
        for request in &all {
            let needs = match (request.0.clone(), request.1) {
                (_, path) if path.starts_with("/v1/store") => "store",
                (_, "/v1/claims/{id}/resolve") => "resolve",
                (_, "/v1/claims/{id}/erase") => "erase",
                (Method::GET, "/v1/claims") => "read",
                (Method::GET, _) => "watch",
                _ => "claim",
            };
            let answer = send(&caller, request, &id).await;
            let is_let_in = answer.status != StatusCode::FORBIDDEN;
            assert_eq!(is_let_in, may.contains(&needs), "{token}: {} {}", request.0, request.1);
        }
    }
}

#[tokio::test]
async fn a_quota_refuses_new_work_and_still_replays() {
    const BOUND: &str = r#"
        [[token]]
        secret = "bound-bound-bound-bound"
        scopes = ["claim", "store"]
        in_flight_max = 3
        records_max = 4
    "#;
    let stage = Stage::of(BOUND).await;
    let caller = stage.caller.with("bound-bound-bound-bound");
    let (done, holder) = granted(&caller, "done").await;
    caller
        .ask(&format!("/v1/claims/{done}/complete"), with(&holder, &json!({ "outcome": { "json": 1 } })))
        .await;
    // What has ended counts until the store is asked again: all three are granted sooner or later.
    let mut running = Vec::new();
    while running.len() < 3 {
        let claim = json!({ "key": format!("k{}", running.len()), "owner": owner() });
        let answer = caller.post("/v1/claims", &claim).await;
        match answer.status {
            StatusCode::OK => running.push((claim, answer.json())),
            _ => tokio::time::sleep(Duration::from_millis(20)).await, // tidy: sleep because use is measured once a second
        }
    }
    let refused = json!({ "key": "one more", "owner": owner() });
    let answer = caller.post("/v1/claims", &refused).await;
    assert_eq!((answer.status, answer.problem().as_str()), (StatusCode::TOO_MANY_REQUESTS, "quota"));
    assert_eq!(answer.headers["retry-after"], "1");
    let batch = caller.ask("/v1/claims/batch", json!({ "claims": [refused, running[0].0] })).await;
    assert_eq!(batch["answers"][0]["error"]["type"], "urn:onlyonce:error:quota");
    assert_eq!(batch["answers"][1]["answer"], "granted", "the same owner's again is nothing new");
    let (_, _, body) = claims(&"07".repeat(32)).pop().unwrap();
    let answers = caller.ask("/v1/store/claim", body).await;
    assert_eq!(answers["answers"][0]["error"], json!({ "code": "store-full", "outcome_unknown": false }));
    // With nothing in flight there are as many records as may be.
    for (claim, granted) in &running {
        let complete =
            json!({ "owner": claim["owner"], "fence": granted["fence"], "outcome": { "json": 1 } });
        caller.ask(&format!("/v1/claims/{}/complete", granted["id"].as_str().unwrap()), complete).await;
    }
    assert_eq!(
        caller.post("/v1/claims", &json!({ "key": "new", "owner": owner() })).await.problem(),
        "quota"
    );
    let replay = caller.ask("/v1/claims", json!({ "key": "done", "owner": owner() })).await;
    assert_eq!(replay["answer"], "replay");
}

#[tokio::test]
async fn without_tokens_nobody_else_can_reach_it() {
    let mut flags = onlyonce_server::config::File::default();
    flags.serve.listen = Some("0.0.0.0:0".parse().unwrap());
    flags.store.url = Some("memory:".to_owned());
    let sources = onlyonce_server::config::Sources { flags, ..Default::default() };
    let error = onlyonce_server::Claims::start(&sources).await.err().unwrap().to_string();
    assert!(error.contains("serve.tokens_file"), "{error}");
    let stage = Stage::set(Setup::default()).await;
    assert_eq!(stage.caller.get("/health/live").await.status, StatusCode::OK);
}
