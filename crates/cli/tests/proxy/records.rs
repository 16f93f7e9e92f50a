//! The records API of a running sidecar: what an operator sees, and what becomes of what they say.

use std::fs;
use std::io::Write as _;

use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use serde_json::{Value, json};

use crate::binary::answer;
use crate::operators::{Stage, TOKEN, WHY, ask, authorised, raw};

#[test]
fn records_are_listed_by_what_they_are_page_by_page() {
    let stage = Stage::over_files(&[]);
    for number in 0..7 {
        assert_eq!(stage.proxy.post("/pay", &format!("key-{number}")).0, 200);
    }
    assert_eq!(stage.proxy.post("/drop", "lost").0, 502);
    let all = stage.listed("");
    assert_eq!(all.len(), 8);
    assert!(all.is_sorted(), "in the order of ids: {all:?}");
    assert_eq!(stage.listed("&state=completed").len(), 7);
    let unknown = stage.listed("&state=unknown");
    assert_eq!(unknown, [stage.find("lost")["id"].as_str().unwrap()]);
    assert_eq!(stage.listed("&state=unknown&state=completed&older_than=0s").len(), 8);
    assert_eq!(stage.listed("&state=in-flight").len() + stage.listed("&older_than=1h").len(), 0);
    assert_eq!(stage.listed(&format!("&prefix={}", &unknown[0][..20])), unknown);
    let scope = stage.find("lost")["record"]["scope"].as_str().unwrap().to_owned();
    assert_eq!(stage.listed(&format!("&scope={scope}")).len(), 8, "one caller's");
    assert_eq!(stage.listed("&scope=0000000000000000").len(), 0);
    for wrong in ["state=odd", "prefix=xyz", "scope=12", "older_than=soon", "after=1", "limit=x", "odd=1"] {
        let (status, problem) = stage.get(&format!("/api/records?{wrong}"));
        assert_eq!(
            (status, &problem["type"]),
            (400, &json!("urn:onlyonce:error:request-invalid")),
            "{wrong}"
        );
    }
    assert_eq!(stage.get("/api/records/12").0, 400);
    assert_eq!(stage.get(&format!("/api/records/{}", "0".repeat(64))).0, 404);
    let (_, stats) = stage.get("/api/stats");
    assert_eq!((&stats["completed"], &stats["unknown"]), (&json!(7), &json!(1)));
}

#[test]
fn a_body_is_shown_where_it_is_asked_for_and_that_is_audited() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    let found = stage.find("k");
    assert_eq!(found["record"]["state"], "completed");
    let id = found["id"].as_str().unwrap();
    let (_, elsewhere) = stage.post("/api/find", &json!({ "key": "k", "principal": "Bearer other" }));
    assert_eq!(elsewhere["record"], Value::Null, "another caller's key is another key");
    let (status, shown) = stage.get(&format!("/api/records/{id}"));
    assert_eq!(status, 200);
    assert_eq!((&shown["outcome"]["status"], &shown["outcome"]["bytes"]), (&json!(200), &json!(13)));
    assert!(!shown.to_string().contains("effect"), "{shown}");
    let events: Vec<_> =
        shown["timeline"].as_array().unwrap().iter().map(|entry| entry["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["granted", "completed", "replayed"], "{shown}");
    assert_eq!(stage.get("/api/audit").1["entries"], json!([]));
    let (_, shown) = stage.get(&format!("/api/records/{id}?body=true&who=alice"));
    assert_eq!(shown["outcome"]["body"], json!({ "text": "{\"effect\": 1}" }));
    let (_, audit) = stage.get("/api/audit");
    let entry = &audit["entries"][0];
    assert_eq!(
        (&entry["action"], &entry["who"], &entry["id"]),
        (&json!("read-body"), &json!("alice"), &json!(id))
    );
    assert_eq!((&entry["from"], &entry["answer"]), (&json!("127.0.0.1"), &json!("shown")));
    assert!(!fs::read_to_string(stage.audit()).unwrap().contains("effect"));
}

/// Kills the sidecar while the work runs, and waits until its record is unknown: the id and the fence.
fn unknown(stage: &mut Stage, key: &str) -> (String, u64) {
    let before = stage.upstream.effects();
    stage.upstream.hold(true);
    let waiting = stage.proxy.begin("/pay", key);
    stage.upstream.wait_for_effects(before + 1);
    stage.kill_and_restart();
    stage.upstream.hold(false);
    assert_eq!(answer(waiting).0, 0, "killed before it could answer");
    loop {
        let found = stage.find(key);
        // Over a shared store it is in flight until its lease is over.
        match found["record"]["state"].as_str().unwrap() {
            "in-flight" => {}
            state => {
                assert_eq!(state, "unknown");
                let fence = found["record"]["fence"].as_u64().unwrap();
                return (found["id"].as_str().unwrap().to_owned(), fence);
            }
        }
    }
}

fn a_verdict_is_what_the_next_request_meets(mut stage: Stage) {
    let (id, fence) = unknown(&mut stage, "executed");
    let path = format!("/api/records/{id}/resolve");
    let stale = json!({ "fence": fence + 1, "verdict": "executed", "why": WHY });
    let (status, problem) = stage.post(&path, &stale);
    assert_eq!((status, &problem["answer"], &problem["fence"]), (409, &json!("stale"), &json!(fence)));
    let outcome = json!({ "status": 201, "content_type": "application/json", "body": "{\"found\":1}" });
    let executed =
        json!({ "fence": fence, "verdict": "executed", "outcome": outcome, "why": WHY, "who": "alice" });
    let (status, answer) = stage.post(&path, &executed);
    assert_eq!(
        (status, &answer["answer"], &answer["record"]["state"]),
        (200, &json!("resolved"), &json!("completed"))
    );
    assert_eq!(stage.post(&path, &executed).1["answer"], "already");
    let (status, text) = stage.proxy.post("/pay", "executed");
    assert!(status == 201 && text.ends_with("{\"found\":1}"), "{text}");
    assert!(text.contains("idempotency-replayed: true"), "{text}");
    assert_eq!(stage.upstream.effects(), 1);

    let (id, fence) = unknown(&mut stage, "not-executed");
    let path = format!("/api/records/{id}/release");
    let (status, problem) = stage.post(&path, &json!({ "fence": fence, "why": WHY }));
    assert_eq!((status, &problem["answer"]), (409, &json!("too-early")), "it might still run: {problem}");
    assert_eq!(stage.proxy.post("/pay", "not-executed").0, 409, "so nothing has changed");
    let (status, answer) = stage.post(&path, &json!({ "fence": fence, "force": true, "why": WHY }));
    assert_eq!((status, &answer["record"]["state"]), (200, &json!("released")), "{answer}");
    assert_eq!(stage.proxy.post("/pay", "not-executed").0, 200);
    assert_eq!(stage.upstream.effects(), 3, "it ran again");
    let (status, problem) = stage.post(&path, &json!({ "fence": fence, "force": true, "why": WHY }));
    assert_eq!((status, &problem["answer"]), (409, &json!("stale")), "{problem}");

    let (_, audit) = stage.get("/api/audit");
    let actions: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["resolve", "resolve", "resolve", "release", "release", "release"]);
    assert_eq!((&audit["entries"][1]["who"], &audit["entries"][1]["why"]), (&json!("alice"), &json!(WHY)));
    assert_eq!(audit["entries"][1]["answer"], "resolved");
    assert!(audit["entries"][0]["answer"].as_str().unwrap().starts_with("refused"), "{audit}");
}

