//! Once, and the same answer ever after: replay, mismatch, failures, vanished callers, panics.

use onlyonce_core::{
    Conflict, Engine, EngineErrorKind, Event, Failure, Fingerprint, Fingerprinted, MemoryStore, Recorded,
    Rules, Run, Secret,
};
use onlyonce_testkit::run;
use std::sync::Arc;

use crate::stage::{Stage, conflict, done, key, policy};

#[test]
fn the_second_call_replays_the_first() {
    run(async {
        let stage = Stage::new(policy()).await;
        match stage.call(42).await {
            Ok(Run::Done(first)) => {
                assert_eq!((first.value, first.replayed, first.attempt), (42, false, 1));
                assert_eq!(first.recorded, Recorded::Completed);
            }
            other => panic!("expected a value, got {other:?}"),
        }
        for _ in 0..3 {
            assert_eq!(done(stage.call(43).await), (42, true));
        }
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn another_request_under_the_same_key_is_refused() {
    run(async {
        let stage = Stage::new(policy()).await;
        done(stage.call(42).await);
        let other = stage.asked(b"another body");
        let answer =
            stage.engine.run(&key("order-7"), other, |_| async { Ok::<_, Failure<String>>(1) }).await;
        assert_eq!(conflict(answer), Conflict::KeyReused);
        let answer = stage
            .engine
            .run(&key("order-8"), stage.asked(b"body"), |_| async { Ok::<_, Failure<String>>(2) })
            .await;
        assert_eq!(done(answer), (2, false), "the same payload under another key executes");
    });
}

#[test]
fn a_refused_request_may_be_corrected_and_a_rolled_back_one_repeated() {
    run(async {
        for (failure, other_request_runs) in
            [(Failure::refused("bad".to_owned()), true), (Failure::rolled_back("down".to_owned()), false)]
        {
            let stage = Stage::new(policy()).await;
            let failed = stage.call_with({
                let failure = failure.clone();
                move |_| async move { Err(failure) }
            });
            assert!(matches!(failed.await, Ok(Run::Failed(told)) if told == failure));
            assert!(stage.seen.has(Event::Released));
            let other = stage.asked(b"corrected");
            let answer =
                stage.engine.run(&key("order-7"), other, |_| async { Ok::<_, Failure<String>>(1) }).await;
            if other_request_runs {
                assert_eq!(done(answer), (1, false));
            } else {
                assert_eq!(conflict(answer), Conflict::KeyReused);
                assert_eq!(done(stage.call(2).await), (2, false));
            }
        }
    });
}

#[test]
fn an_error_that_is_merely_passed_on_is_unknown() {
    run(async {
        let stage = Stage::new(policy()).await;
        let failed = stage.call_with(|_| async {
            let answer: Result<u32, String> = Err("connection reset".into());
            Ok(answer?)
        });
        assert!(matches!(failed.await, Ok(Run::Failed(_))));
        assert!(stage.seen.has(Event::Abandoned));
        assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_panic_abandons_and_never_releases() {
    run(async {
        let stage = Stage::new(policy()).await;
        let panicked = stage.call_with(|_| async { panic!("work panics on purpose") }).await;
        assert!(matches!(conflict(panicked), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::Abandoned) && !stage.seen.has(Event::Released));
        assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_caller_that_vanishes_neither_cancels_the_work_nor_loses_its_result() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        end.send(Ok(42)).unwrap();
        stage.seen.until(Event::Completed).await;
        assert_eq!(done(stage.call(43).await), (42, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_value_of_another_type_is_an_error_and_not_a_second_run() {
    run(async {
        let stage = Stage::new(policy()).await;
        done(stage.call(42).await);
        let asked = stage.asked(b"body");
        let answer = stage
            .engine
            .run(&key("order-7"), asked, |_| async { Ok::<_, Failure<String>>(String::from("other type")) })
            .await;
        assert_eq!(answer.unwrap_err().kind(), EngineErrorKind::Value);
    });
}

/// A request whose fingerprint can be made by old rules and by new ones.
struct Reread(Secret);

impl Reread {
    fn by(&self, rules: Rules) -> Fingerprint {
        Fingerprint::builder(&self.0, rules).field("body", b"{}").finish()
    }
}

impl Fingerprinted for Reread {
    fn fingerprint(&self) -> Fingerprint {
        self.by(Rules::new("new").unwrap())
    }

    fn fingerprint_by(&self, rules: &Rules) -> Option<Fingerprint> {
        (rules.text() == "old").then(|| self.by(rules.clone()))
    }
}

#[test]
fn an_old_record_is_compared_by_its_own_rules() {
    run(async {
        let stage = Stage::new(policy()).await;
        let request = || Reread(stage.engine.secret().clone());
        let work = |value| move |_| async move { Ok::<u32, Failure<String>>(value) };
        let old = request().by(Rules::new("old").unwrap());
        done(stage.engine.run(&key("k"), old, work(1)).await);
        assert_eq!(done(stage.engine.run(&key("k"), request(), work(2)).await), (1, true));
        let ancient = request().by(Rules::new("ancient").unwrap());
        done(stage.engine.run(&key("l"), ancient, work(1)).await);
        assert_eq!(conflict(stage.engine.run(&key("l"), request(), work(2)).await), Conflict::KeyReused);
    });
}

#[test]
fn an_engine_with_another_secret_than_its_store_does_not_start() {
    run(async {
        let store = Arc::new(MemoryStore::default());
        Engine::builder(store.clone()).secret(Secret::new([1; 32])).build().await.unwrap();
        Engine::builder(store.clone()).secret(Secret::new([1; 32])).build().await.unwrap();
        let other = Engine::builder(store).secret(Secret::new([2; 32])).build().await;
        assert_eq!(other.unwrap_err().kind(), EngineErrorKind::Misuse);
    });
}
