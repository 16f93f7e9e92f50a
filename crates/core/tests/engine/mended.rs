//! Defects that a review found and that must not come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_core::{
    Conflict, EngineErrorKind, Event, Failure, Recorded, Run, StoreErrorKind, Tombstone, UnknownPolicy,
};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};
use tokio::sync::Notify;

use crate::stage::{LEASE, Stage, conflict, done, key, policy, with_time_passing};

#[test]
fn a_value_that_cannot_be_written_down_is_a_tombstone_and_never_a_second_run() {
    run(async {
        let stage = Stage::new(policy().unknown(UnknownPolicy::Rerun)).await;
        let work = |_| async { Ok::<_, Failure<String>>(HashMap::from([((1_u8, 2_u8), 3_u8)])) };
        let first = stage.engine.run(&key("k"), stage.asked(b"body"), work).await;
        assert_eq!(first.unwrap_err().kind(), EngineErrorKind::Value);
        let second = stage.engine.run(&key("k"), stage.asked(b"body"), work).await;
        let not_kept = Conflict::NotKept { why: Tombstone::Discarded };
        assert!(matches!(second, Ok(Run::Conflict(conflict)) if conflict == not_kept));
    });
}

#[test]
fn the_first_caller_gets_the_value_that_later_ones_will_read() {
    run(async {
        let stage = Stage::new(policy()).await;
        let work = |_| async { Ok::<Option<Option<u8>>, Failure<String>>(Some(None)) };
        let mut values = Vec::new();
        for _ in 0..2 {
            let answer = stage.engine.run(&key("k"), stage.asked(b"body"), work).await.unwrap();
            values.push(answer.done().map(|done| done.value));
        }
        assert_eq!(values, [Some(None), Some(None)]);
    });
}

#[test]
fn a_lost_reply_followed_by_a_refusal_leaves_no_grant_behind() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next(Operation::Claim, Fault::LoseReply);
        stage.store.next(Operation::Claim, Fault::Refuse);
        let answer = with_time_passing(&stage, Duration::from_millis(5), stage.call(1)).await;
        assert_eq!(answer.unwrap_err().kind(), EngineErrorKind::Store(StoreErrorKind::Unavailable));
        with_time_passing(&stage, Duration::from_millis(50), stage.seen.until(Event::Released)).await;
        assert_eq!(done(stage.call(2).await), (2, false));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_store_that_hangs_on_a_claim_or_a_watch_keeps_nobody() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next_times(1000, Operation::Claim, &Fault::Delay(Arc::new(Notify::new())));
        let answer = with_time_passing(&stage, Duration::from_secs(1), stage.call(1)).await;
        assert_eq!(answer.unwrap_err().kind(), EngineErrorKind::Store(StoreErrorKind::TimedOut));
        assert_eq!(stage.effects(), 0);
        with_time_passing(&stage, Duration::from_secs(1), stage.engine.drain(Duration::from_secs(5))).await;
    });
}

#[test]
fn a_grant_that_is_heard_of_too_late_is_given_back_and_not_begun() {
    run(async {
        let stage = Stage::new(policy().store_within(LEASE * 2)).await;
        // Of the second it is known that there was another, even if that one ran nothing.
        for is_taken in [false, true] {
            let arrived = Arc::new(Notify::new());
            stage.store.next(Operation::Claim, Fault::LateReply(arrived.clone()));
            let ending = async {
                while stage.store.unmet(Operation::Claim) > 0 {
                    tokio::task::yield_now().await;
                }
                stage.clock.advance(LEASE / 100 * 95);
                arrived.notify_one();
            };
            let (answer, ()) = tokio::join!(stage.call(1), ending);
            let late = answer.unwrap_err();
            let kind = EngineErrorKind::Store(StoreErrorKind::TimedOut);
            assert_eq!((late.kind(), late.is_taken()), (kind, is_taken));
            assert_eq!(stage.effects(), 0);
        }
        assert!(stage.seen.has(Event::Released));
        assert_eq!(done(stage.call(2).await), (2, false));
    });
}

#[test]
fn of_a_grant_that_is_heard_of_after_its_lease_another_attempt_may_have_been_made() {
    run(async {
        let policy = policy().unknown(UnknownPolicy::Rerun).store_within(LEASE * 4);
        let stage = Stage::new(policy).await;
        let arrived = Arc::new(Notify::new());
        stage.store.next(Operation::Claim, Fault::LateReply(arrived.clone()));
        let another = async {
            while stage.store.unmet(Operation::Claim) > 0 {
                tokio::task::yield_now().await;
            }
            stage.clock.advance(LEASE * 2);
            assert_eq!(done(stage.call(2).await), (2, false));
            arrived.notify_one();
        };
        let (answer, ()) = tokio::join!(stage.call(1), another);
        let late = answer.unwrap_err();
        let kind = EngineErrorKind::Store(StoreErrorKind::TimedOut);
        assert_eq!((late.kind(), late.is_taken()), (kind, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_release_that_the_store_missed_is_told_again() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next_times(1000, Operation::Release, &Fault::Refuse);
        let failing = stage.call_with(|_| async { Err(Failure::rolled_back("down".into())) });
        assert!(matches!(
            with_time_passing(&stage, Duration::from_millis(20), failing).await,
            Ok(Run::Failed(_))
        ));
        assert!(stage.seen.has(Event::Unrecorded));
        stage.store.heal();
        with_time_passing(&stage, Duration::from_millis(100), stage.seen.until(Event::Released)).await;
        assert_eq!(done(stage.call(2).await), (2, false));
    });
}

#[test]
fn the_lease_is_kept_while_an_outcome_is_being_recorded() {
    run(async {
        let policy = policy().unknown(UnknownPolicy::Rerun).answer_within(LEASE * 3);
        let stage = Stage::new(policy).await;
        stage.store.next_times(1000, Operation::Complete, &Fault::Refuse);
        let mut first = Box::pin(stage.call(1));
        let start = onlyonce_core::Clock::now(&*stage.clock);
        while onlyonce_core::Clock::now(&*stage.clock) < start + LEASE * 2 {
            tokio::select! {
                biased;
                _ = &mut first => panic!("it is not recorded yet"),
                () = stage.clock.slept_on_for(Duration::from_millis(1)) => {}
            }
            stage.clock.advance(Duration::from_millis(400));
            tokio::task::yield_now().await;
        }
        let second = stage.call(2);
        assert!(matches!(conflict(second.await), Conflict::InFlight { .. }), "nobody else may begin");
        stage.store.heal();
        let first = with_time_passing(&stage, Duration::from_millis(100), first).await;
        assert!(matches!(first, Ok(Run::Done(done)) if done.recorded == Recorded::Completed));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn work_that_runs_elsewhere_is_told_that_its_grant_is_lost() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next_times(1000, Operation::Renew, &Fault::Refuse);
        let told = Arc::new(AtomicBool::new(false));
        let (begun, telling) = (Arc::new(Notify::new()), told.clone());
        let beginning = begun.clone();
        let call = stage.call_with(move |execution| async move {
            let watching = execution.clone();
            tokio::spawn(async move {
                watching.lost().await;
                telling.store(true, Ordering::SeqCst);
            });
            beginning.notify_one();
            std::future::pending().await
        });
        let losing = async {
            begun.notified().await;
            stage.clock.slept_on_for(LEASE / 3).await;
            stage.clock.advance(LEASE / 10 * 9);
        };
        let (answer, ()) = tokio::join!(call, losing);
        assert!(matches!(conflict(answer), Conflict::OutcomeUnknown { .. }));
        while !told.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    });
}
