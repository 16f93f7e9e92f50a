//! What one principal may use: refused before a claim, freed when it is over, and never at another's cost.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{
    BoxError, Conflict, Event, Failure, Found, Key, Principal, Question, Quota, RecoveryHook, Retention, Run,
    Scope, ScopedKey, UnknownPolicy,
};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};
use tokio::sync::Notify;

use crate::stage::{Answer, Stage, conflict, done, policy};

const HOUR: Duration = Duration::from_hours(1);

fn of(principal: &str, key: &str) -> ScopedKey {
    Scope::new("test", Principal::named(principal)).key(Key::new(key).unwrap())
}

async fn call(stage: &Stage, key: &ScopedKey) -> Answer {
    stage.engine.run(key, stage.asked(b"body"), |_| async { Ok::<_, Failure<String>>(1) }).await
}

async fn with(quota: Quota) -> Stage {
    Stage::new(policy().retention(Retention::new(HOUR).unwrap()).quota(quota)).await
}

fn is_over_quota(answer: &Answer) -> bool {
    matches!(answer, Ok(Run::Conflict(Conflict::OverQuota { .. })))
}

#[test]
fn executions_at_a_time_are_limited_and_places_are_given_back() {
    run(async {
        let stage = with(Quota { in_flight_max: Some(1), ..Quota::default() }).await;
        let (running, end) = stage.start().await;
        stage.store.next(Operation::Claim, Fault::Refuse);
        assert!(is_over_quota(&call(&stage, &of("alice", "other")).await));
        assert_eq!(stage.store.unmet(Operation::Claim), 1, "the store was not asked");
        stage.store.heal();
        assert!(stage.seen.has(Event::OverQuota));
        assert_eq!(done(call(&stage, &of("bob", "other")).await), (1, false), "others are not held up");
        end.send(Ok(7)).unwrap();
        assert_eq!(done(running.await.unwrap()), (7, false));
        assert_eq!(done(call(&stage, &of("alice", "other")).await), (1, false));
    });
}

#[test]
fn what_is_on_record_or_runs_already_is_told_beyond_the_limit() {
    run(async {
        let quota = Quota { in_flight_max: Some(1), records_max: Some(2), ..Quota::default() };
        let stage = with(quota).await;
        assert_eq!(done(call(&stage, &of("alice", "other")).await), (1, false));
        let (running, end) = stage.start().await;
        assert_eq!(done(call(&stage, &of("alice", "other")).await), (1, true), "done before");
        assert!(matches!(conflict(stage.call(2).await), Conflict::InFlight { .. }), "it runs");
        assert!(is_over_quota(&call(&stage, &of("alice", "new")).await));
        end.send(Ok(7)).unwrap();
        assert_eq!(done(running.await.unwrap()), (7, false));
        assert!(is_over_quota(&call(&stage, &of("alice", "new")).await), "two are on record");
    });
}

#[test]
fn a_place_is_given_back_however_the_attempt_ends() {
    run(async {
        let stage = with(Quota { in_flight_max: Some(1), ..Quota::default() }).await;
        let panicked = stage.call_with(|_| async { panic!("on purpose") }).await;
        assert!(matches!(conflict(panicked), Conflict::OutcomeUnknown { .. }));
        stage.store.next(Operation::Claim, Fault::Refuse);
        assert!(call(&stage, &of("alice", "refused")).await.is_err());
        let key = of("alice", "failed");
        let refused = |_| async { Err::<u32, _>(Failure::refused("no".to_owned())) };
        let failed = stage.engine.run(&key, stage.asked(b""), refused);
        assert!(matches!(failed.await, Ok(Run::Failed(_))));
        assert_eq!(done(call(&stage, &of("alice", "k")).await), (1, false));
        assert_eq!(
            done(call(&stage, &of("alice", "k")).await),
            (1, true),
            "a replay takes a place and gives it back"
        );
        assert_eq!(done(call(&stage, &of("alice", "k")).await), (1, true));
    });
}