#[test]
fn a_verdict_is_what_the_next_request_meets_over_files() {
    a_verdict_is_what_the_next_request_meets(Stage::over_files(&[]));
}

#[test]
fn a_verdict_is_what_the_next_request_meets_over_redis() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    a_verdict_is_what_the_next_request_meets(Stage::over(&server.url(), &["--lease", "1s"]));
}

#[test]
fn what_somebody_works_on_is_not_taken_from_them() {
    let stage = Stage::over_files(&[]);
    stage.upstream.hold(true);
    let waiting = stage.proxy.begin("/pay", "k");
    stage.upstream.wait_for_effects(1);
    let found = stage.find("k");
    let (id, fence) = (found["id"].as_str().unwrap(), &found["record"]["fence"]);
    assert_eq!(found["record"]["state"], "in-flight");
    for (command, body) in [
        ("release", json!({ "fence": fence, "force": true, "why": WHY })),
        ("resolve", json!({ "fence": fence, "verdict": "not-executed", "force": true, "why": WHY })),
        ("erase", json!({ "why": WHY })),
    ] {
        let (status, problem) = stage.post(&format!("/api/records/{id}/{command}"), &body);
        assert_eq!(
            (status, &problem["type"]),
            (409, &json!("urn:onlyonce:error:state-conflict")),
            "{command}"
        );
    }
    let (_, erased) = stage.post("/api/erase", &json!({ "principal": "Bearer sesame", "why": WHY }));
    assert_eq!((&erased["erased"], &erased["left"]), (&json!(0), &json!(1)));
    stage.upstream.hold(false);
    assert_eq!(answer(waiting).0, 200);
}

