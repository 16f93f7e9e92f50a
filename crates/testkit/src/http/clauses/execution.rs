//! What happens to work that runs: callers who leave, applications that break off, grants and their numbers.

use bytes::Bytes;
use onlyonce_http::Rules;
use onlyonce_http::rules::{Limits, Unknown};

use super::{ask, is_first, is_problem, is_replay};
use crate::http::{Given, HttpFixture, Stage, Turn};

/// A caller who hangs up neither stops the work nor loses its answer.
pub async fn d_a_vanished_client_loses_nothing(fixture: &impl HttpFixture) {
    let rules = Rules { wait: Some("2m".parse().unwrap()), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.hold();
    let call = stage.start(ask("k"));
    stage.application.ran(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // A second caller waits for the work of the first, which is gone.
    let retry = stage.start(ask("k"));
    stage.application.go_on();
    is_replay(&retry.await.unwrap(), 1);
    assert_eq!(stage.effects(), 1);
}

/// Sent, and no answer: nobody knows, and nobody guesses.
pub async fn d_no_answer_leaves_the_outcome_unknown(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::vanish());
    let first = stage.call(ask("k")).await;
    is_problem(&first, 502, "upstream-unreachable");
    assert!(first.document()["resolve"]["executed"].is_string(), "{first:?}");
    stage.application.answers(Turn::status(201));
    for _ in 0..3 {
        is_problem(&stage.call(ask("k")).await, 409, "outcome-unknown");
    }
    assert_eq!(stage.effects(), 1);
}

/// Half an answer is no answer, wherever it breaks off.
pub async fn d_a_cut_off_answer_is_never_kept(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    let turns = [
        Turn::body(Given::CutOff(Bytes::new())),
        Turn::body(Given::CutOff("half".into())),
        Turn::body(Given::CutOff("half of 9".into())).header("content-length", "18"),
    ];
    for (number, turn) in (1..).zip(turns) {
        stage.application.answers(turn);
        let key = format!("k{number}");
        is_problem(&stage.call(ask(&key)).await, 502, "upstream-unreachable");
        stage.application.answers(Turn::status(201));
        is_problem(&stage.call(ask(&key)).await, 409, "outcome-unknown");
        assert_eq!(stage.effects(), number);
    }
}

/// The application may show the numbers to whoever refuses lower ones. Nobody outside can make them up.
pub async fn d_the_application_sees_fence_and_attempt_of_ours_only(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules::default()).await;
    stage.application.answers(Turn::status(503));
    let forged = || ask("k").set("onlyonce-fence", "999999999999999").set("onlyonce-attempt", "77");
    stage.call(forged()).await;
    stage.application.answers(Turn::status(201));
    stage.call(forged()).await;
    stage.call(forged().without("idempotency-key")).await;
    let seen = stage.application.seen();
    let number = |at: usize, name: &str| -> u64 {
        let lines: Vec<_> = seen[at].headers.get_all(name).iter().collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines[0].to_str().unwrap().parse().unwrap()
    };
    assert_eq!((number(0, "onlyonce-attempt"), number(1, "onlyonce-attempt")), (1, 2));
    assert!(number(0, "onlyonce-fence") < number(1, "onlyonce-fence"));
    assert_ne!(number(1, "onlyonce-fence"), 999_999_999_999_999);
    for name in ["onlyonce-fence", "onlyonce-attempt"] {
        assert_eq!(seen[2].headers.get(name), None, "stripped also where nothing is protected");
    }
}

/// `seal`: the doubt ends in an answer that stays.
pub async fn d_sealed_outcomes_are_final(fixture: &impl HttpFixture) {
    let stage = Stage::new(fixture, Rules { unknown: Some(Unknown::Seal), ..Rules::default() }).await;
    stage.application.answers(Turn::vanish());
    is_problem(&stage.call(ask("k")).await, 502, "upstream-unreachable");
    stage.application.answers(Turn::status(201));
    for _ in 0..2 {
        let sealed = stage.call(ask("k")).await;
        is_problem(&sealed, 500, "outcome-indeterminate");
        assert!(sealed.is_replay());
    }
    assert_eq!(stage.effects(), 1);
}

/// `rerun`: at least once, up to so many times.
pub async fn d_rerun_runs_again_after_an_unknown_outcome(fixture: &impl HttpFixture) {
    let rules = Rules { unknown: Some(Unknown::Rerun), attempts_max: Some(2), ..Rules::default() };
    let stage = Stage::new(fixture, rules).await;
    stage.application.answers(Turn::vanish());
    is_problem(&stage.call(ask("k")).await, 502, "upstream-unreachable");
    stage.application.answers(Turn::status(201));
    is_first(&stage.call(ask("k")).await, 2);
    is_replay(&stage.call(ask("k")).await, 2);
    stage.application.answers(Turn::vanish());
    for _ in 0..2 {
        is_problem(&stage.call(ask("bad")).await, 502, "upstream-unreachable");
    }
    is_problem(&stage.call(ask("bad")).await, 409, "outcome-unknown");
    assert_eq!(stage.effects(), 4);
}

/// A principal at its limit is refused before anything is claimed; others are not, and replays go on.
pub async fn d_quotas_refuse_before_they_run(fixture: &impl HttpFixture) {
    let limits = Limits { in_flight_max: Some(2), records_max: Some(4), ..Limits::default() };
    let stage = Stage::new(fixture, Rules { limits: Some(limits), ..Rules::default() }).await;
    is_first(&stage.call(ask("done")).await, 1);
    stage.application.hold();
    let running: Vec<_> = ["a", "b"].map(|key| stage.start(ask(key))).into();
    stage.application.ran(3).await;
    let refused = stage.call(ask("c")).await;
    is_problem(&refused, 429, "quota");
    assert!(!refused.header("retry-after").is_empty());
    is_replay(&stage.call(ask("done")).await, 1);
    is_problem(&stage.call(ask("a")).await, 409, "in-flight");
    let other = stage.start(ask("c").user("bob"));
    stage.application.ran(4).await;
    stage.application.go_on();
    for call in running.into_iter().chain([other]) {
        assert_eq!(call.await.unwrap().status, 201);
    }
    assert_eq!(stage.call(ask("c")).await.status, 201, "the fourth record");
    is_problem(&stage.call(ask("d")).await, 429, "quota");
    assert_eq!(stage.effects(), 5);
    assert!(stage.call(ask("a")).await.is_replay(), "what is on record is still answered");
}
