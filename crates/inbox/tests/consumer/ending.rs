//! How a consumer ends: what runs is waited for, what has not begun is not touched, what does not end is abandoned.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::StateKind;
use onlyonce_core::store::Listing;
use onlyonce_inbox::{Handled, Work};

use crate::stage::{Door, Stage, Started, block_on, quiet};

/// Which attempt each run was.
#[derive(Debug, Clone, Default)]
struct Attempts(Arc<Mutex<Vec<u32>>>);

impl Attempts {
    fn note(&self, work: &Work) {
        self.0.lock().unwrap().push(work.attempt());
    }

    fn all(&self) -> Vec<u32> {
        self.0.lock().unwrap().clone()
    }
}

#[test]
fn a_shutdown_waits_for_what_runs_and_what_has_not_begun_costs_no_attempt() {
    block_on(async {
        let (stage, door) = (Stage::new(), Door::default());
        for number in 0..10 {
            stage.publish(&format!("message {number}"));
        }
        let attempts = Attempts::default();
        for round in 0..3 {
            let (at, effects, attempts) = (door.clone(), stage.effects.clone(), attempts.clone());
            let builder = stage.builder(move |work: Work| {
                let (at, effects) = (at.clone(), effects.clone());
                attempts.note(&work);
                async move {
                    at.pass().await;
                    effects.add(&work);
                    Handled::done()
                }
            });
            let mut consumer = Started::new(builder.concurrency(1).build().await.unwrap());
            door.reached().await;
            consumer.tell_to_stop();
            door.let_go();
            let counts = consumer.stop().await;
            assert_eq!((counts.retried, counts.dead_lettered), (0, 0));
            // It may have begun the next one before it heard of the stop, and then waits for that too.
            assert_eq!(stage.broker.unsettled(), 9 - round, "{counts:?}");
        }
        // Nothing was begun, so nothing is unknown: the next consumer begins at once.
        let noted = attempts.clone();
        let effects = stage.effects.clone();
        let consumer = stage
            .start(move |work: Work| {
                noted.note(&work);
                effects.add(&work);
                std::future::ready(Handled::done())
            })
            .await;
        stage.settled().await;
        assert_eq!(consumer.stop().await.done, 7);
        assert!(stage.effects.all().values().all(|times| *times == 1));
        assert_eq!(attempts.all(), [1; 10], "none was counted that did not begin");
    });
}

#[test]
fn a_message_is_not_claimed_before_it_can_begin() {
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
        let consumer = Started::new(stage.builder(handler).concurrency(1).build().await.unwrap());
        door.reached().await;
        for number in 0..5 {
            stage.publish(&format!("waits {number}"));
        }
        quiet().await;
        assert_eq!(stage.store.list(&Listing::default()).await.unwrap().records.len(), 1);
        door.let_go();
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.retried, counts.given_back), (6, 0, 0));
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
