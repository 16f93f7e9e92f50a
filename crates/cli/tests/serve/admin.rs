//! The admin side of the claims API: each namespace has records of its own, and operators say which they mean.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::running::{PATIENCE, Service, answer, two_tenants};

const OWNER: &str = "00112233445566778899aabbccddeeff";

fn ask(admin: &str, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    answer(stream)
}

#[test]
fn operators_say_which_namespace_they_mean() {
    let folder = tempfile::tempdir().unwrap();
    let path = two_tenants(folder.path());
    let store = format!("file:{}", folder.path().join("records").display());
    let path = path.display().to_string();
    let mut service = Service::start(&["--store", &store, "--tokens", &path, "--admin", "127.0.0.1:0"]);
    let admin = service.wait_for_line("admin on ");
    service.token = Some("bob-bob-bob-bob-bob");
    let claim = json!({ "key": "k", "owner": OWNER, "principal": "carol" });
    let (_, granted) = service.post("/v1/claims", &claim);
    let id = granted["id"].as_str().unwrap();
    let holder = json!({ "owner": OWNER, "fence": granted["fence"] });
    assert_eq!(service.post(&format!("/v1/claims/{id}/abandon"), &holder).0, 200);

    let (status, problem) = ask(&admin, "GET", "/api/records", "");
    assert!(status == 400 && problem["detail"].as_str().unwrap().ends_with("bob, default"), "{problem}");
    assert_eq!(ask(&admin, "GET", "/api/records?namespace=nobody", "").0, 400);
    assert_eq!(ask(&admin, "GET", "/api/records?namespace=default", "").1["records"], json!([]));
    let (_, page) = ask(&admin, "GET", "/api/records?namespace=bob", "");
    assert_eq!((&page["records"][0]["id"], &page["records"][0]["state"]), (&json!(id), &json!("unknown")));
    let sought = json!({ "key": "k", "principal": "carol", "namespace": "bob" }).to_string();
    assert_eq!(ask(&admin, "POST", "/api/find", &sought).1["id"], json!(id));
    let executed = json!({
        "fence": granted["fence"], "verdict": "executed", "outcome": { "body": { "paid": 7 } }, "why": "found",
        "namespace": "bob",
    });
    let (status, answer) = ask(&admin, "POST", &format!("/api/records/{id}/resolve"), &executed.to_string());
    assert_eq!((status, &answer["answer"]), (200, &json!("resolved")), "{answer}");
    let (_, replay) = service.post("/v1/claims", &claim);
    assert_eq!(
        (&replay["answer"], &replay["outcome"]),
        (&json!("replay"), &json!({ "json": { "paid": 7 } }))
    );
    let erase = json!({ "principal": "carol", "namespace": "bob", "why": "asked to" }).to_string();
    assert_eq!(ask(&admin, "POST", "/api/erase", &erase).1["erased"], 1);
    let (_, overview) = ask(&admin, "GET", "/api/overview", "");
    assert_eq!(
        (&overview["command"], &overview["namespaces"]),
        (&json!("serve"), &json!(["bob", "default"]))
    );
    let (answers, endings) = (&overview["answers"], &overview["endings"]);
    assert_eq!(
        (&answers["granted"], &answers["replayed"], &endings["abandoned"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let (_, shown) = ask(&admin, "GET", &format!("/api/records/{id}?namespace=bob"), "");
    let seen: Vec<_> = shown["timeline"].as_array().unwrap().iter().map(|entry| &entry["event"]).collect();
    assert_eq!(seen, ["granted", "abandoned", "resolved", "replayed", "erased"], "{shown}");
    assert_eq!(ask(&admin, "GET", "/api/audit", "").1["entries"].as_array().unwrap().len(), 2);
    service.signal("-TERM");
    assert!(service.ended().0.success());
}
