//! Duplicates that arrive while the work runs: told at once, or woken; bounded in time and number.

use std::time::Duration;

use onlyonce_core::{Conflict, Failure};
use onlyonce_testkit::run;

use crate::stage::{LEASE, Stage, conflict, done, policy};

/// Longer than a heartbeat sleeps, so that a sleeper of this length is a waiter.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn without_patience_a_duplicate_is_told_at_once_and_when_to_come_back() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        assert_eq!(conflict(stage.call(1).await), Conflict::InFlight { retry_after: LEASE });
        end.send(Ok(42)).unwrap();
        assert_eq!(done(call.await.unwrap()), (42, false));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_waiting_duplicate_is_woken_by_the_completion_without_the_clock_moving() {
    run(async {
        let stage = Stage::new(policy().wait(PATIENCE)).await;
        let (call, end) = stage.start().await;
        let waiting = stage.call(1);
        let ending = async {
            stage.clock.slept_on_for(PATIENCE).await;
            end.send(Ok(42)).unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, ending);
        assert_eq!(done(waited), (42, true));
        assert_eq!(done(call.await.unwrap()), (42, false));
    });
}

#[test]
fn a_waiting_duplicate_runs_when_the_first_is_released() {
    run(async {
        let stage = Stage::new(policy().wait(PATIENCE)).await;
        let (_call, end) = stage.start().await;
        let ending = async {
            stage.clock.slept_on_for(PATIENCE).await;
            end.send(Err(Failure::rolled_back("down".into()))).unwrap();
        };
        let (waited, ()) = tokio::join!(stage.call(7), ending);
        assert_eq!(done(waited), (7, false));
    });
}

#[test]
fn waiting_ends_with_the_patience() {
    run(async {
        let stage = Stage::new(policy().wait(Duration::from_secs(4))).await;
        let (call, end) = stage.start().await;
        let moving = async {
            stage.clock.slept_on_for(Duration::from_secs(4)).await;
            stage.clock.advance(Duration::from_secs(4));
        };
        let (waited, ()) = tokio::join!(stage.call(1), moving);
        let retry_after = LEASE - Duration::from_secs(4);
        assert_eq!(conflict(waited), Conflict::InFlight { retry_after });
        end.send(Ok(42)).unwrap();
        done(call.await.unwrap());
    });
}

#[test]
fn waiters_of_one_key_are_counted_and_leave_when_dropped() {
    run(async {
        let stage = Stage::new(policy().wait(PATIENCE).waiters_max(1)).await;
        let (_call, end) = stage.start().await;
        {
            let mut first = Box::pin(stage.call(1));
            tokio::select! {
                biased;
                _ = &mut first => unreachable!("it waits"),
                () = stage.clock.slept_on_for(PATIENCE) => {}
            }
            assert!(
                matches!(conflict(stage.call(2).await), Conflict::InFlight { .. }),
                "one more is told at once"
            );
        }
        let ending = async {
            stage.clock.slept_on_for(PATIENCE).await;
            end.send(Ok(42)).unwrap();
        };
        let (waited, ()) = tokio::join!(stage.call(3), ending);
        assert_eq!(done(waited), (42, true), "the seat was free again");
    });
}

#[test]
fn a_herd_of_duplicates_costs_one_effect() {
    run(async {
        let stage = std::sync::Arc::new(Stage::new(policy().wait(PATIENCE)).await);
        let mut calls = tokio::task::JoinSet::new();
        for value in 0..200 {
            let stage = stage.clone();
            calls.spawn(async move { done(stage.call(value).await) });
        }
        let answers = calls.join_all().await;
        assert_eq!(stage.effects(), 1);
        assert_eq!(answers.iter().filter(|(_, replayed)| !replayed).count(), 1);
        assert!(answers.iter().all(|(value, _)| *value == answers[0].0));
    });
}
