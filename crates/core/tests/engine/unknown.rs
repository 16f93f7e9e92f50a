//! When nobody knows whether the work happened: hold, seal, rerun, and asking a hook.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{
    BoxError, Conflict, Ending, Engine, EngineErrorKind, Event, Failure, Found, MemoryStore, Outcome,
    Question, RecoveryHook, Reply, Request, Run, Tombstone, UnknownPolicy,
};
use onlyonce_testkit::run;

use crate::stage::{LEASE, Stage, conflict, done, key, policy};

async fn fail_without_knowing(stage: &Stage) {
    let failed = stage.call_with(|_| async { Err(Failure::unknown("connection reset".into())) }).await;
    assert!(matches!(failed, Ok(Run::Failed(_))));
}

#[test]
fn hold_refuses_and_never_runs_again() {
    run(async {
        let stage = Stage::new(policy()).await;
        fail_without_knowing(&stage).await;
        for _ in 0..3 {
            assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
            stage.clock.advance(LEASE);
        }
        stage.clock.advance(Duration::from_hours(24));
        assert_eq!(conflict(stage.call(1).await), Conflict::NotKept { why: Tombstone::Indeterminate });
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn seal_answers_the_sealed_outcome_at_once() {
    run(async {
        let sealed = Outcome::kept(1, "99");
        let stage = Stage::new(policy().unknown(UnknownPolicy::Seal).sealed(sealed)).await;
        fail_without_knowing(&stage).await;
        assert_eq!(done(stage.call(1).await), (99, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn rerun_runs_again_up_to_its_attempts() {
    run(async {
        let stage = Stage::new(policy().unknown(UnknownPolicy::Rerun).attempts_max(3)).await;
        for _ in 0..3 {
            fail_without_knowing(&stage).await;
        }
        assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
        assert_eq!(stage.effects(), 3);
    });
}

/// A hook that answers what it is told to.
#[derive(Debug)]
struct Told(Mutex<Option<Found>>, Mutex<Vec<Question>>);

impl Told {
    fn new(found: Found) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(found)), Mutex::default()))
    }
}

impl RecoveryHook for Told {
    fn find_out<'a>(
        &'a self,
        question: &'a Question,
    ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>> {
        self.1.lock().unwrap().push(question.clone());
        let found = self.0.lock().unwrap().clone();
        Box::pin(async move { found.ok_or_else(|| "the hook cannot be reached".into()) })
    }
}

fn query() -> onlyonce_core::Policy {
    policy().unknown(UnknownPolicy::Query).run_max(LEASE)
}

#[test]
fn a_hook_that_knows_the_outcome_answers_for_the_work() {
    run(async {
        let hook = Told::new(Found::Executed(Outcome::kept(1, "42")));
        let stage = Stage::with_hook(query(), Some(hook.clone())).await;
        fail_without_knowing(&stage).await;
        assert_eq!(done(stage.call(1).await), (42, true));
        assert_eq!(done(stage.call(1).await), (42, true));
        assert_eq!(hook.1.lock().unwrap().len(), 1, "asked once");
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn not_executed_counts_only_once_the_attempt_can_no_longer_run() {
    run(async {
        let stage = Stage::with_hook(query(), Some(Told::new(Found::NotExecuted))).await;
        fail_without_knowing(&stage).await;
        assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
        assert_eq!(stage.effects(), 1);
        stage.clock.advance(LEASE);
        assert_eq!(done(stage.call(7).await), (7, false));
        assert_eq!(stage.effects(), 2);
    });
}

#[test]
fn a_hook_that_does_not_know_or_fails_or_panics_leaves_it_unknown() {
    #[derive(Debug)]
    struct Panics;
    impl RecoveryHook for Panics {
        fn find_out<'a>(
            &'a self,
            _: &'a Question,
        ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>> {
            Box::pin(async { panic!("the hook panics on purpose") })
        }
    }
    run(async {
        let fails = Arc::new(Told(Mutex::new(None), Mutex::default()));
        let hooks: [Arc<dyn RecoveryHook>; 3] = [Told::new(Found::Unknown), fails, Arc::new(Panics)];
        for hook in hooks {
            let stage = Stage::with_hook(query(), Some(hook)).await;
            fail_without_knowing(&stage).await;
            for _ in 0..2 {
                assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
            }
            assert_eq!(stage.effects(), 1);
            assert_eq!(stage.seen.count(Event::Recovering), 2);
        }
    });
}

#[test]
fn a_hook_that_never_answers_is_given_a_lease() {
    #[derive(Debug)]
    struct Hangs;
    impl RecoveryHook for Hangs {
        fn find_out<'a>(
            &'a self,
            _: &'a Question,
        ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>> {
            Box::pin(std::future::pending())
        }
    }
    run(async {
        let stage = Stage::with_hook(query(), Some(Arc::new(Hangs))).await;
        fail_without_knowing(&stage).await;
        let moving = async {
            stage.clock.slept_on_for(LEASE).await;
            stage.clock.advance(LEASE);
        };
        let (answer, ()) = tokio::join!(stage.call(1), moving);
        assert!(matches!(conflict(answer), Conflict::OutcomeUnknown { .. }));
    });
}

/// Asks under the query policy, with a hook of its own.
async fn ask_with(engine: &Engine, stage: &Stage, hook: Option<Arc<Told>>) -> Reply<u32> {
    let mut request = Request::new(engine.secret(), key("order-7"), stage.asked(b"body"));
    if let Some(hook) = hook {
        request = request.recovered_by(hook);
    }
    let work = |_| async { Ending::Abandon { value: 1 } };
    engine.perform(request, work).await.unwrap()
}

#[test]
fn a_request_may_bring_a_hook_of_its_own() {
    run(async {
        let engines = Told::new(Found::Executed(Outcome::kept(1, "1")));
        let stage = Stage::with_hook(query(), Some(engines.clone())).await;
        fail_without_knowing(&stage).await;
        let own = Told::new(Found::Executed(Outcome::kept(1, "42")));
        let reply = ask_with(&stage.engine, &stage, Some(own.clone())).await;
        let Reply::Replay(replay) = reply else { panic!("{reply:?}") };
        assert_eq!(replay.outcome, Outcome::kept(1, "42"));
        let asked = own.1.lock().unwrap();
        assert_eq!((asked.len(), asked[0].key.clone()), (1, key("order-7")));
        assert!(engines.1.lock().unwrap().is_empty(), "the engine's own was not asked");
    });
}

#[test]
fn a_request_without_a_hook_where_requests_bring_theirs_stays_unknown() {
    run(async {
        let stage = Stage::new(policy()).await;
        let engine = stage.engine.with_policy_and_hooks_of_requests(query()).unwrap();
        assert!(stage.engine.with_policy(query()).is_err());
        fail_without_knowing(&stage).await;
        let reply = ask_with(&engine, &stage, None).await;
        assert!(matches!(reply, Reply::Conflict(Conflict::OutcomeUnknown { .. })), "{reply:?}");
        let own = Told::new(Found::Executed(Outcome::kept(1, "42")));
        assert!(matches!(ask_with(&engine, &stage, Some(own)).await, Reply::Replay(_)));
    });
}

#[test]
fn the_query_policy_without_a_hook_is_refused_at_the_start() {
    run(async {
        let built = Engine::builder(Arc::new(MemoryStore::default())).policy(query()).build().await;
        assert_eq!(built.unwrap_err().kind(), EngineErrorKind::Misuse);
    });
}
