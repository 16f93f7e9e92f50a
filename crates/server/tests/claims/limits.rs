//! What is not understood or too much is refused with a problem that says why, and changes nothing.

use http::{Method, StatusCode};
use onlyonce_server::config::File;
use serde_json::json;

use crate::client::owner;
use crate::stage::{Setup, Stage};

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

#[tokio::test]
async fn what_is_not_a_claim_is_refused() {
    let stage = Stage::open().await;
    let good = owner();
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for body in [
        String::new(),
        "nonsense".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        format!(r#"{{"key":"k","owner":"{good}","colour":"red"}}"#),
        format!(r#"{{"key":"k","key":"l","owner":"{good}"}}"#),
        format!(r#"{{"key":"","owner":"{good}"}}"#),
        format!(r#"{{"key":"ü","owner":"{good}"}}"#),
        format!(r#"{{"key":"{}","owner":"{good}"}}"#, "k".repeat(256)),
        r#"{"key":"k","owner":"short"}"#.to_owned(),
        format!(r#"{{"key":"k","owner":"{good}","lease":"1ms"}}"#),
        format!(r#"{{"key":"k","owner":"{good}","lease":"2h"}}"#),
        format!(r#"{{"key":"k","owner":"{good}","lease":30}}"#),
        format!(r#"{{"key":"k","owner":"{good}","wait":"61s"}}"#),
        format!(r#"{{"key":"k","owner":"{good}","retention":"0s"}}"#),
        format!(r#"{{"key":"k","owner":"{good}","attempts_max":0}}"#),
        format!(r#"{{"key":"k","owner":"{good}","unknown":"guess"}}"#),
        format!(r#"{{"key":"k","owner":"{good}","principal":"{}"}}"#, "p".repeat(1001)),
        format!(r#"{{"key":"k","owner":"{good}","fingerprint":"f","payload":1}}"#),
        format!(r#"{{"key":"k","owner":"{good}","payload":{{"a":1,"a":2}}}}"#),
        format!(r#"{{"key":"k","owner":"{good}","payload":9007199254740993}}"#),
        format!(r#"{{"key":"k","owner":"{good}","payload":{deep}}}"#),
    ] {
        let answer = stage.caller.send(Method::POST, "/v1/claims", &JSON, body.as_bytes()).await;
        assert_eq!(
            (answer.status, answer.problem()),
            (StatusCode::BAD_REQUEST, "request-invalid".to_owned()),
            "{body}"
        );
    }
    let listed = stage.caller.get("/v1/claims").await.json();
    assert_eq!(listed, json!({ "records": [] }), "nothing was claimed");
}

#[tokio::test]
async fn paths_methods_and_types_that_are_not_served_are_told() {
    let stage = Stage::open().await;
    assert_eq!(stage.caller.get("/v2/claims").await.problem(), "not-found");
    assert_eq!(stage.caller.get(&format!("/v1/claims/{}", "01".repeat(32))).await.problem(), "not-found");
    assert_eq!(stage.caller.get("/v1/claims/01").await.problem(), "request-invalid");
    assert_eq!(stage.caller.get("/v1/claims/%ff").await.problem(), "request-invalid");
    let answer = stage.caller.send(Method::DELETE, "/v1/claims", &[], b"").await;
    assert_eq!(
        (answer.status, answer.problem().as_str()),
        (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed")
    );
    let allowed = answer.headers["allow"].to_str().unwrap();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = stage.caller.send(Method::POST, "/v1/claims", &form, b"key=k").await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (415, "media-type-unsupported"));
    let with_charset = [("content-type", "application/json; charset=utf-8")];
    let claim = json!({ "key": "k", "owner": owner() }).to_string();
    let answer = stage.caller.send(Method::POST, "/v1/claims", &with_charset, claim.as_bytes()).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_and_one_that_just_fits_is_not() {
    let mut flags = File::default();
    flags.serve.request_bytes_max = Some(4096);
    let stage = Stage::set(Setup { flags, ..Setup::default() }).await;
    let claim = |length: usize| {
        let start = format!(r#"{{"key":"k{length}","owner":"{}","fingerprint":""#, owner());
        format!(r#"{start}{}"}}"#, "f".repeat(length - start.len() - 2))
    };
    let answer = stage.caller.send(Method::POST, "/v1/claims", &JSON, claim(4096).as_bytes()).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    let answer = stage.caller.send(Method::POST, "/v1/claims", &JSON, claim(4097).as_bytes()).await;
    assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (413, "body-too-large"));
}
