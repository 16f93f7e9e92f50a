//! `unknown = "query"`: a service that is killed in the middle of a payment is asked, once it is back, what became of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onlyonce_http::rules::{Span, Unknown};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{Sidecar, StartError};

use crate::application::Application;
use crate::client::Answer;
use crate::ledger::{Asked, Ledger, Stall};
use crate::stage::{Stage, flags};

/// How long an execution may take in these tests: so long does "it did not happen" prove nothing.
const RUN_MAX: Duration = Duration::from_secs(2);

/// Stores count in whole milliseconds: what was claimed within one counts from its beginning.
const TICK: Duration = Duration::from_millis(1);

/// The longest that anything may take on a loaded machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn querying(ledger: &Ledger) -> File {
    let mut flags = flags(&ledger.url());
    flags.defaults.unknown = Some(Unknown::Query);
    flags.defaults.query_url = Some("/by-key/{key}".to_owned());
    flags.defaults.query_within = Some("30s".parse().unwrap());
    flags
}

async fn stage(ledger: &Ledger, change: impl FnOnce(&mut File)) -> Stage {
    let mut flags = querying(ledger);
    change(&mut flags);
    Stage::start(Application::start().await, Sources { flags, ..Sources::default() }).await
}

/// An attempt that can no longer run after `RUN_MAX`.
fn soon_over(flags: &mut File) {
    flags.proxy.upstream_within = Some("1s".parse().unwrap());
    flags.proxy.upstream_connect_within = Some("500ms".parse().unwrap());
    (flags.defaults.run_max, flags.defaults.lease) = (Some(Span(RUN_MAX)), Some(Span(RUN_MAX)));
}

