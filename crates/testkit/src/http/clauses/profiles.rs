//! The three profiles: what each keeps, what runs again, and how each speaks.

use onlyonce_http::Rules;
use onlyonce_http::rules::{Profile, Verdict};

use super::{Ask, ask, is_problem};
use crate::http::{HttpFixture, Stage, Turn};

const STATUSES: [u16; 20] =
    [200, 201, 202, 302, 303, 400, 401, 403, 404, 408, 409, 410, 422, 425, 429, 500, 501, 502, 503, 504];

/// Asserts what becomes of every status, by what a retry gets.
async fn verdicts(fixture: &impl HttpFixture, rules: Rules, verdict: impl Fn(u16) -> Verdict) {
    let stage = Stage::new(fixture, rules).await;
    for status in STATUSES {
        stage.application.answers(Turn::status(status));
        let keyed = || {
            let key = format!("k{status}");
            if stage_is_strict(&stage) { ask(&format!("\"{key}\"")) } else { ask(&key) }
        };
        let first = stage.call(keyed()).await;
        assert_eq!(first.status, status, "{first:?}");
        let effects = stage.effects();
        let again = stage.call(keyed()).await;
        match verdict(status) {
            Verdict::Store => {
                assert_eq!((again.status, &again.body), (status, &first.body), "{status} is replayed");
                assert_eq!(stage.effects(), effects, "{status} does not run again");
            }
            Verdict::Release => assert_eq!(stage.effects(), effects + 1, "{status} runs again: {again:?}"),
            Verdict::Unknown => {
                is_problem(&again, 409, "outcome-unknown");
                assert_eq!(stage.effects(), effects, "{status} does not run again");
            }
        }
    }
}

/// Quoted keys are accepted by `standard` and `ietf`; `stripe` takes bare ones.
fn stage_is_strict(stage: &Stage) -> bool {
    stage.rules.profile == Some(Profile::Ietf)
}

/// Choice 2, `standard`.
pub async fn a2_standard_keeps_answers_and_runs_errors_again(fixture: &impl HttpFixture) {
    verdicts(fixture, Rules::default(), |status| match status {
        200..400 => Verdict::Store,
        502 | 504 => Verdict::Unknown,
        _ => Verdict::Release,
    })
    .await;
}

/// Choice 2, `ietf`.
pub async fn a2_ietf_keeps_errors_too(fixture: &impl HttpFixture) {
    let rules = Rules { profile: Some(Profile::Ietf), ..Rules::default() };
    verdicts(fixture, rules, |status| match status {
        401 | 403 | 408 | 425 | 429 | 503 => Verdict::Release,
        502 | 504 => Verdict::Unknown,
        _ => Verdict::Store,
    })
    .await;
}

/// Choice 2, `stripe`.
pub async fn a2_stripe_keeps_what_was_executed(fixture: &impl HttpFixture) {
    let rules = Rules { profile: Some(Profile::Stripe), ..Rules::default() };
    verdicts(fixture, rules, |status| match status {
        400 | 401 | 403 | 404 | 409 | 429 => Verdict::Release,
        _ => Verdict::Store,
    })
    .await;
}

/// Choice 2: a status beats its class, and rules beat profiles.
pub async fn a2_rules_change_the_verdict_on_a_status(fixture: &impl HttpFixture) {
    let classify = [("4xx", Verdict::Store), ("409", Verdict::Release), ("502", Verdict::Release)];
    let rules = Rules {
        classify: Some(classify.map(|(name, verdict)| (name.to_owned(), verdict)).into()),
        on_5xx: Some(Verdict::Unknown),
        ..Rules::default()
    };
    verdicts(fixture, rules, |status| match status {
        409 | 502 => Verdict::Release,
        200..500 => Verdict::Store,
        _ => Verdict::Unknown,
    })
    .await;
}

/// The draft's own profile: a key is required, and quoted.
pub async fn d_ietf_requires_quoted_keys(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { profile: Some(Profile::Ietf), ..Rules::default() }).await;
    is_problem(&stage.call(Ask::post("/payments")).await, 400, "key-missing");
    is_problem(&stage.call(ask("bare")).await, 400, "key-invalid");
    super::runs_once(&stage, ask("\"quoted\"")).await;
}

/// Stripe's words: its error object, its statuses, its replay mark, its advice on retries.
pub async fn d_stripe_speaks_as_stripe_does(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { profile: Some(Profile::Stripe), ..Rules::default() }).await;
    let first = stage.call(ask("k")).await;
    assert_eq!((first.header("idempotent-replayed"), first.header("idempotency-replayed")), ("", ""));
    let again = stage.call(ask("k")).await;
    assert_eq!((again.header("idempotent-replayed"), &again.body), ("true", &first.body));

    let error = stage.call(ask("k").json("{}")).await;
    assert_eq!((error.status, error.header("content-type")), (400, "application/json"));
    assert_eq!(error.document()["error"]["type"], "idempotency_error");
    assert_eq!(error.header("stripe-should-retry"), "false");

    let error = stage.call(ask("\"quoted\"")).await;
    assert_eq!((error.status, &error.document()["error"]["type"]), (400, &"invalid_request_error".into()));

    stage.application.hold();
    let running = stage.start(ask("running"));
    stage.application.ran(2).await;
    let error = stage.call(ask("running")).await;
    assert_eq!((error.status, &error.document()["error"]["code"]), (409, &"idempotency_key_in_use".into()));
    assert_eq!(error.header("stripe-should-retry"), "true");
    stage.application.go_on();
    running.await.unwrap();

    // Without an answer the first caller hears of it; after that the record is closed with a 500.
    stage.application.answers(Turn::vanish());
    assert_eq!(stage.call(ask("lost")).await.status, 502);
    let sealed = stage.call(ask("lost")).await;
    assert_eq!((sealed.status, &sealed.document()["error"]["type"]), (500, &"api_error".into()));
    assert_eq!(
        (sealed.header("idempotent-replayed"), sealed.header("stripe-should-retry")),
        ("true", "false")
    );
    assert_eq!(stage.effects(), 3);
}
