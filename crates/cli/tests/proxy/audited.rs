//! The audit of a running sidecar: refused without it, and whole across kills and damage.

use std::fs;
use std::io::Write as _;

use serde_json::{Value, json};

use crate::operators::{Stage, WHY, lines};

fn numbers(stage: &Stage) -> Vec<u64> {
    let (status, audit) = stage.get("/api/audit");
    assert_eq!(status, 200, "{audit}");
    audit["entries"].as_array().unwrap().iter().map(|entry| entry["n"].as_u64().unwrap()).collect()
}

#[test]
fn what_cannot_be_audited_is_not_done() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    let id = stage.find("k")["id"].as_str().unwrap().to_owned();
    // A folder in its place: nothing can be written there, whoever runs the test.
    fs::create_dir(stage.audit()).unwrap();
    let erase = format!("/api/records/{id}/erase");
    for (status, problem) in [
        stage.post(&erase, &json!({ "why": WHY })),
        stage.post("/api/erase", &json!({ "principal": "Bearer sesame", "why": WHY })),
        stage.post("/api/purge", &json!({ "why": WHY })),
        stage.get(&format!("/api/records/{id}?body=true")),
    ] {
        assert_eq!(
            (status, &problem["type"]),
            (503, &json!("urn:onlyonce:error:audit-unavailable")),
            "{problem}"
        );
        assert!(problem["detail"].as_str().unwrap().contains("audit.jsonl"), "{problem}");
    }
    assert_eq!(stage.find("k")["record"]["erased"], false);
    let (code, _, told) = stage.records(&["erase", &id, "--why", WHY]);
    assert!(code == 69 && told.contains("cannot be audited"), "{code}: {told}");
    // Once it can be written, it is done.
    fs::remove_dir(stage.audit()).unwrap();
    assert_eq!(stage.post(&erase, &json!({ "why": WHY })), (200, json!({ "erased": true })));
    assert_eq!(numbers(&stage), [1]);
}

#[test]
fn numbers_go_on_across_kills_and_a_torn_line_is_passed_over() {
    let mut stage = Stage::over_files(&[]);
    let purge = json!({ "why": WHY });
    assert_eq!(stage.post("/api/purge", &purge).0, 200);
    assert_eq!(stage.post("/api/purge", &purge).0, 200);
    stage.kill_and_restart();
    assert_eq!(numbers(&stage), [1, 2]);
    assert_eq!(stage.post("/api/purge", &purge).0, 200);
    stage.kill_and_restart();
    // As a crash in the middle of a write leaves it.
    let mut file = fs::OpenOptions::new().append(true).open(stage.audit()).unwrap();
    file.write_all(b"{\"n\":4,\"at\":\"2026-11-15T00:00:00.000Z\",\"who\":\"al").unwrap();
    assert_eq!(stage.post("/api/purge", &purge).0, 200);
    assert_eq!(numbers(&stage), [1, 2, 3, 4]);
    let (_, audit) = stage.get("/api/audit");
    assert_eq!(audit["damaged"], 1);
    assert!(audit["entries"][3]["answer"].as_str().unwrap().contains("removed 0"), "{audit}");
    let (_, page) = stage.get("/api/audit?after=1&limit=2");
    assert_eq!((&page["next"], page["entries"].as_array().unwrap().len()), (&json!(3), 2));
    let (code, told, _) = stage.records(&["audit", "--after", "2", "--json"]);
    assert_eq!(code, 0);
    let entries: Vec<Value> = lines(&told);
    assert_eq!(entries.iter().map(|entry| entry["n"].as_u64().unwrap()).collect::<Vec<_>>(), [3, 4]);
    let (code, told, _) = stage.records(&["audit"]);
    assert!(code == 0 && told.contains("purge") && told.contains(WHY), "{told}");
}
