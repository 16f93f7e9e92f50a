//! Keeping the lease: renewed at a third, given up in time, never past the maximum run time.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Conflict, Event, MemoryLimits, MemoryStore, UnknownPolicy};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, ManualClock, run};
use tokio::sync::Notify;

use crate::stage::{LEASE, Stage, conflict, done, policy};

/// Moves the clock by a third of the lease once the heartbeat sleeps again.
async fn beat(stage: &Stage) {
    stage.clock.slept_on_for(LEASE / 3).await;
    stage.clock.advance(LEASE / 3);
}

#[test]
fn the_lease_is_renewed_for_as_long_as_the_work_runs() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        for _ in 0..12 {
            beat(&stage).await;
        }
        stage.clock.slept_on_for(LEASE / 3).await;
        assert_eq!(conflict(stage.call(1).await), Conflict::InFlight { retry_after: LEASE });
        end.send(Ok(42)).unwrap();
        assert_eq!(done(call.await.unwrap()), (42, false));
    });
}

#[test]
fn work_is_stopped_before_a_lease_that_cannot_be_renewed_ends() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, _end) = stage.start().await;
        stage.store.next_times(1000, Operation::Renew, &Fault::Refuse);
        // Nine tenths of the lease: the store still keeps it for us.
        stage.clock.slept_on_for(LEASE / 3).await;
        stage.clock.advance(LEASE / 10 * 9);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::LeaseLost) && stage.seen.has(Event::Abandoned));
        assert!(matches!(conflict(stage.call(1).await), Conflict::OutcomeUnknown { .. }));
        assert_eq!(stage.effects(), 1);
    });
}

#[test]
fn a_renewal_that_fails_for_a_while_costs_nothing() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        stage.store.next_times(2, Operation::Renew, &Fault::LoseCommand);
        beat(&stage).await;
        for _ in 0..2 {
            stage.clock.slept_on_for(LEASE / 9).await;
            stage.clock.advance(LEASE / 9);
        }
        beat(&stage).await;
        stage.clock.slept_on_for(LEASE / 3).await;
        end.send(Ok(42)).unwrap();
        assert_eq!(done(call.await.unwrap()), (42, false));
    });
}

#[test]
fn a_store_that_hangs_on_renewal_does_not_hang_the_deadline() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, _end) = stage.start().await;
        stage.store.next(Operation::Renew, Fault::Delay(Arc::new(Notify::new())));
        beat(&stage).await;
        stage.clock.slept_on_for(LEASE / 3).await;
        stage.clock.advance(LEASE);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
    });
}

#[test]
fn the_owners_deadline_counts_from_before_the_claim_was_sent() {
    run(async {
        let stage = Arc::new(Stage::new(policy()).await);
        let arrived = Arc::new(Notify::new());
        stage.store.next(Operation::Claim, Fault::Delay(arrived.clone()));
        stage.store.next_times(1000, Operation::Renew, &Fault::Refuse);
        let begun = Arc::new(Notify::new());
        let call = tokio::spawn({
            let (stage, begun) = (stage.clone(), begun.clone());
            async move {
                let work = move |_| async move {
                    begun.notify_one();
                    std::future::pending().await
                };
                stage.call_with(work).await
            }
        });
        // The claim is on its way for a third of the lease.
        while stage.store.unmet(Operation::Claim) > 0 {
            tokio::task::yield_now().await;
        }
        stage.clock.advance(LEASE / 3);
        arrived.notify_one();
        begun.notified().await;
        // Nine tenths of a lease after it was sent, not after it arrived.
        stage.clock.slept_on_for(Duration::from_millis(1)).await;
        stage.clock.advance(LEASE / 10 * 9 - LEASE / 3);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
    });
}

#[test]
fn no_attempt_outlasts_the_maximum_run_time() {
    run(async {
        let stage = Stage::new(policy().run_max(LEASE * 2)).await;
        let (call, _end) = stage.start().await;
        for _ in 0..5 {
            beat(&stage).await;
        }
        // What is left is less than a lease: the last renewal was cut short.
        stage.clock.slept_on_for(LEASE / 4).await;
        stage.clock.advance(LEASE / 3);
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert!(stage.seen.has(Event::LeaseLost));
    });
}

#[test]
fn a_paused_owner_whose_record_was_taken_over_does_not_present_its_answer() {
    run(async {
        // The store's clock runs on while the owner's stands still: the owner is a zombie and cannot know.
        let clock = Arc::new(ManualClock::default());
        let stores_clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(stores_clock.clone(), MemoryLimits::default());
        let stage = Stage::over(store, clock, policy().unknown(UnknownPolicy::Rerun), None).await;
        let (call, end) = stage.start().await;
        stores_clock.advance(LEASE);
        assert_eq!(done(stage.call(2).await), (2, false), "the second attempt took over");
        end.send(Ok(1)).unwrap();
        assert_eq!(conflict(call.await.unwrap()), Conflict::Fenced);
        assert!(stage.seen.has(Event::Fenced));
        assert_eq!(done(stage.call(3).await), (2, true));
    });
}

#[test]
fn a_lost_lease_is_told_once_and_the_store_is_still_waited_for() {
    run(async {
        let within = Duration::from_millis(500);
        let stage = Stage::new(policy().answer_within(within)).await;
        let (call, _end) = stage.start().await;
        let go_on = Arc::new(Notify::new());
        stage.store.next_times(1000, Operation::Renew, &Fault::Refuse);
        // Twice: were the first not waited for, the second would be sent.
        stage.store.next_times(2, Operation::Abandon, &Fault::Delay(go_on.clone()));
        stage.clock.slept_on_for(LEASE / 3).await;
        stage.clock.advance(LEASE / 10 * 9);
        stage.seen.until(Event::LeaseLost).await;
        stage.clock.slept_on_for_exactly(within).await;
        assert_eq!(stage.store.unmet(Operation::Abandon), 1);
        go_on.notify_one();
        assert!(matches!(conflict(call.await.unwrap()), Conflict::OutcomeUnknown { .. }));
        assert_eq!((stage.seen.count(Event::LeaseLost), stage.store.unmet(Operation::Abandon)), (1, 1));
    });
}

#[test]
fn a_renewal_on_its_way_goes_on_while_the_outcome_is_told() {
    run(async {
        let stage = Stage::new(policy()).await;
        let (call, end) = stage.start().await;
        let go_on = Arc::new(Notify::new());
        // A second one would be sent if the first were dropped.
        stage.store.next_times(2, Operation::Renew, &Fault::Delay(go_on.clone()));
        stage.store.next_times(2, Operation::Complete, &Fault::LoseCommand);
        beat(&stage).await;
        while stage.store.unmet(Operation::Renew) > 1 {
            tokio::task::yield_now().await;
        }
        end.send(Ok(42)).unwrap();
        // Between the tries: the first of these waits ends without an answer to the renewal.
        for again_in in [10, 20].map(Duration::from_millis) {
            stage.clock.slept_on_for_exactly(again_in).await;
            stage.clock.advance(again_in);
        }
        assert_eq!(done(call.await.unwrap()), (42, false));
        assert_eq!(stage.store.unmet(Operation::Renew), 1);
        go_on.notify_one();
    });
}