/// The answer as soon as it is known: a machine that stalls may miss it more than once.
async fn once_known(stage: &Stage) -> Answer {
    let begun = Instant::now();
    loop {
        let answer = stage.send(pay("k")).await;
        if !is_unknown(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{answer:?}");
    }
}

fn pay(key: &str) -> String {
    format!(
        "POST /pay HTTP/1.1\r\nHost: shop.test\r\nAuthorization: Bearer alice\r\nIdempotency-Key: {key}\r\n\
         Content-Type: text/plain\r\nIf-Match: \"x\"\r\nContent-Length: 3\r\n\r\n100"
    )
}

fn is_unknown(answer: &Answer) -> bool {
    answer.status == 409 && answer.body.contains("outcome-unknown")
}

/// A payment that stalls at `point`, and the service killed while it does.
async fn killed_at(point: Stall, ledger: &Arc<Ledger>, stage: &Stage) {
    *ledger.stall.lock().unwrap() = point;
    let mut wire = stage.connect().await;
    wire.write(pay("k")).await;
    ledger.stalled(1).await;
    ledger.kill().await;
    let lost = wire.answer().await.unwrap();
    assert!(matches!(lost.status, 502 | 504), "{lost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_killed_after_the_effect_tells_what_happened_and_that_is_replayed() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, |_| {}).await;
    killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
    ledger.restart().await;
    for _ in 0..3 {
        let answer = stage.send(pay("k")).await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "paid k"), "{answer:?}");
        assert_eq!(answer.header("location"), Some("/pay/k"));
        assert_eq!(answer.header("idempotency-replayed"), Some("true"));
    }
    assert_eq!(ledger.payments("k"), 1);
    let questions = ledger.questions.lock().unwrap();
    let [(target, headers)] = questions.as_slice() else { panic!("asked once: {questions:?}") };
    assert_eq!(target, "/by-key/k");
    assert_eq!(
        (headers["authorization"].as_bytes(), headers["idempotency-key"].as_bytes()),
        (&b"Bearer alice"[..], &b"k"[..])
    );
    assert!(headers.contains_key("onlyonce-fence") && headers["onlyonce-attempt"] == "1", "{headers:?}");
    for name in ["content-length", "content-type", "if-match"] {
        assert!(!headers.contains_key(name), "{name} belongs to the payment: {headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_killed_before_the_effect_runs_it_once_the_attempt_is_surely_over() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, soon_over).await;
    let began = Instant::now();
    killed_at(Stall::BeforeTheEffect, &ledger, &stage).await;
    ledger.restart().await;
    let answer = loop {
        let answer = stage.send(pay("k")).await;
        let payments = ledger.payments("k");
        assert!(
            is_unknown(&answer) || began.elapsed() + TICK >= RUN_MAX,
            "asked before the attempt was over: {answer:?}"
        );
        // ORDER: the clock is read after the payments, so that a payment that was too early is seen as one.
        assert!(
            payments == 0 || began.elapsed() + TICK >= RUN_MAX,
            "404 proves nothing while the attempt may run"
        );
        match answer.status {
            200 => break answer,
            // A machine that stalls may cut the second attempt short, too; then the truth is asked for again.
            _ => assert!(matches!(answer.status, 409 | 502 | 504), "{answer:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "{answer:?}");
    };
    assert_eq!(answer.body, "paid k");
    assert_eq!(stage.send(pay("k")).await.header("idempotency-replayed"), Some("true"));
    assert_eq!(ledger.payments("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_tell_leaves_it_unknown() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, soon_over).await;
    killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
    // tidy: sleep because the attempt must be over: from then on "it did not happen" would be believed
    tokio::time::sleep(RUN_MAX).await;
    let down = stage.send(pay("k")).await;
    assert!(is_unknown(&down), "nobody is there to ask: {down:?}");
    ledger.restart().await;
    for doubt in [
        Asked::Says(500, ""),
        Asked::Says(401, ""),
        Asked::Says(302, ""),
        Asked::Says(304, ""),
        Asked::Says(200, "unknown"),
        Asked::Says(404, "unknown"),
        Asked::Says(404, "perhaps"),
    ] {
        *ledger.asked.lock().unwrap() = doubt;
        let answer = stage.send(pay("k")).await;
        assert!(is_unknown(&answer), "{doubt:?}: {answer:?}");
        assert!(answer.body.contains("onlyonce records resolve"), "{answer:?}");
    }
    assert!(!ledger.questions.lock().unwrap().is_empty());
    // Back to its senses: the truth is still to be had.
    *ledger.asked.lock().unwrap() = Asked::Truth;
    assert_eq!(once_known(&stage).await.body, "paid k");
    assert_eq!(ledger.payments("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_answer_in_time_leaves_it_unknown() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, |flags| flags.defaults.query_within = Some("300ms".parse().unwrap())).await;
    killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
    ledger.restart().await;
    *ledger.asked.lock().unwrap() = Asked::Never;
    for _ in 0..2 {
        let answer = stage.send(pay("k")).await;
        assert!(is_unknown(&answer), "{answer:?}");
    }
    *ledger.asked.lock().unwrap() = Asked::Truth;
    assert_eq!(once_known(&stage).await.body, "paid k");
    assert_eq!(ledger.payments("k"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_but_is_too_large_to_keep_is_not_done_again() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, |flags| flags.defaults.response_bytes_max = Some(1000)).await;
    killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
    ledger.restart().await;
    *ledger.asked.lock().unwrap() = Asked::Large(100_000);
    for _ in 0..2 {
        let answer = stage.send(pay("k")).await;
        assert!(answer.status == 200 && answer.body.contains("answer-not-kept"), "{answer:?}");
    }
    assert_eq!((ledger.payments("k"), ledger.questions.lock().unwrap().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_may_say_more_clearly_than_by_a_status() {
    for (said, status) in [(Asked::Says(500, "committed"), 500), (Asked::Says(410, "committed"), 410)] {
        let ledger = Ledger::start().await;
        let stage = stage(&ledger, |_| {}).await;
        killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
        ledger.restart().await;
        *ledger.asked.lock().unwrap() = said;
        let answer = stage.send(pay("k")).await;
        assert_eq!((answer.status, answer.body.as_str()), (status, "said so"), "{said:?}: {answer:?}");
        assert_eq!(answer.header("onlyonce-outcome"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_question_is_asked_however_many_ask_for_the_answer() {
    let ledger = Ledger::start().await;
    let stage = stage(&ledger, |flags| flags.defaults.wait = Some("30s".parse().unwrap())).await;
    killed_at(Stall::AfterTheEffect, &ledger, &stage).await;
    ledger.restart().await;
    let stage = Arc::new(stage);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let stage = Arc::clone(&stage);
        asking.spawn(async move { stage.send(pay("k")).await });
    }
    for answer in asking.join_all().await {
        assert_eq!(answer.body, "paid k", "{answer:?}");
    }
    assert_eq!((ledger.payments("k"), ledger.questions.lock().unwrap().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn query_needs_somebody_to_ask() {
    let ledger = Ledger::start().await;
    for (url, expected) in [
        (None, "query_url"),
        (Some("https://elsewhere/{key}"), "starts with /"),
        (Some("/by-key/{id}"), "{key}"),
    ] {
        let mut flags = querying(&ledger);
        flags.defaults.query_url = url.map(ToOwned::to_owned);
        let sources = Sources { flags, ..Sources::default() };
        let Err(error) = Sidecar::start(sources).await else { panic!("{url:?} was taken") };
        assert!(matches!(error, StartError::Rules(_)) && error.to_string().contains(expected), "{error}");
    }
}
