//! A batch costs one round trip to claim and few to complete; a long handler's lease is kept by batches of renewals.

use std::sync::Arc;

use onlyonce_inbox::{Handled, Work};
use tokio::sync::Semaphore;

use crate::stage::counted::Counted;
use crate::stage::{LEASE, Stage, Started, block_on};

#[test]
fn a_batch_is_claimed_in_one_round_trip_and_completed_in_few() {
    block_on(async {
        let stage = Stage::new();
        let counted = Arc::new(Counted::new(stage.store.clone()));
        let stage = stage.on(counted.clone());
        for number in 0..200 {
            stage.publish(&format!("message {number}"));
        }
        // Handlers end together, as those of a fast application do.
        let (gate, effects) = (Arc::new(Semaphore::new(0)), stage.effects.clone());
        let at = gate.clone();
        let handler = move |work: Work| {
            let (at, effects) = (at.clone(), effects.clone());
            async move {
                let _ = at.acquire().await;
                effects.add(&work);
                Handled::done()
            }
        };
        let consumer = stage.builder(handler).batch_max(200).concurrency(200);
        let consumer = Started::new(consumer.build().await.unwrap());
        counted.claimed(200).await;
        gate.add_permits(200);
        stage.settled().await;
        consumer.stop().await;
        let trips = counted.trips();
        assert_eq!((trips.claims, trips.single_claims), (1, 0));
        assert_eq!(trips.single_completes, 0, "completions travel together");
        assert!(trips.completes <= 50, "200 completions in {} round trips", trips.completes);
        assert_eq!(stage.effects.all().len(), 200);
    });
}

#[test]
fn leases_of_long_handlers_are_kept_together() {
    block_on(async {
        let stage = Stage::new();
        let counted = Arc::new(Counted::new(stage.store.clone()));
        let stage = stage.on(counted.clone());
        for number in 0..20 {
            stage.publish(&format!("message {number}"));
        }
        let (gate, effects) = (Arc::new(Semaphore::new(0)), stage.effects.clone());
        let at = gate.clone();
        let consumer = stage
            .start(move |work: Work| {
                let (at, effects) = (at.clone(), effects.clone());
                async move {
                    let _ = at.acquire().await;
                    effects.add(&work);
                    Handled::done()
                }
            })
            .await;
        counted.claimed(20).await;
        for round in 1..=4 {
            // A third of a lease at a time: each must be renewed before the next.
            stage.clock.slept_on_for(LEASE / 3).await;
            stage.clock.advance(LEASE / 3);
            counted.renewed(20 * round).await;
        }
        gate.add_permits(20);
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.retried), (20, 0), "longer than a lease, and still once");
        let trips = counted.trips();
        assert_eq!(trips.single_renews, 0, "renewals travel together");
        assert!(trips.renews < 80, "80 renewals in {} round trips", trips.renews);
    });
}
