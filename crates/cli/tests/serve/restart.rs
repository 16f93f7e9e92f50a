//! What outlives the process, and how it ends.

use std::net::TcpStream;
use std::thread;

use serde_json::{Value, json};

use crate::running::{Service, answer, serve, tokens, two_tenants};

const OWNER: &str = "00112233-4455-6677-8899-aabbccddeeff";
const OTHER: &str = "ffeeddccbbaa99887766554433221100";

fn claim(key: &str, owner: &str) -> Value {
    json!({ "key": key, "owner": owner, "lease": "1h", "run_max": "2h" })
}

#[test]
fn leases_of_owners_elsewhere_hold_across_kill_9_of_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}", folder.path().join("records").display());
    let service = Service::start(&["--store", &store]);
    let (_, granted) = service.post("/v1/claims", &claim("k", OWNER));
    assert_eq!(granted["answer"], "granted");
    let id = granted["id"].as_str().unwrap();
    let step = json!({ "owner": OWNER, "fence": granted["fence"], "value": { "json": "charged" } });
    assert_eq!(
        service.post(&format!("/v1/claims/{id}/steps/charge"), &step).1,
        json!({ "answer": "recorded" })
    );
    service.kill();

    let service = Service::start(&["--store", &store]);
    assert_eq!(service.post("/v1/claims", &claim("k", OTHER)).1["answer"], "busy", "the lease holds");
    let (_, again) = service.post("/v1/claims", &claim("k", OWNER));
    assert_eq!((&again["answer"], &again["fence"]), (&json!("granted"), &granted["fence"]), "the same grant");
    assert_eq!(again["steps"], json!([{ "name": "charge", "value": { "json": "charged" } }]));
    let complete = json!({ "owner": OWNER, "fence": granted["fence"], "outcome": { "json": 42 } });
    assert_eq!(
        service.post(&format!("/v1/claims/{id}/complete"), &complete).1,
        json!({ "answer": "completed" })
    );
    service.kill();

    let service = Service::start(&["--store", &store]);
    let (_, replay) = service.post("/v1/claims", &claim("k", OTHER));
    assert_eq!((&replay["answer"], &replay["outcome"]), (&json!("replay"), &json!({ "json": 42 })));
    assert_eq!(
        service.post(&format!("/v1/claims/{id}/complete"), &complete).1,
        json!({ "answer": "already" })
    );
}

#[test]
fn namespaces_have_folders_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = two_tenants(folder.path());
    let store = format!("file:{}", folder.path().join("records").display());
    let args = ["--store", store.as_str(), "--tokens", path.to_str().unwrap()];
    let mut service = Service::start(&args);
    assert_eq!(service.post("/v1/claims", &claim("k", OWNER)).0, 401);
    service.token = Some("alice-alice-alice");
    let (_, alices) = service.post("/v1/claims", &claim("k", OWNER));
    service.token = Some("bob-bob-bob-bob-bob");
    let (_, bobs) = service.post("/v1/claims", &claim("k", OTHER));
    assert_eq!((&alices["answer"], &bobs["answer"]), (&json!("granted"), &json!("granted")));
    assert_ne!(alices["id"], bobs["id"]);
    service.signal("-TERM");
    assert!(service.ended().0.success());
    assert!(folder.path().join("records").is_dir() && folder.path().join("records.bob").is_dir());
    let mut service = Service::start(&args);
    service.token = Some("bob-bob-bob-bob-bob");
    assert_eq!(
        service.post("/v1/claims", &claim("k", OWNER)).1["answer"],
        "busy",
        "its own, after a restart"
    );
}

#[test]
fn sigterm_answers_those_who_wait_and_exits_with_zero() {
    let service = Service::start(&["--store", "memory:"]);
    let (_, granted) = service.post("/v1/claims", &claim("k", OWNER));
    let path = format!("/v1/claims/{}/wait?for=60s", granted["id"].as_str().unwrap());
    let waiting = service.begin("GET", &path, "");
    // What is read before the signal is answered; what is not is refused with the connection.
    assert_eq!(service.get("/v1/claims").0, 200);
    service.signal("-TERM");
    while TcpStream::connect(&service.address).is_ok() {
        thread::yield_now();
    }
    let told = thread::spawn(move || answer(waiting)).join();
    if let Ok((status, shown)) = told {
        assert_eq!((status, &shown["state"]), (200, &json!("in-flight")));
    }
    let (ended, told) = service.ended();
    assert!(ended.success(), "{ended}: {told}");
    assert!(told.contains("leases hold across a restart"), "{told}");
}

#[test]
fn it_does_not_start_where_others_could_reach_it_without_tokens() {
    let output = serve(&["--listen", "0.0.0.0:0", "--store", "memory:"]).output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("serve.tokens_file"), "{told}");
    let folder = tempfile::tempdir().unwrap();
    let path = tokens(folder.path(), "[[token]]\nsecret = \"0123456789abcdef\"\nscopes = [\"claim\"]\n");
    assert!(std::process::Command::new("chmod").arg("644").arg(&path).status().unwrap().success());
    let output = serve(&["--tokens", path.to_str().unwrap(), "--store", "memory:"]).output().unwrap();
    assert_eq!(output.status.code(), Some(65), "everybody can read the tokens");
}
