//! What the draft leaves open, and how it is decided here.

use std::time::Duration;

use onlyonce_http::Rules;

use super::{ask, is_first, is_problem, is_replay, runs_once};
use crate::http::{Ask, HttpFixture, Stage, Turn};

/// Item 14 and choice 4: before its end an answer is replayed, after it the key is new.
pub async fn h14_answers_are_kept_for_their_retention_and_no_longer(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::status(201).header("onlyonce-retention", "1h"));
    runs_once(&stage, ask("long")).await;
    stage.application.answers(Turn::status(201).header("onlyonce-retention", "50ms"));
    let first = stage.call(ask("short")).await;
    assert_eq!(first.header("onlyonce-retention"), "", "said to the layer, not to the caller");
    runs_again(&stage, first.effect()).await;
}

/// Choice 4: a key that has expired is a new key.
pub async fn a4_an_expired_key_runs_again(fixture: &impl HttpFixture) {
    let rules = Rules { retention: Some(Duration::from_millis(50).into()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    let first = stage.call(ask("short")).await;
    runs_again(&stage, first.effect()).await;
}

/// Asks until the answer is another one: every answer on the way is the first one, replayed.
async fn runs_again(stage: &Stage, first: u64) {
    loop {
        let got = stage.call(ask("short")).await;
        if got.effect() != first {
            return is_first(&got, first + 1);
        }
        assert!(got.is_replay());
        tokio::task::yield_now().await;
    }
}

/// Choice 4, the other way: a key that says it is old is refused when nothing is known of it.
pub async fn a4_an_old_uuidv7_is_refused_where_asked_for(fixture: &impl HttpFixture) {
    let rules = Rules { refuse_old_uuidv7: Some(true), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    is_problem(&stage.call(ask("017f22e2-79b0-7cc3-98c4-dc0c0c07398f")).await, 412, "key-expired");
    assert_eq!(stage.effects(), 0);
    // Far in the future, another version, no UUID at all: nothing to be said about their age.
    for key in ["ffffffff-79b0-7cc3-98c4-dc0c0c07398f", "017f22e2-79b0-4cc3-98c4-dc0c0c07398f", "order-7"] {
        runs_once(&stage, ask(key)).await;
    }
}

/// Choice 1.
pub async fn a1_a_mismatch_is_told_before_a_conflict(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.hold();
    let running = stage.start(ask("k"));
    stage.application.ran(1).await;
    is_problem(&stage.call(ask("k").json("{}")).await, 422, "key-reused");
    is_problem(&stage.call(ask("k")).await, 409, "in-flight");
    stage.application.go_on();
    is_first(&running.await.unwrap(), 1);
}

/// Choice 3: a key names one request, and method, path and query are part of it.
pub async fn a3_method_and_uri_are_part_of_the_request(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let at = |target: &str| Ask::post(target).key("k");
    is_first(&stage.call(at("/a?x=1")).await, 1);
    for other in
        [at("/a?x=2"), at("/a"), at("/a?x=1&y=2"), at("/b?x=1"), at("/A?x=1"), at("/a?x=1").method("PATCH")]
    {
        is_problem(&stage.call(other).await, 422, "key-reused");
    }
    is_problem(&stage.call(at("/a?x=1").set("host", "other.example")).await, 422, "key-reused");
    is_replay(&stage.call(at("/a?x=1")).await, 1);
}

/// Choice 3, the other way.
pub async fn a3_scope_path_makes_a_path_part_of_the_key(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { scope_path: Some(true), ..Rules::default() }).await;
    is_first(&stage.call(Ask::post("/a").key("k")).await, 1);
    is_first(&stage.call(Ask::post("/b").key("k")).await, 2);
    is_replay(&stage.call(Ask::post("/a").key("k")).await, 1);
}

/// Choice 5.
pub async fn a5_first_answers_and_replays_are_marked(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    // What the application says about it is not what counts.
    stage.application.answers(Turn::status(201).header("idempotency-replayed", "true"));
    for mark in ["false", "true"] {
        let got = stage.call(ask("k")).await;
        let marks: Vec<_> = got.headers.get_all("idempotency-replayed").iter().collect();
        assert_eq!(marks, [mark]);
    }
}

/// Choice 7.
pub async fn a7_put_and_delete_are_protected_where_asked_for(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for method in ["PUT", "DELETE"] {
        let one = stage.call(ask("k").method(method)).await.effect();
        assert_ne!(stage.call(ask("k").method(method)).await.effect(), one, "{method} passes by default");
    }
    let methods = vec!["POST".into(), "PUT".into(), "DELETE".into()];
    let stage = Stage::new(fixture, Rules { methods: Some(methods), ..Rules::default() }).await;
    runs_once(&stage, ask("put").method("PUT")).await;
    runs_once(&stage, ask("delete").method("DELETE")).await;
    let patched = stage.call(ask("patch").method("PATCH")).await;
    assert_eq!(patched.header("idempotency-replayed"), "", "not on the list");
}

/// Choice 8.
pub async fn a8_a_key_on_a_safe_method_passes_through(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for (effect, key) in (1..).zip(["k", "k", "\"broken"]) {
        let got = stage.call(ask(key).method("GET")).await;
        assert_eq!((got.effect(), got.header("idempotency-replayed")), (effect, ""));
    }
}

/// Choice 9: woken, not polled, and all with the same answer.
pub async fn a9_waiters_get_the_answer_of_the_one_that_runs(fixture: &impl HttpFixture) {
    let rules = Rules { wait: Some("2m".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.hold();
    let calls: Vec<_> = (0..20).map(|_| stage.start(ask("k"))).collect();
    stage.application.ran(1).await;
    stage.application.go_on();
    let mut first = 0;
    for call in calls {
        let got = call.await.unwrap();
        assert_eq!(got.effect(), 1, "{got:?}");
        first += u32::from(!got.is_replay());
    }
    assert_eq!((first, stage.effects()), (1, 1));
}

/// Choice 9: the caller may shorten the wait, or lengthen it up to a bound.
pub async fn a9_prefer_wait_changes_the_patience(fixture: &impl HttpFixture) {
    let bound = Some("2m".parse().unwrap());
    for (wait, asked_for) in [("2m", "wait=0"), ("0s", "respond-async")] {
        let rules = Rules { wait: Some(wait.parse().unwrap()), wait_max: bound, ..Rules::default() };
        let stage = Stage::new(fixture, rules).await;
        stage.application.hold();
        let running = stage.start(ask("k"));
        stage.application.ran(1).await;
        is_problem(&stage.call(ask("k").set("prefer", asked_for)).await, 409, "in-flight");
        stage.application.go_on();
        running.await.unwrap();
    }
    let rules = Rules { wait_max: bound, ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.hold();
    let running = stage.start(ask("k"));
    stage.application.ran(1).await;
    let patient = stage.start(ask("k").set("prefer", "respond-async, wait=600"));
    is_problem(&stage.call(ask("k")).await, 409, "in-flight");
    stage.application.go_on();
    is_first(&running.await.unwrap(), 1);
    is_replay(&patient.await.unwrap(), 1);
}

/// Choice 11: two orders that look alike are two orders.
pub async fn a11_the_same_payload_under_another_key_runs(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    is_first(&stage.call(ask("one")).await, 1);
    is_first(&stage.call(ask("two")).await, 2);
    is_replay(&stage.call(ask("one")).await, 1);
}

/// Choice 12.
pub async fn a12_errors_of_gateways_leave_the_outcome_unknown(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    for (effect, status) in (1..).zip([502, 504]) {
        stage.application.answers(Turn::status(status));
        let key = format!("k{status}");
        let first = stage.call(ask(&key)).await;
        assert_eq!(
            (first.status, first.effect()),
            (status, effect),
            "the caller gets what the application said"
        );
        stage.application.answers(Turn::status(201));
        let again = stage.call(ask(&key)).await;
        is_problem(&again, 409, "outcome-unknown");
        let document = again.document();
        let (record, fence) = (document["record"].as_str().unwrap(), &document["fence"]);
        let command = format!("onlyonce records resolve {record} --fence {fence}");
        assert_eq!(document["resolve"]["executed"], format!("{command} --executed --why REASON"));
        assert_eq!(document["resolve"]["not_executed"], format!("{command} --not-executed --why REASON"));
    }
    assert_eq!(stage.effects(), 2);
}
