//! What is replayed of an answer, and what happens to answers that cannot be kept.

use bytes::Bytes;
use onlyonce_http::Rules;
use onlyonce_http::rules::{ReplayStatus, Retain, Unknown};

use super::{ask, is_problem, list};
use crate::http::{Given, HttpFixture, Stage, Turn};

/// Choice 6: bodies of every kind, and repeated headers.
pub async fn a6_a_replay_is_byte_exact(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let every_byte: Bytes = (0..=255).cycle().take(10_000).collect();
    let bodies =
        [every_byte, Bytes::new(), Bytes::from_static(b"\x1f\x8b\x08\x00not really gzip"), "x".into()];
    for (number, body) in bodies.into_iter().enumerate() {
        let turn = Turn { status: 203, headers: vec![], body: Given::Bytes(body.clone()) }
            .header("link", "</a>; rel=a")
            .header("x-other", "between")
            .header("link", "</b>; rel=b")
            .header("x-latin", &b"caf\xe9"[..])
            .header("content-encoding", "gzip")
            .header("content-type", "application/octet-stream");
        stage.application.answers(turn);
        let key = format!("k{number}");
        let (first, again) = (stage.call(ask(&key)).await, stage.call(ask(&key)).await);
        assert_eq!((again.status, &again.body), (203, &body));
        for name in ["link", "x-other", "x-latin", "content-encoding", "content-type"] {
            let values =
                |got: &crate::http::Got| got.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
            assert_eq!(values(&again), values(&first), "{name}");
        }
        assert_eq!(again.headers.get_all("link").iter().count(), 2);
        assert_eq!(again.header("content-length"), body.len().to_string());
    }
    stage.application.answers(Turn { status: 204, headers: vec![], body: Given::Bytes(Bytes::new()) });
    let (first, again) = (stage.call(ask("204")).await, stage.call(ask("204")).await);
    assert_eq!((first.status, again.status, again.is_replay()), (204, 204, true));
}

/// Choice 6: fields of the connection, the session and the moment.
pub async fn a6_what_belongs_to_the_hop_or_the_caller_is_not_replayed(fixture: &impl HttpFixture) {
    let names = [
        "www-authenticate",
        "authentication-info",
        "proxy-authenticate",
        "set-cookie",
        "traceparent",
        "tracestate",
        "x-request-id",
        "x-correlation-id",
        "x-b3-traceid",
        "age",
        "x-amzn-trace-id",
        "keep-alive",
        "x-hop",
        "server-timing",
        "onlyonce-fence",
        "onlyonce-unrecorded",
    ];
    let stage = Stage::new(fixture, Rules::default()).await;
    let turn = names.iter().fold(Turn::status(201), |turn, name| turn.header(name, "secret-of-the-first"));
    stage.application.answers(turn.header("connection", "x-hop").header("x-kept", "yes"));
    stage.call(ask("k")).await;
    let again = stage.call(ask("k")).await;
    assert!(again.is_replay());
    assert_eq!(again.header("x-kept"), "yes");
    for name in names {
        assert_eq!(again.header(name), "", "{name}");
    }
}

/// Choice 6: a replay must not bring a session back, unless somebody wants it to.
pub async fn a6_cookies_are_replayed_only_on_request(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { store_set_cookie: Some(true), ..Rules::default() }).await;
    stage.application.answers(Turn::status(201).header("set-cookie", "a=1").header("set-cookie", "b=2"));
    for _ in 0..2 {
        let got = stage.call(ask("k")).await;
        let cookies: Vec<_> = got.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"]);
    }
}

/// The work is done: a retry is told so, and it never runs again.
async fn is_done_and_not_kept(stage: &Stage, key: &str, status: u16) {
    let effects = stage.effects();
    let again = stage.call(ask(key)).await;
    is_problem(&again, status, "answer-not-kept");
    assert!(again.is_replay());
    assert_eq!(again.document()["original_status"], status);
    assert_eq!(stage.effects(), effects, "it does not run again");
}

