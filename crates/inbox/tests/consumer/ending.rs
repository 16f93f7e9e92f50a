//! How a consumer ends: what runs is waited for, what has not begun is given back, what does not end is abandoned.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::StateKind;
use onlyonce_core::store::Listing;
use onlyonce_inbox::{Handled, Work};

use crate::stage::{Door, LEASE, Stage, Started, block_on, policy, quiet};

#[test]
fn a_shutdown_waits_for_what_runs_and_gives_back_what_has_not_begun() {
    block_on(async {
        let (stage, door) = (Stage::new(), Door::default());
        for number in 0..10 {
            stage.publish(&format!("message {number}"));
        }
        let (at, effects) = (door.clone(), stage.effects.clone());
        let builder = stage.builder(move |work: Work| {
            let (at, effects) = (at.clone(), effects.clone());
            async move {
                at.pass().await;
                effects.add(&work);
                Handled::done()
            }
        });
        let mut consumer = Started::new(builder.concurrency(1).build().await.unwrap());
        door.reached().await;
        consumer.tell_to_stop();
        // It has heard of it: before, the second would begin as soon as the first makes room.
        stage.broker.until(|broker| broker.out() == 1).await;
        door.let_go();
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.given_back), (1, 1), "no more is claimed than can begin soon");
        assert_eq!(stage.broker.unsettled(), 9);
        // Nothing was begun, so nothing is unknown: the next consumer begins at once.
        let consumer = stage.start(stage.effects.handler()).await;
        stage.settled().await;
        assert_eq!(consumer.stop().await.done, 9);
        assert!(stage.effects.all().values().all(|times| *times == 1));
    });
}

#[test]
fn a_message_that_waits_too_long_for_its_turn_is_given_back_unbegun() {
    onlyonce_testkit::run(async {
        let (stage, door) = (Stage::new(), Door::default());
        stage.publish("slow");
        let (at, effects) = (door.clone(), stage.effects.clone());
        let handler = move |work: Work| {
            let (at, effects) = (at.clone(), effects.clone());
            async move {
                if work.message().body == "slow" {
                    at.pass().await;
                }
                effects.add(&work);
                Handled::done()
            }
        };
        // Half of the time an attempt may take is more than a lease: the heartbeats of both go on meanwhile.
        let policy = policy().run_max(4 * LEASE);
        let builder = stage.builder(handler).concurrency(1).policy(policy);
        let consumer = Started::new(builder.build().await.unwrap());
        door.reached().await;
        stage.publish("waits");
        stage.broker.until(|broker| broker.out() == 2).await;
        while consumer.counts.now().given_back == 0 {
            stage.clock.advance(LEASE / 10);
            quiet().await;
        }
        door.let_go();
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.retried, counts.dead_lettered), (0, 0), "it was nobody's failure");
        assert_eq!((stage.effects.of("slow"), stage.effects.of("waits")), (1, 1));
    });
}

#[test]
fn a_handler_that_does_not_end_is_abandoned_and_its_message_comes_again() {
    block_on(async {
        let (stage, door) = (Stage::new(), Door::default());
        stage.publish("a");
        let at = door.clone();
        let mut consumer = stage
            .start(move |_: Work| {
                let at = at.clone();
                async move {
                    at.pass().await;
                    std::future::pending().await
                }
            })
            .await;
        door.reached().await;
        consumer.tell_to_stop();
        door.let_go();
        // The patience of the shutdown, and no more.
        stage.clock.slept_on_for_exactly(Duration::from_secs(20)).await;
        stage.clock.advance(Duration::from_secs(20));
        let counts = consumer.stop().await;
        assert_eq!(counts.retried, 1);
        let unknown = Listing { states: vec![StateKind::Unknown], ..Listing::default() };
        assert_eq!(stage.store.list(&unknown).await.unwrap().records.len(), 1, "abandoned, not released");
        stage.clock.advance(Duration::from_secs(5));
        let consumer = stage.start(stage.effects.handler()).await;
        stage.settled().await;
        consumer.stop().await;
        assert_eq!(stage.effects.of("a"), 1);
    });
}

#[test]
fn a_closed_source_ends_the_consumer() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        let source = Arc::new(stage.broker.source());
        let consumer = onlyonce_inbox::Consumer::builder(
            "billing",
            source.clone(),
            stage.store.clone(),
            stage.effects.handler(),
        );
        let consumer = consumer.clock(stage.clock.clone()).build().await.unwrap();
        let running = tokio::spawn(consumer.run(std::future::pending()));
        stage.settled().await;
        onlyonce_inbox::Source::close(&*source).await.unwrap();
        running.await.unwrap().unwrap();
        assert_eq!(stage.effects.of("a"), 1);
    });
}
