//! First request, retry, concurrent retry, and the errors for the rest (draft §2.6, §2.7).

use onlyonce_http::Rules;

use super::{ask, is_first, is_problem, is_replay, runs_once};
use crate::http::{Ask, Got, HttpFixture, Stage, Turn};

/// Item 27.
pub async fn h27_a_first_request_is_processed_once(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let got = stage.call(ask("k").json("{\"amount\":7}")).await;
    is_first(&got, 1);
    assert_eq!(got.status, 201);
    let seen = &stage.application.seen()[0];
    assert_eq!((seen.body.as_ref(), seen.uri.path()), (&b"{\"amount\":7}"[..], "/payments"));
    assert_eq!(seen.headers["idempotency-key"], "k", "the key is forwarded as it was sent");
    assert_eq!(stage.effects(), 1);
}

/// Item 28: the same status, body and headers, and no second effect.
pub async fn h28_a_retry_gets_the_same_answer(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::status(201).header("location", "/payments/7").header("etag", "\"v1\""));
    let first = stage.call(ask("k")).await;
    for _ in 0..3 {
        let again = stage.call(ask("k")).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        for name in ["location", "etag", "content-type"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
        assert!(again.is_replay());
    }
    assert_eq!(stage.effects(), 1);
}

/// Item 28, for errors, under the draft's own profile.
pub async fn h28_a_stored_error_is_replayed_too(fixture: &impl HttpFixture) {
    let rules = Rules { profile: Some("ietf".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    for (number, status) in (1..).zip([422, 500]) {
        stage.application.answers(Turn::status(status));
        let key = format!("\"k{status}\"");
        is_first(&stage.call(ask(&key)).await, number);
        let again = stage.call(ask(&key)).await;
        assert_eq!(again.status, status);
        is_replay(&again, number);
    }
}

/// Item 29.
pub async fn h29_of_many_at_once_one_runs_and_the_others_are_told(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.hold();
    let calls: Vec<_> = (0..50).map(|_| stage.start(ask("k"))).collect();
    stage.application.ran(1).await;
    let refused = stage.call(ask("k")).await;
    is_problem(&refused, 409, "in-flight");
    let seconds: u64 = refused.header("retry-after").parse().expect("it says when to ask again");
    assert!((1..=30).contains(&seconds), "{seconds}");
    stage.application.go_on();
    let (mut ran, mut told, mut replayed) = (0, 0, 0);
    for call in calls {
        let got: Got = call.await.unwrap();
        match (got.status, got.is_replay()) {
            (201, false) => ran += 1,
            // One that came late enough finds the answer.
            (201, true) => replayed += 1,
            (409, _) => told += 1,
            _ => panic!("{got:?}"),
        }
    }
    assert_eq!((ran, told + replayed, stage.effects()), (1, 49, 1));
    is_replay(&stage.call(ask("k")).await, 1);
}

/// Item 30.
pub async fn h30_a_missing_key_is_refused_where_one_is_required(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { required: Some(true), ..Rules::default() }).await;
    let got = stage.call(Ask::post("/payments")).await;
    is_problem(&got, 400, "key-missing");
    assert!(got.document()["detail"].as_str().unwrap().contains("idempotency-key"), "{got:?}");
    assert_eq!(stage.effects(), 0);
    let read = stage.call(Ask::post("/payments").method("GET")).await;
    assert_eq!(read.status, 201, "safe methods need no key");
    runs_once(&stage, ask("k")).await;
}

/// Item 31.
pub async fn h31_another_payload_under_the_same_key_is_refused(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("k").json("{\"amount\":100}")).await, 1);
    let got = stage.call(ask("k").json("{\"amount\":101}")).await;
    is_problem(&got, 422, "key-reused");
    let text = String::from_utf8_lossy(&got.body).into_owned();
    assert!(!text.contains("100") && !text.contains("effect"), "nothing of the first is told: {text}");
    for changed in [ask("k").set("content-type", "text/json"), ask("k").set("content-encoding", "identity")] {
        is_problem(&stage.call(changed.body("{\"amount\":100}")).await, 422, "key-reused");
    }
    assert_eq!(stage.effects(), 1);
}

/// Items 30 to 32: the shape of every error of ours.
pub async fn h32_problems_are_problem_json(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { required: Some(true), ..Rules::default() }).await;
    is_first(&stage.call(ask("k")).await, 1);
    stage.application.hold();
    let running = stage.start(ask("running"));
    stage.application.ran(2).await;
    for refused in [Ask::post("/payments"), ask("\"open"), ask("k").json("{}"), ask("running")] {
        let got = stage.call(refused).await;
        assert_eq!(got.header("content-type"), "application/problem+json");
        let document = got.document();
        let uri = document["type"].as_str().unwrap();
        assert!(uri.starts_with("urn:") || uri.starts_with("https://"), "an absolute URI: {uri}");
        assert_eq!(document["status"], got.status);
        for member in ["title", "detail"] {
            assert!(document[member].as_str().is_some_and(|text| text.len() > 10), "{member}: {document}");
        }
        assert_eq!(got.header("idempotency-replayed"), "", "a refusal is no answer of the operation");
    }
    stage.application.go_on();
    running.await.unwrap();
}

/// Item 33.
pub async fn h33_a_mismatch_stays_a_mismatch_and_the_record_stays(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("k")).await, 1);
    for _ in 0..10 {
        is_problem(&stage.call(ask("k").json("{}")).await, 422, "key-reused");
    }
    is_replay(&stage.call(ask("k")).await, 1);
    assert_eq!(stage.effects(), 1);
}

/// No key, and none needed: the request passes as it is.
pub async fn d_requests_without_a_key_pass(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for effect in 1..=3 {
        let got = stage.call(Ask::post("/payments")).await;
        assert_eq!((got.effect(), got.header("idempotency-replayed")), (effect, ""));
    }
    assert_eq!(stage.application.seen()[0].headers.get("onlyonce-fence"), None);
}

/// A 4xx is a refusal: the corrected request may use the key.
pub async fn d_a_refused_request_may_be_corrected(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::status(400));
    is_first(&stage.call(ask("k").json("{\"amount\":-1}")).await, 1);
    stage.application.answers(Turn::status(201));
    is_first(&stage.call(ask("k").json("{\"amount\":1}")).await, 2);
    is_replay(&stage.call(ask("k").json("{\"amount\":1}")).await, 2);
    // After a 5xx the application may have done half of it: only the same request runs again.
    stage.application.answers(Turn::status(503));
    is_first(&stage.call(ask("k2")).await, 3);
    is_problem(&stage.call(ask("k2").json("{}")).await, 422, "key-reused");
    stage.application.answers(Turn::status(201));
    is_first(&stage.call(ask("k2")).await, 4);
}
