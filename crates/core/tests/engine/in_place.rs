//! Work on the caller's own task: everything that holds for work on a task of its own holds here too.

use std::future::Ready;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Conflict, EngineErrorKind, Event, Recorded, Run};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};
use tokio::sync::Notify;

use crate::stage::{LEASE, Stage, conflict, done, policy, with_time_passing};

async fn stage() -> Stage {
    let mut stage = Stage::new(policy()).await;
    stage.engine = stage.engine.in_place();
    stage
}

#[test]
fn work_runs_on_the_task_of_whoever_waits_for_it() {
    run(async {
        let stage = stage().await;
        let ours = tokio::spawn(async move {
            let ours = tokio::task::id();
            let theirs = Arc::new(std::sync::Mutex::new(None));
            let seen = theirs.clone();
            let work = move |_| async move {
                *seen.lock().unwrap() = Some(tokio::task::id());
                tokio::task::yield_now().await;
                Ok(42)
            };
            assert_eq!(done(stage.call_with(work).await), (42, false));
            assert_eq!(done(stage.call(43).await), (42, true));
            assert_eq!(stage.effects(), 1);
            *theirs.lock().unwrap() == Some(ours)
        });
        assert!(ours.await.unwrap());
    });
}

#[test]
fn a_caller_that_vanishes_neither_cancels_the_work_nor_loses_its_result() {
    run(async {
        let stage = stage().await;
        let (call, end) = stage.start().await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        assert!(matches!(conflict(stage.call(1).await), Conflict::InFlight { .. }));
        end.send(Ok(42)).unwrap();
        stage.seen.until(Event::Completed).await;
        assert_eq!(done(stage.call(43).await), (42, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_caller_that_vanishes_while_it_claims_leaves_nothing_half_done() {
    run(async {
        let stage = Arc::new(stage().await);
        let arrived = Arc::new(Notify::new());
        stage.store.next(Operation::Claim, Fault::Delay(arrived.clone()));
        let call = tokio::spawn({
            let stage = stage.clone();
            async move { stage.call(42).await }
        });
        while stage.store.unmet(Operation::Claim) > 0 {
            tokio::task::yield_now().await;
        }
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        arrived.notify_one();
        stage.seen.until(Event::Completed).await;
        assert_eq!(done(stage.call(43).await), (42, true));
    });
}

#[test]
fn a_panic_abandons_and_does_not_reach_the_caller() {
    run(async {
        let stage = stage().await;
        let panicked = stage
            .call_with(|_| async {
                tokio::task::yield_now().await;
                panic!("work panics on purpose")
            })
            .await;
        assert!(matches!(conflict(panicked), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::Abandoned) && !stage.seen.has(Event::Released));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_panic_before_there_is_a_future_is_one_of_the_work_too() {
    run(async {
        for mut stage in [stage().await, Stage::new(policy()).await] {
            let panicked = stage.call_with(|_| -> Ready<_> { panic!("work panics on purpose") }).await;
            assert!(matches!(conflict(panicked), Conflict::OutcomeUnknown { .. }));
            assert!(stage.seen.has(Event::Abandoned) && !stage.seen.has(Event::Released));
            stage.engine = stage.engine.in_place();
            assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
            assert_eq!(stage.effects(), 1);
        }
    });
}

#[test]
fn the_lease_is_kept_and_work_whose_lease_is_lost_is_stopped() {
    run(async {
        let stage = stage().await;
        let (call, end) = stage.start().await;
        for _ in 0..6 {
            stage.clock.slept_on_for(LEASE / 3).await;
            stage.clock.advance(LEASE / 3);
        }
        stage.clock.slept_on_for(LEASE / 3).await;
        assert_eq!(conflict(stage.call(1).await), Conflict::InFlight { retry_after: LEASE });
        stage.store.next_times(1000, Operation::Renew, &Fault::Refuse);
        stage.clock.advance(LEASE / 10 * 9);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::LeaseLost) && stage.seen.has(Event::Abandoned));
        assert!(end.is_closed(), "the work is gone");
    });
}

#[test]
fn an_answer_that_cannot_be_recorded_carries_the_mark_and_is_recorded_after_the_caller_has_gone() {
    run(async {
        let stage = stage().await;
        stage.store.next_times(1000, Operation::Complete, &Fault::Refuse);
        let answer = with_time_passing(&stage, Duration::from_millis(20), stage.call(42)).await;
        assert!(
            matches!(answer, Ok(Run::Done(done)) if (done.value, done.recorded) == (42, Recorded::Unrecorded))
        );
        stage.store.heal();
        with_time_passing(&stage, Duration::from_millis(100), stage.seen.until(Event::Completed)).await;
        assert_eq!(done(stage.call(43).await), (42, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_drain_waits_for_work_and_abandons_what_does_not_finish() {
    run(async {
        let stage = stage().await;
        let (call, end) = stage.start().await;
        let ending = async {
            stage.clock.slept_on_for(Duration::from_secs(5)).await;
            assert_eq!(stage.call(1).await.unwrap_err().kind(), EngineErrorKind::Stopping);
            end.send(Ok(42)).unwrap();
        };
        tokio::join!(stage.engine.drain(Duration::from_secs(5)), ending);
        assert_eq!(done(call.await.unwrap()), (42, false));
    });
    run(async {
        let stage = stage().await;
        let (call, _end) = stage.start().await;
        // Nobody waits for the answer any more; the drain does.
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let moving = async {
            stage.clock.slept_on_for(Duration::from_secs(5)).await;
            stage.clock.advance(Duration::from_secs(5));
        };
        tokio::join!(stage.engine.drain(Duration::from_secs(5)), moving);
        assert!(stage.seen.has(Event::Abandoned) && !stage.seen.has(Event::Released));
    });
}