/// Bodies at the bound are kept, one byte more streams through.
pub async fn d_an_answer_too_large_streams_through_and_is_not_kept(fixture: &impl HttpFixture) {
    let rules = Rules { response_bytes_max: Some(10_000), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    for (len, is_kept) in [(9_999, true), (10_000, true), (10_001, false), (1_000_000, false)] {
        let body: Bytes = vec![b'x'; len].into();
        stage.application.answers(Turn::body(Given::Bytes(body.clone())));
        let key = format!("k{len}");
        let first = stage.call(ask(&key)).await;
        assert_eq!(
            (first.status, first.is_whole, first.body.len()),
            (200, true, len),
            "the first caller gets it all"
        );
        if is_kept {
            let again = stage.call(ask(&key)).await;
            assert_eq!((again.is_replay(), again.body), (true, body));
        } else {
            is_done_and_not_kept(&stage, &key, 200).await;
        }
    }
}

/// The record is complete before the first byte leaves, so a caller who has one can rely on it.
pub async fn d_an_endless_answer_streams_through_and_is_not_kept(fixture: &impl HttpFixture) {
    let rules = Rules { response_bytes_max: Some(10_000), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.answers(Turn { status: 202, ..Turn::body(Given::Endless(vec![b'x'; 1000].into())) });
    let first = stage.call_up_to(ask("k"), 50_000).await;
    assert_eq!(first.status, 202);
    assert!(first.body.len() >= 50_000);
    is_done_and_not_kept(&stage, "k", 202).await;

    // Few bytes and no end: after a while that is an endless answer too.
    let rules = Rules { response_within: Some("50ms".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.answers(Turn::body(Given::Hanging("one line\n".into())));
    let first = stage.call_up_to(ask("k"), 9).await;
    assert_eq!((first.status, &first.body[..]), (200, &b"one line\n"[..]));
    is_done_and_not_kept(&stage, "k", 200).await;
}

/// Nobody waits for the end of what is made to go on.
pub async fn d_event_streams_start_at_once_and_are_not_kept(fixture: &impl HttpFixture) {
    let rules = Rules { response_within: Some("1h".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let mut turn = Turn::body(Given::Hanging("event: hello\n\n".into()));
    turn.headers = vec![("content-type", "text/event-stream".into())];
    stage.application.answers(turn);
    let first = stage.call_up_to(ask("k"), 14).await;
    assert_eq!(&first.body[..], b"event: hello\n\n");
    is_done_and_not_kept(&stage, "k", 200).await;
}

/// The status is kept, and nothing else.
pub async fn d_status_only_keeps_the_status(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { store: Some(Retain::StatusOnly), ..Rules::default() }).await;
    stage.application.answers(Turn::status(201).header("location", "/secret/7"));
    let first = stage.call(ask("k")).await;
    assert_eq!((first.status, first.effect(), first.header("location")), (201, 1, "/secret/7"));
    is_done_and_not_kept(&stage, "k", 201).await;
    assert_eq!(stage.call(ask("k")).await.header("location"), "");
}

/// The first caller gets everything; what must not be kept is in no replay.
pub async fn d_redacted_members_and_fields_are_not_replayed(fixture: &impl HttpFixture) {
    let redact = Some(list(&["/card/number", "/people/*/email"]));
    let rules = Rules { redact, redact_headers: Some(list(&["X-Session"])), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let body =
        r#"{"effect":1,"card":{"number":"4111","exp":"12/30"},"people":[{"email":"a@b.c"},{"email":"d"}]}"#;
    let mut turn = Turn::body(Given::Bytes(body.into())).header("x-session", "s3cret").header("x-other", "o");
    turn = turn.header("content-digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:");
    stage.application.answers(turn);
    let first = stage.call(ask("k")).await;
    assert_eq!((&first.body[..], first.header("x-session")), (body.as_bytes(), "s3cret"));
    assert_eq!((first.header("onlyonce-redacted"), first.header("content-digest").len()), ("", 54));
    let again = stage.call(ask("k")).await;
    super::is_replay(&again, 1);
    let fields =
        ["onlyonce-redacted", "x-session", "x-other", "content-digest"].map(|name| again.header(name));
    assert_eq!(fields, ["true", "", "o", ""]);
    let document = again.document();
    assert_eq!(document["card"], serde_json::json!({ "number": "[redacted]", "exp": "12/30" }));
    assert_eq!(document["people"][0]["email"], "[redacted]");
    assert_eq!(document["people"][1]["email"], "[redacted]");
}

/// Fail closed: what cannot be looked into is kept as its status only.
pub async fn d_a_body_that_cannot_be_redacted_is_not_kept(fixture: &impl HttpFixture) {
    let stage =
        Stage::new(fixture, Rules { redact: Some(list(&["/card/number"])), ..Rules::default() }).await;
    stage.application.answers(Turn::body(Given::Bytes("card=4111".into())));
    assert_eq!(&stage.call(ask("k")).await.body[..], b"card=4111");
    is_done_and_not_kept(&stage, "k", 200).await;
    stage.application.answers(Turn::body(Given::Bytes("".into())));
    stage.call(ask("empty")).await;
    assert!(stage.call(ask("empty")).await.is_replay(), "where there is nothing, nothing can be left");
}

/// For callers who take 201 for "made just now".
pub async fn d_replays_can_be_200(fixture: &impl HttpFixture) {
    let stage =
        Stage::new(fixture, Rules { replay_status: Some(ReplayStatus::Ok), ..Rules::default() }).await;
    let first = stage.call(ask("k")).await;
    let again = stage.call(ask("k")).await;
    assert_eq!((first.status, again.status, &again.body), (201, 200, &first.body));
    stage.application.answers(Turn::status(303));
    stage.call(ask("see-other")).await;
    assert_eq!(stage.call(ask("see-other")).await.status, 303, "only successes");
}

/// Work that the application says is done does not run again because its answer breaks off.
pub async fn d_what_is_committed_stays_so_although_its_answer_breaks_off(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { unknown: Some(Unknown::Rerun), ..Rules::default() }).await;
    for (number, half) in (1..).zip(["", "half"]) {
        let turn = Turn::body(Given::CutOff(half.into())).header("onlyonce-outcome", "committed");
        stage.application.answers(Turn { status: 202, ..turn });
        let key = format!("k{number}");
        let first = stage.call(ask(&key)).await;
        is_problem(&first, 202, "answer-not-kept");
        assert!(!first.is_replay());
        is_done_and_not_kept(&stage, &key, 202).await;
        assert_eq!(stage.effects(), number);
    }
}

/// `Onlyonce-Outcome` and `Onlyonce-Retention` are for the layer, and stripped.
pub async fn d_the_application_can_steer(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let answers = |status, outcome: &'static str| {
        stage.application.answers(Turn::status(status).header("onlyonce-outcome", outcome));
    };
    answers(422, "committed");
    let first = stage.call(ask("committed")).await;
    assert_eq!((first.status, first.header("onlyonce-outcome")), (422, ""));
    super::is_replay(&stage.call(ask("committed")).await, 1);

    answers(200, "failed");
    stage.call(ask("failed")).await;
    answers(200, "committed");
    super::is_first(&stage.call(ask("failed")).await, 3);

    answers(200, "unknown");
    assert_eq!(stage.call(ask("unknown")).await.status, 200, "the first caller gets the answer");
    is_problem(&stage.call(ask("unknown")).await, 409, "outcome-unknown");

    answers(200, "discard");
    super::is_first(&stage.call(ask("discard")).await, 5);
    is_done_and_not_kept(&stage, "discard", 200).await;

    answers(201, "whatever");
    super::runs_once(&stage, ask("odd")).await;
    let unkeyed = stage.call(crate::http::Ask::post("/payments")).await;
    assert_eq!(unkeyed.header("onlyonce-outcome"), "", "stripped also where nothing is protected");
}
