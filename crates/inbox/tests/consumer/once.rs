//! Each message once, on every store, whatever the broker does.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{MemoryStore, Store};
use onlyonce_inbox::{Backoff, Chances, Consumer, Handled, MemoryBroker, OnMismatch, Trouble, Work};
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::stage::{Door, Effects, LEASE, Stage, Started, block_on, message};

/// Three hundred messages, half of them published twice, over a broker that duplicates, reorders, leaves gaps and loses
/// acknowledgements.
async fn every_message_has_its_effect_once(store: Arc<dyn Store>) {
    const COUNT: usize = 300;
    let (broker, effects) = (MemoryBroker::default(), Effects::default());
    for number in 0..COUNT {
        broker.publish(message(&format!("message {number}")));
        broker.leave_a_gap(u64::from(number % 7 == 0));
        if number % 2 == 0 {
            broker.publish(message(&format!("message {number}")));
        }
    }
    let chances =
        Chances { seed: 7, duplicated: 200, reordered: 300, acks_lost: 100, settlements_refused: 50 };
    broker.by_chance(chances);
    let started = |broker: &MemoryBroker| {
        let backoff = Backoff { first: Duration::from_millis(20), longest: Duration::from_secs(1) };
        Consumer::builder("billing", Arc::new(broker.source()), store.clone(), effects.handler())
            .batch_max(50)
            .backoff(backoff)
            .build()
    };
    let (one, two) = (started(&broker).await.unwrap(), started(&broker).await.unwrap());
    let (one, two) = (Started::new(one), Started::new(two));
    broker.until(|broker| broker.unsettled() == 0).await;
    let (one, two) = (one.stop().await, two.stop().await);
    assert_eq!(one.done + two.done, COUNT as u64);
    let effects = effects.all();
    assert_eq!(effects.len(), COUNT, "none is lost");
    assert!(effects.values().all(|times| *times == 1), "none twice: {effects:?}");
    assert!(broker.dead_letters().is_empty());
    assert!(one.duplicates + two.duplicates > 0);
}

#[test]
fn once_with_records_in_memory() {
    block_on(every_message_has_its_effect_once(Arc::new(MemoryStore::default())));
}

#[test]
fn once_with_records_in_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path(), onlyonce_store_embedded::Options::default()).unwrap();
    block_on(every_message_has_its_effect_once(Arc::new(store)));
}

#[test]
fn once_with_records_in_redis() {
    let server = RedisServer::start(RedisOptions::default()).expect("a private server");
    block_on(async {
        let store =
            RedisStore::connect(&server.url(), onlyonce_store_redis::Options::default()).await.unwrap();
        every_message_has_its_effect_once(Arc::new(store)).await;
    });
}

#[test]
fn once_with_records_in_postgres() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        let options = Options::from_url(&server.url()).unwrap();
        migrate(&options).await.unwrap();
        let store = PostgresStore::open(options).await.unwrap();
        every_message_has_its_effect_once(Arc::new(store)).await;
    });
}

#[test]
fn a_message_that_someone_is_at_is_neither_run_nor_acknowledged() {
    block_on(async {
        let (stage, door) = (Stage::new(), Door::default());
        stage.publish("a");
        let (at, effects) = (door.clone(), stage.effects.clone());
        let slow = stage
            .start(move |work: Work| {
                let (at, effects) = (at.clone(), effects.clone());
                async move {
                    at.pass().await;
                    effects.add(&work);
                    Handled::done()
                }
            })
            .await;
        door.reached().await;
        // A rebalance gives the message to another consumer while the first is at it.
        stage.broker.revoke_all();
        let second = stage.start(stage.effects.handler()).await;
        stage.broker.until(|broker| broker.delayed() == 1).await;
        assert_eq!((stage.effects.of("a"), stage.broker.unsettled()), (0, 1));
        assert_eq!(slow.counts.now().busy + second.counts.now().busy, 1, "whoever got it");
        door.let_go();
        // The first ends its work although its delivery is gone; the second finds the outcome.
        while slow.counts.now().done == 0 {
            tokio::task::yield_now().await;
        }
        stage.clock.advance(LEASE);
        stage.settled().await;
        let (slow, second) = (slow.stop().await, second.stop().await);
        assert_eq!((slow.done, slow.gone), (1, 1), "its own delivery was taken away");
        assert_eq!((slow.duplicates + second.duplicates, stage.effects.of("a")), (1, 1));
    });
}

#[test]
fn twins_in_one_batch_share_one_fate() {
    block_on(async {
        let stage = Stage::new();
        for _ in 0..3 {
            stage.publish("a");
        }
        stage.broker.trouble(Trouble::Duplicate, 2);
        let consumer = stage.start(stage.effects.handler()).await;
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.duplicates, counts.busy), (1, 4, 0));
        assert_eq!(stage.effects.of("a"), 1);
    });
}

#[test]
fn an_id_that_was_used_for_another_message_is_reported() {
    for (on_mismatch, dead) in [(OnMismatch::DeadLetter, 1), (OnMismatch::Report, 0)] {
        block_on(async {
            let stage = Stage::new();
            stage.publish("a");
            // In the same batch and in a later one.
            let builder = stage.builder(stage.effects.handler()).on_mismatch(on_mismatch);
            let consumer = Started::new(builder.build().await.unwrap());
            stage.settled().await;
            let other = onlyonce_inbox::Message::new("b").with_header("event-id", "id of a");
            stage.broker.publish(other);
            stage.settled().await;
            assert_eq!(consumer.stop().await.mismatched, 1);
            let dead_letters = stage.broker.dead_letters();
            assert_eq!(dead_letters.len(), dead);
            assert!(dead_letters.iter().all(|(_, reason)| reason.contains("another message")));
            assert_eq!((stage.effects.of("a"), stage.effects.of("b")), (1, 0));
        });
    }
}

#[test]
fn two_consumers_by_name_each_get_the_message() {
    block_on(async {
        let (stage, mailing) = (Stage::new(), Effects::default());
        stage.publish("a");
        let billing = stage.start(stage.effects.handler()).await;
        stage.settled().await;
        billing.stop().await;
        stage.publish("a");
        let source = Arc::new(stage.broker.source());
        let consumer = Consumer::builder("mailing", source, stage.store.clone(), mailing.handler());
        let consumer = Started::new(consumer.clock(stage.clock.clone()).build().await.unwrap());
        stage.settled().await;
        consumer.stop().await;
        assert_eq!((stage.effects.of("a"), mailing.of("a")), (1, 1));
    });
}
