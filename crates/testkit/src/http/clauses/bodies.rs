//! Which bodies are the same body, and which are too much.

use onlyonce_http::Rules;
use onlyonce_http::rules::BodyMode;

use super::{ask, is_first, is_problem, is_replay, list};
use crate::http::{Ask, HttpFixture, Stage};

fn json(rules: Rules) -> Rules {
    Rules { body: Some(BodyMode::Json), ..rules }
}

/// Item 16: all but some members.
pub async fn h16_excluded_members_do_not_count_and_all_others_do(fixture: &impl HttpFixture) {
    let rules = json(Rules { exclude: Some(list(&["/metadata/sent_at", "/tries/0"])), ..Rules::default() });
    let stage = Stage::new(fixture, rules).await;
    let sent = |at: u32, amount: u32| {
        ask("k").json(&format!(
            r#"{{"amount":{amount},"metadata":{{"sent_at":{at},"app":1}},"tries":[{at},"x"]}}"#
        ))
    };
    is_first(&stage.call(sent(1, 100)).await, 1);
    is_replay(&stage.call(sent(2, 100)).await, 1);
    is_problem(&stage.call(sent(1, 101)).await, 422, "key-reused");
}

/// Item 16: some members.
pub async fn h16_only_included_members_count(fixture: &impl HttpFixture) {
    let rules = json(Rules { include: Some(list(&["/amount", "/to"])), ..Rules::default() });
    let stage = Stage::new(fixture, rules).await;
    is_first(&stage.call(ask("k").json(r#"{"amount":1,"note":"a"}"#)).await, 1);
    is_replay(&stage.call(ask("k").json(r#"{"note":"b","amount":1}"#)).await, 1);
    for other in [r#"{"amount":2,"note":"a"}"#, r#"{"amount":1,"to":null}"#, r#"{"note":"a"}"#] {
        is_problem(&stage.call(ask("k").json(other)).await, 422, "key-reused");
    }
}

/// Item 16: headers.
pub async fn h16_chosen_headers_count(fixture: &impl HttpFixture) {
    let rules = Rules { fingerprint_headers: Some(list(&["X-Api-Version"])), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let version = |version: &str| ask("k").set("x-api-version", version).set("x-other", version);
    is_first(&stage.call(version("1")).await, 1);
    is_replay(&stage.call(version("1").set("x-other", "2")).await, 1);
    is_problem(&stage.call(version("2")).await, 422, "key-reused");
    is_problem(&stage.call(version("1").without("x-api-version")).await, 422, "key-reused");
}

/// Canonical JSON, and byte by byte for what parsers disagree on.
pub async fn d_json_is_compared_by_value(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, json(Rules::default())).await;
    is_first(&stage.call(ask("k").json(r#"{"a": 1, "b": "x"}"#)).await, 1);
    is_replay(&stage.call(ask("k").json("{\"b\":\"\\u0078\",\n\"a\":1.0}")).await, 1);
    is_problem(&stage.call(ask("k").json(r#"{"a": 1, "b": "y"}"#)).await, 422, "key-reused");
    // Two readings, or none: the bytes count.
    for (number, odd) in (2..).zip([r#"{"a":1,"a":2}"#, r#"{"n":9007199254740993}"#, "{broken", ""]) {
        let key = format!("odd{number}");
        is_first(&stage.call(ask(&key).json(odd)).await, number);
        is_replay(&stage.call(ask(&key).json(odd)).await, number);
        is_problem(&stage.call(ask(&key).json(&format!("{odd} "))).await, 422, "key-reused");
    }
    let raw = Stage::new(fixture, Rules::default()).await;
    is_first(&raw.call(ask("k").json("{\"a\":1}")).await, 1);
    is_problem(&raw.call(ask("k").json("{\"a\": 1}")).await, 422, "key-reused");
}

/// The same parts behind a new boundary are the same request.
pub async fn d_multipart_is_compared_by_part(fixture: &impl HttpFixture) {
    let rules = Rules { body: Some(BodyMode::Multipart), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let form = |boundary: &str, amount: &str| {
        let part = |name: &str, text: &str| {
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
        };
        let body = format!("{}{}--{boundary}--\r\n", part("amount", amount), part("file", "\0\r\n--x"));
        ask("k").set("content-type", format!("multipart/form-data; boundary={boundary}")).body(body)
    };
    is_first(&stage.call(form("aaa", "1")).await, 1);
    is_replay(&stage.call(form("bbb-other", "1")).await, 1);
    is_problem(&stage.call(form("aaa", "2")).await, 422, "key-reused");
    // A body that parsers read in more than one way is compared as it is.
    let loose = |boundary: &str| {
        let body = format!("preamble\r\n--{boundary}\r\n\r\nx\r\n--{boundary}--");
        ask("l").set("content-type", format!("multipart/mixed; boundary={boundary}")).body(body)
    };
    is_first(&stage.call(loose("aaa")).await, 2);
    is_replay(&stage.call(loose("aaa")).await, 2);
    is_problem(&stage.call(loose("bbb")).await, 422, "key-reused");
}

/// Too large is refused before it runs; without a key nothing is held, and it passes.
pub async fn d_a_request_too_large_is_refused_before_it_runs(fixture: &impl HttpFixture) {
    let rules = Rules { request_bytes_max: Some(1000), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    is_first(&stage.call(ask("fits").body(vec![b'x'; 1000])).await, 1);
    let refused = stage.call(ask("k").body(vec![b'x'; 1001])).await;
    is_problem(&refused, 413, "body-too-large");
    assert_eq!(stage.effects(), 1);
    let passed = stage.call(Ask::post("/payments").body(vec![b'x'; 1001])).await;
    assert_eq!(passed.effect(), 2);
    assert_eq!(stage.application.seen()[1].body.len(), 1001);
}
