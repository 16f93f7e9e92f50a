//! Batches in one transaction each: none lost, none twice, and one bad message holds up nobody.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::BoxError;
use onlyonce_inbox::transactional::BatchFuture;
use onlyonce_inbox::{
    Backoff, BatchHandler, Batches, Chances, Counts, Handled, Marks, MemoryBroker, Message, Tally,
};
use onlyonce_testkit::servers::PostgresEnd;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_postgres::{NoTls, Transaction};

use crate::stage::{Stage, block_on, message};

/// Writes the names of all messages in one statement; fails on those that say how to fail.
struct Effects;

impl BatchHandler for Effects {
    fn handle<'t, 'c>(
        &'t self,
        transaction: &'t mut Transaction<'c>,
        messages: &'t [&'t Message],
    ) -> BatchFuture<'t>
    where
        'c: 't,
    {
        Box::pin(async move {
            let names: Vec<&str> =
                messages.iter().map(|message| std::str::from_utf8(&message.body).unwrap()).collect();
            let written =
                transaction.execute("INSERT INTO effects SELECT unnest($1::text[])", &[&names]).await;
            written.map_err(|error| Handled::retry(error.to_string()))?;
            match names.iter().find(|name| name.starts_with("bad")) {
                Some(&"bad: refused") => Err(Handled::refused("no such account")),
                Some(&"bad: panics") => panic!("on purpose"),
                Some(_) => Err(Handled::retry("not now")),
                None => Ok(()),
            }
        })
    }
}

struct Running {
    counts: Arc<Counts>,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<()>,
}

impl Running {
    fn start(stage: &Stage, broker: &MemoryBroker) -> Self {
        let url = stage.server.url();
        let connect = move || {
            let url = url.clone();
            async move {
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
                tokio::spawn(connection);
                Ok::<_, BoxError>(client)
            }
        };
        let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(500) };
        let marks = Marks::new("public").unwrap();
        let batches = Batches::new("billing", Arc::new(broker.source()), marks, Effects, connect)
            .with_backoff(backoff)
            .with_bounds(50, 2)
            .unwrap();
        let counts = batches.counts();
        let (stop, stopped) = oneshot::channel::<()>();
        let ended = tokio::spawn(async move {
            batches.run(async { drop(stopped.await) }).await.unwrap();
        });
        Self { counts, stop, ended }
    }

    async fn stop(self) -> Tally {
        drop(self.stop);
        self.ended.await.unwrap();
        let counts = self.counts.now();
        assert_eq!(counts.settled + counts.gone, counts.fetched, "every delivery is settled: {counts:?}");
        counts
    }
}

async fn stage() -> Stage {
    let stage = Stage::new().await;
    let migration = Marks::new("public").unwrap().migration();
    stage.client().await.batch_execute(&migration).await.unwrap();
    stage
}

async fn assert_once(stage: &Stage, count: i64) {
    let client = stage.client().await;
    let row = client.query_one("SELECT count(*), count(DISTINCT name) FROM effects", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (count, count), "none lost, none twice");
}

#[test]
fn each_message_has_its_effect_once_whatever_the_broker_does() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        for number in 0..500 {
            broker.publish(message(&format!("m{number}")));
            if number % 3 == 0 {
                broker.publish(message(&format!("m{number}")));
            }
        }
        let chances =
            Chances { seed: 3, duplicated: 200, reordered: 300, acks_lost: 100, settlements_refused: 50 };
        broker.by_chance(chances);
        let (one, two) = (Running::start(&stage, &broker), Running::start(&stage, &broker));
        broker.until(|broker| broker.unsettled() == 0).await;
        let (one, two) = (one.stop().await, two.stop().await);
        assert_eq!(one.done + two.done, 500);
        assert_once(&stage, 500).await;
    });
}

#[test]
fn one_bad_message_holds_up_nobody() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        for number in 0..30 {
            broker.publish(message(&format!("m{number}")));
        }
        for bad in ["bad: refused", "bad: panics", "bad: not now"] {
            broker.publish(message(bad));
        }
        broker.publish(Message::new("nameless").at(""));
        let running = Running::start(&stage, &broker);
        broker.until(|broker| broker.unsettled() == 0).await;
        let counts = running.stop().await;
        assert_eq!((counts.done, counts.dead_lettered, counts.nameless), (30, 3, 1));
        assert_eq!(broker.dead_letters().len(), 4);
        assert_once(&stage, 30).await;
    });
}

#[test]
fn a_server_that_is_killed_loses_and_repeats_nothing() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        let running = Running::start(&stage, &broker);
        for round in 0..3 {
            for number in 0..200 {
                broker.publish(message(&format!("m{round}/{number}")));
            }
            broker.until(|broker| broker.deliveries() > round * 200 + 20).await;
            let end = if round == 1 { PostgresEnd::Killed } else { PostgresEnd::Immediate };
            stage.server.end(end).unwrap();
            stage.server.restart().unwrap();
        }
        broker.until(|broker| broker.unsettled() == 0).await;
        running.stop().await;
        assert!(broker.dead_letters().is_empty());
        assert_once(&stage, 600).await;
    });
}
