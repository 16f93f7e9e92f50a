//! Stores that refuse, lose commands, lose replies and repeat them.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{EngineErrorKind, Event, Failure, Recorded, Run, StoreErrorKind};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, run};
use tokio::sync::Notify;

use crate::stage::{LEASE, Stage, done, policy, with_time_passing};

#[test]
fn i13_a_store_that_cannot_be_reached_means_no_work() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next(Operation::Claim, Fault::Refuse);
        let error = stage.call(1).await.unwrap_err();
        assert_eq!(error.kind(), EngineErrorKind::Store(StoreErrorKind::Unavailable));
        assert!(error.is_retryable());
        assert_eq!(stage.effects(), 0);
        assert_eq!(done(stage.call(2).await), (2, false));
    });
}

#[test]
fn i16_a_lost_reply_to_a_claim_is_asked_for_again_and_granted_once() {
    run(async {
        for fault in [Fault::LoseReply, Fault::LoseCommand, Fault::Duplicate] {
            let stage = Stage::new(policy()).await;
            stage.store.next_times(3, Operation::Claim, &fault);
            let answer = with_time_passing(&stage, Duration::from_millis(5), stage.call(42)).await;
            match answer {
                Ok(Run::Done(done)) => assert_eq!((done.value, done.attempt), (42, 1), "{fault:?}"),
                other => panic!("{fault:?}: expected a value, got {other:?}"),
            }
            assert_eq!(stage.effects(), 1);
        }
    });
}

#[test]
fn a_grant_nobody_heard_of_is_given_back() {
    run(async {
        let stage = Stage::new(policy().claim_for(Duration::from_millis(100))).await;
        stage.store.next_times(6, Operation::Claim, &Fault::LoseReply);
        let answer = with_time_passing(&stage, Duration::from_millis(5), stage.call(1)).await;
        assert_eq!(answer.unwrap_err().kind(), EngineErrorKind::Store(StoreErrorKind::TimedOut));
        assert_eq!(stage.effects(), 0, "the caller was refused, so nothing may run");
        with_time_passing(&stage, Duration::from_millis(50), stage.seen.until(Event::Released)).await;
        assert_eq!(done(stage.call(2).await), (2, false), "at once, without waiting for the lease");
    });
}

#[test]
fn a_lost_reply_to_a_completion_is_asked_for_again() {
    run(async {
        for fault in [Fault::LoseReply, Fault::LoseCommand, Fault::Duplicate, Fault::Refuse] {
            let stage = Stage::new(policy()).await;
            stage.store.next_times(2, Operation::Complete, &fault);
            let answer = with_time_passing(&stage, Duration::from_millis(5), stage.call(42)).await;
            assert!(
                matches!(answer, Ok(Run::Done(done)) if done.recorded == Recorded::Completed),
                "{fault:?}"
            );
            assert_eq!(done(stage.call(43).await), (42, true));
        }
    });
}

#[test]
fn i9_an_answer_that_cannot_be_recorded_carries_the_mark_and_is_recorded_later() {
    run(async {
        let stage = Stage::new(policy()).await;
        stage.store.next_times(1000, Operation::Complete, &Fault::Refuse);
        let answer = with_time_passing(&stage, Duration::from_millis(20), stage.call(42)).await;
        assert!(
            matches!(answer, Ok(Run::Done(done)) if (done.value, done.recorded) == (42, Recorded::Unrecorded))
        );
        // The store is away for longer than a lease; the lease is kept meanwhile.
        let start = onlyonce_core::Clock::now(&*stage.clock);
        while onlyonce_core::Clock::now(&*stage.clock) < start + LEASE * 2 {
            stage.clock.slept_on_for(Duration::from_millis(1)).await;
            stage.clock.advance(Duration::from_millis(500));
            tokio::task::yield_now().await;
        }
        stage.store.heal();
        with_time_passing(&stage, Duration::from_millis(100), stage.seen.until(Event::Completed)).await;
        assert_eq!(done(stage.call(43).await), (42, true));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_store_that_hangs_on_completion_does_not_keep_the_caller() {
    run(async {
        let stage = Stage::new(policy()).await;
        let back = Arc::new(Notify::new());
        stage.store.next_times(2, Operation::Complete, &Fault::Delay(back.clone()));
        let answer = with_time_passing(&stage, Duration::from_millis(50), stage.call(42)).await;
        assert!(matches!(answer, Ok(Run::Done(done)) if done.recorded == Recorded::Unrecorded));
        back.notify_one();
        stage.seen.until(Event::Completed).await;
        assert_eq!(done(stage.call(43).await), (42, true));
    });
}

#[test]
fn a_lost_reply_to_a_release_still_frees_the_key() {
    run(async {
        for fault in [Fault::LoseReply, Fault::LoseCommand, Fault::Refuse] {
            let stage = Stage::new(policy()).await;
            stage.store.next(Operation::Release, fault);
            let failing = stage.call_with(|_| async { Err(Failure::rolled_back("down".into())) });
            let failed = with_time_passing(&stage, Duration::from_millis(5), failing).await;
            assert!(matches!(failed, Ok(Run::Failed(_))));
            assert_eq!(done(stage.call(2).await), (2, false));
        }
    });
}
