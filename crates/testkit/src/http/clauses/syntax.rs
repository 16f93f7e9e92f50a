//! What is a key, and what is not (draft §2.1, §5).

use onlyonce_http::Rules;

use super::{ask, is_first, is_problem, is_replay};
use crate::http::{Ask, HttpFixture, Stage};

/// Item 1: the value is a Structured Field String; the bare form is the same key.
pub async fn h1_a_quoted_key_is_the_text_between_the_quotes(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("\"8e03978e-40d5-43e8\"")).await, 1);
    is_replay(&stage.call(ask("8e03978e-40d5-43e8")).await, 1);
    is_first(&stage.call(ask("\"with space\"")).await, 2);
    is_replay(&stage.call(ask("  \"with space\" ")).await, 2);
}

/// Item 2: printable ASCII, and no escapes but two.
pub async fn h2_only_printable_ascii_and_two_escapes_are_accepted(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for bad in [&b"\"a\tb\""[..], b"\"a\\nb\"", b"\"a\x80b\"", b"a\xffb", b"\"open", b"shut\"", b"\"\\x41\""]
    {
        is_problem(&stage.call(Ask::post("/payments").key(bad)).await, 400, "key-invalid");
    }
    is_first(&stage.call(ask("\"a\\\"b\\\\c\"")).await, 1);
    assert_eq!(stage.effects(), 1);
}

/// Item 3: nothing but a String where the rules are strict.
pub async fn h3_strict_routes_take_only_strings(fixture: &impl HttpFixture) {
    let rules = Rules { strict: Some(true), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    for bad in ["abc", "123", ":YWJj:", "?1", "\"a\", \"b\"", "(\"a\")", "1.5", "@1659578233"] {
        is_problem(&stage.call(ask(bad)).await, 400, "key-invalid");
    }
    is_first(&stage.call(ask("\"abc\"")).await, 1);
}

/// Item 4.
pub async fn h4_parameters_do_not_change_the_key(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("\"k\"")).await, 1);
    is_replay(&stage.call(ask("\"k\";v=1;flag")).await, 1);
}

/// Item 5: never "the first one counts".
pub async fn h5_two_header_lines_are_refused(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for (one, two) in [("\"a\"", "\"b\""), ("a", "a"), ("\"a\"", "")] {
        let twice = Ask::post("/payments").add("idempotency-key", one).add("idempotency-key", two);
        is_problem(&stage.call(twice).await, 400, "key-invalid");
    }
    is_problem(&stage.call(ask("\"a\", \"b\"")).await, 400, "key-invalid");
    is_problem(&stage.call(ask("a, b")).await, 400, "key-invalid");
    assert_eq!(stage.effects(), 0);
}

/// Item 6: also where a key is optional, what was meant to be one is not taken for none.
pub async fn h6_a_broken_key_never_runs_unprotected(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { required: Some(false), ..Rules::default() }).await;
    for bad in ["\"open", "a b", "", " ", "a;b", "\"a\" trailing"] {
        is_problem(&stage.call(ask(bad)).await, 400, "key-invalid");
    }
    assert_eq!(stage.effects(), 0);
}

/// Item 7, and the published length of 1 to 255 characters.
pub async fn h7_empty_and_overlong_keys_are_refused(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let (longest, longer) = ("k".repeat(255), "k".repeat(256));
    for bad in ["\"\"", longer.as_str(), &format!("\"{longer}\""), &"k".repeat(8000)] {
        is_problem(&stage.call(ask(bad)).await, 400, "key-invalid");
    }
    is_first(&stage.call(ask(&longest)).await, 1);
    is_replay(&stage.call(ask(&format!("\"{longest}\""))).await, 1);
}

/// Item 36: a key is validated before anything is done with it, and is only ever a name.
pub async fn h36_hostile_keys_do_no_harm(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let hostile =
        ["\"'; DROP TABLE records; --\"", "\"../../etc/passwd\"", "\"${jndi:ldap://x}\"", "\"*\"", "\"{}\""];
    for (number, key) in (1..).zip(hostile) {
        is_first(&stage.call(ask(key)).await, number);
    }
    for (number, key) in (1..).zip(hostile) {
        is_replay(&stage.call(ask(key)).await, number);
    }
    let got = stage.call(Ask::post("/payments").key(b"\"a\x9b31mb\"")).await;
    is_problem(&got, 400, "key-invalid");
    assert!(!got.body.contains(&0x9b), "what was sent is not repeated");
}

/// Item 39: the registered name, in any case, and no other.
pub async fn h39_the_header_name_is_the_registered_one_in_any_case(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(Ask::post("/payments").set("Idempotency-Key", "k")).await, 1);
    is_replay(&stage.call(Ask::post("/payments").set("IDEMPOTENCY-KEY", "k")).await, 1);
    let other = stage.call(Ask::post("/payments").set("x-idempotency-key", "k")).await;
    assert_eq!((other.effect(), other.header("idempotency-replayed")), (2, ""), "not protected, not marked");
}

/// A key where a webhook puts it.
pub async fn d_the_key_may_be_in_another_header(fixture: &impl HttpFixture) {
    let rules = Rules { key: Some("header:webhook-id".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let event = |id: &str| Ask::post("/hooks").set("webhook-id", id);
    is_first(&stage.call(event("msg_1")).await, 1);
    is_replay(&stage.call(event("msg_1")).await, 1);
    is_first(&stage.call(event("msg_2")).await, 2);
}

/// A key where an event puts it.
pub async fn d_the_key_may_be_in_the_body(fixture: &impl HttpFixture) {
    let rules = Rules { key: Some("json:/event/id".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let event = |body: &str| Ask::post("/hooks").json(body);
    is_first(&stage.call(event(r#"{"event":{"id":"evt_1"}}"#)).await, 1);
    is_replay(&stage.call(event(r#"{"event":{"id":"evt_1"}}"#)).await, 1);
    is_problem(&stage.call(event(r#"{"event":{"id":"evt_1"},"x":1}"#)).await, 422, "key-reused");
    is_first(&stage.call(event(r#"{"event":{"id":42}}"#)).await, 2);
    is_replay(&stage.call(event(r#"{"event":{"id":42}}"#)).await, 2);
    for bad in
        [r#"{"event":{"id":["a"]}}"#, r#"{"event":{"id":"a"},"event":{"id":"b"}}"#, r#"{"event":{"id":""}}"#]
    {
        is_problem(&stage.call(event(bad)).await, 400, "key-invalid");
    }
    for without in [r#"{"event":{}}"#, r#"{"event":{"id":null}}"#] {
        assert_eq!(stage.call(event(without)).await.header("idempotency-replayed"), "", "it passes");
    }
}