#[test]
fn who_is_granted_what_another_gave_up_is_counted() {
    run(async {
        let stage = Arc::new(with(Quota { in_flight_max: Some(1), ..Quota::default() }).await);
        let (first, end) = stage.start().await;
        let may_claim = Arc::new(Notify::new());
        stage.store.next(Operation::Claim, Fault::Delay(may_claim.clone()));
        let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let second = tokio::spawn({
            let (stage, begun, may_end) = (stage.clone(), begun.clone(), may_end.clone());
            async move {
                let work = |_| async move {
                    begun.notify_one();
                    may_end.notified().await;
                    Ok(2)
                };
                stage.call_with(work).await
            }
        });
        // It was told that the first one runs, and takes no place for being told so by a claim.
        while stage.store.unmet(Operation::Claim) > 0 {
            tokio::task::yield_now().await;
        }
        end.send(Err(Failure::rolled_back("again".into()))).unwrap();
        assert!(matches!(first.await.unwrap(), Ok(Run::Failed(_))));
        may_claim.notify_one();
        begun.notified().await;
        assert!(is_over_quota(&call(&stage, &of("alice", "other")).await), "it runs");
        may_end.notify_one();
        assert_eq!(done(second.await.unwrap()), (2, false));
        assert_eq!(done(call(&stage, &of("alice", "other")).await), (1, false), "and has ended");
    });
}

/// A hook that is asked, and answers when it may.
#[derive(Debug, Default)]
struct Waits {
    asked: Notify,
    may_answer: Notify,
}

impl RecoveryHook for Waits {
    fn find_out<'a>(
        &'a self,
        _: &'a Question,
    ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>> {
        Box::pin(async move {
            self.asked.notify_one();
            self.may_answer.notified().await;
            Ok(Found::Unknown)
        })
    }
}

#[test]
fn who_finds_out_what_happened_has_a_place_meanwhile() {
    run(async {
        let quota = Quota { in_flight_max: Some(1), ..Quota::default() };
        let hook = Arc::new(Waits::default());
        let query = policy().unknown(UnknownPolicy::Query).quota(quota);
        let stage = Arc::new(Stage::with_hook(query, Some(hook.clone())).await);
        let panicked = stage.call_with(|_| async { panic!("on purpose") }).await;
        assert!(matches!(conflict(panicked), Conflict::OutcomeUnknown { .. }));
        let asking = tokio::spawn({
            let stage = stage.clone();
            async move { stage.call(1).await }
        });
        hook.asked.notified().await;
        assert!(is_over_quota(&call(&stage, &of("alice", "other")).await));
        hook.may_answer.notify_one();
        assert!(matches!(conflict(asking.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert_eq!(done(call(&stage, &of("alice", "other")).await), (1, false));
    });
}

#[test]
fn records_are_limited_until_they_expire_and_replays_go_on() {
    run(async {
        let stage = with(Quota { records_max: Some(2), ..Quota::default() }).await;
        for key in ["one", "two"] {
            assert_eq!(done(call(&stage, &of("alice", key)).await), (1, false));
        }
        let refused = conflict(call(&stage, &of("alice", "three")).await);
        let Conflict::OverQuota { retry_after } = refused else { panic!("{refused:?}") };
        assert!(retry_after > HOUR / 2 && retry_after < HOUR * 2, "{retry_after:?}");
        assert_eq!(done(call(&stage, &of("alice", "one")).await), (1, true), "on record already");
        assert_eq!(done(call(&stage, &of("bob", "three")).await), (1, false));
        stage.clock.advance(HOUR + HOUR / 8);
        assert_eq!(done(call(&stage, &of("alice", "three")).await), (1, false));
    });
}

#[test]
fn an_attempt_at_the_same_record_is_counted_once() {
    run(async {
        let stage = with(Quota { records_max: Some(2), ..Quota::default() }).await;
        for _ in 0..5 {
            let failed = stage.call_with(|_| async { Err(Failure::rolled_back("again".into())) }).await;
            assert!(matches!(failed, Ok(Run::Failed(_))));
        }
        assert_eq!(done(call(&stage, &of("alice", "another")).await), (1, false));
        assert!(is_over_quota(&call(&stage, &of("alice", "one too many")).await));
    });
}

#[test]
fn bytes_are_limited() {
    run(async {
        let stage = with(Quota { bytes_max: Some(1000), ..Quota::default() }).await;
        let large = |key: &str| {
            let asked = stage.asked(b"body");
            let key = of("alice", key);
            let engine = stage.engine.clone();
            async move {
                engine
                    .run(&key, asked, |_| async { Ok::<_, Failure<String>>("x".repeat(600)) })
                    .await
                    .unwrap()
            }
        };
        for key in ["one", "two"] {
            assert!(
                matches!(large(key).await, Run::Done(_)),
                "{key}: the first beyond the limit is still taken"
            );
        }
        assert!(matches!(large("three").await, Run::Conflict(Conflict::OverQuota { .. })));
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_one_at_a_time_is_never_beyond_one_at_a_time() {
    let stage = with(Quota { in_flight_max: Some(1), ..Quota::default() }).await;
    for number in 0..2000 {
        let key = format!("key-{}", number % 1000);
        assert_eq!(done(call(&stage, &of("alice", &key)).await), (1, number >= 1000), "{key}");
    }
}