#[test]
fn erasing_one_principal_leaves_the_others() {
    let stage = Stage::over_files(&[]);
    let others = |key: &str| {
        let mut stream = stage.proxy.connect();
        write!(
            stream,
            "POST /pay HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer other\r\nIdempotency-Key: {key}\r\n\
             Content-Length: 3\r\nConnection: close\r\n\r\n100"
        )
        .unwrap();
        answer(stream)
    };
    for key in ["a", "b"] {
        assert_eq!(stage.proxy.post("/pay", key).0, 200);
        assert_eq!(others(key).0, 200);
    }
    let (status, erased) = stage.post("/api/erase", &json!({ "principal": "bearer sesame", "why": WHY }));
    assert_eq!((status, &erased["erased"], &erased["left"]), (200, &json!(2), &json!(0)), "{erased}");
    for key in ["a", "b"] {
        let (_, text) = stage.proxy.post("/pay", key);
        assert!(text.contains("answer-not-kept") && !text.contains("effect\""), "{text}");
        assert!(others(key).1.contains("{\"effect\":"), "another's answer is untouched");
        assert_eq!(stage.find(key)["record"]["erased"], true);
    }
    assert_eq!(stage.upstream.effects(), 4, "nothing ran again");
    let id = stage.post("/api/find", &json!({ "key": "a", "principal": "Bearer other" })).1["id"].clone();
    let (_, erased) =
        stage.post(&format!("/api/records/{}/erase", id.as_str().unwrap()), &json!({ "why": WHY }));
    assert_eq!(erased, json!({ "erased": true }));
    assert!(others("a").1.contains("answer-not-kept"));
    assert!(!fs::read_to_string(stage.audit()).unwrap().contains("sesame"), "no credential in the audit");
}

#[test]
fn what_has_expired_is_purged() {
    let stage = Stage::over("memory:", &["--retention", "1s"]);
    assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    assert_eq!(stage.get("/api/stats").1["completed"], 1);
    // It reads as absent once its second is over; it is still there to be removed.
    while !stage.find("k")["record"].is_null() {}
    let (status, purged) = stage.post("/api/purge", &json!({ "why": WHY }));
    assert_eq!(
        (status, purged),
        (200, json!({ "removed": 1, "dropped": 0, "made_unknown": 0, "more": false }))
    );
    assert_eq!(stage.get("/api/stats").1["completed"], 0);
}

#[test]
fn only_who_shows_the_token_and_no_other_site_is_answered() {
    let stage = Stage::over_files(&[]);
    assert_eq!(stage.proxy.post("/drop", "k").0, 502);
    let found = stage.find("k");
    let id = found["id"].as_str().unwrap();
    let paths = ["/api/records", "/api/stats", "/api/overview", "/api/audit", "/api/events"];
    for path in paths {
        for fields in ["", "Authorization: Bearer wrong\r\n"] {
            assert_eq!(ask(stage.admin, "GET", path, fields, None).0, 401, "{path}");
        }
    }
    let json_type = "Content-Type: application/json\r\n";
    let release = json!({ "fence": found["record"]["fence"], "force": true, "why": WHY });
    let path = format!("/api/records/{id}/release");
    for (fields, expected) in [
        (json_type.to_owned(), 401),
        (format!("{}{json_type}Origin: http://evil.test\r\n", authorised()), 403),
        (format!("{}{json_type}Sec-Fetch-Site: cross-site\r\n", authorised()), 403),
        (format!("{}Content-Type: text/plain\r\n", authorised()), 415),
        (authorised(), 415),
    ] {
        assert_eq!(ask(stage.admin, "POST", &path, &fields, Some(&release)).0, expected, "{fields}");
    }
    assert_eq!(ask(stage.admin, "GET", &path, &authorised(), None).0, 405);
    for body in
        [json!({ "fence": 1 }), json!({ "fence": 1, "why": "" }), json!({ "fence": 1, "why": WHY, "odd": 1 })]
    {
        assert_eq!(stage.post(&path, &body).0, 400, "{body}");
    }
    assert_eq!(stage.find("k")["record"]["state"], "unknown", "nothing was done");
    assert_eq!(stage.get("/api/audit").1["entries"], json!([]), "and there was nothing to audit");
    // The dashboard's files say nothing by themselves.
    let (status, text) = raw(stage.admin, "GET", "/", "", None);
    assert!(
        status == 200 && text.to_lowercase().contains("content-security-policy: default-src 'none'"),
        "{text}"
    );
    assert_eq!(raw(stage.admin, "GET", "/assets/nothing.js", "", None).0, 404);
    let ours = format!(
        "{}{json_type}Origin: http://{}\r\nSec-Fetch-Site: same-origin\r\n",
        authorised(),
        stage.admin
    );
    assert_eq!(ask(stage.admin, "POST", &path, &ours, Some(&release)).0, 200);
}

#[test]
fn the_overview_says_how_things_stand_and_no_secret() {
    let stage = Stage::over_files(&[]);
    for _ in 0..2 {
        assert_eq!(stage.proxy.post("/pay", "k").0, 200);
    }
    let (status, overview) = stage.get("/api/overview");
    assert_eq!((status, &overview["command"]), (200, &json!("proxy")));
    assert_eq!((&overview["answers"]["granted"], &overview["answers"]["replayed"]), (&json!(1), &json!(1)));
    assert_eq!((&overview["endings"]["completed"], &overview["stats"]["completed"]), (&json!(1), &json!(1)));
    assert!(overview["store_ms"]["p99"].as_f64().unwrap() > 0.0, "{overview}");
    assert!(overview["promise"]["store"].as_str().unwrap().starts_with("file:"), "{overview}");
    assert!(overview["configuration"].as_str().unwrap().contains("[store]"), "{overview}");
    assert_eq!(overview["warnings"], json!([]));
    assert!(!overview.to_string().contains(TOKEN), "{overview}");
}
