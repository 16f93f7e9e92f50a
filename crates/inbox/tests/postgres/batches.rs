//! Batches in one transaction each: none lost, none twice, and one bad message holds up nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::BoxError;
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::transactional::BatchFuture;
use onlyonce_inbox::{
    Backoff, BatchHandler, Batches, Chances, Counts, Handled, Marks, MemoryBroker, Message, Tally,
};
use onlyonce_testkit::ManualClock;
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
            if names.contains(&"bad: kills") {
                // The whole backend, as a crash in it would.
                let killed = transaction.execute("SELECT pg_terminate_backend(pg_backend_pid())", &[]).await;
                return killed.map(drop).map_err(|error| Handled::retry(error.to_string()));
            }
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
        Self::run(batches(stage, broker, Effects, |_| false))
    }

    fn run(batches: Batches) -> Self {
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

/// Batches with two connections; those by number that `hang` says are never made.
fn batches(
    stage: &Stage,
    broker: &MemoryBroker,
    handler: impl BatchHandler,
    hang: fn(u32) -> bool,
) -> Batches {
    let (url, made) = (stage.server.url(), Arc::new(AtomicU32::new(0)));
    let connect = move || {
        let (url, hangs) = (url.clone(), hang(made.fetch_add(1, Ordering::Relaxed)));
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
            tokio::spawn(connection);
            Ok::<_, BoxError>(client)
        }
    };
    let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(500) };
    let marks = Marks::new("public").unwrap();
    Batches::new("billing", Arc::new(broker.source()), marks, handler, connect)
        .with_backoff(backoff)
        .with_bounds(50, 2)
        .unwrap()
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

#[test]
fn a_message_that_kills_its_connection_holds_up_nobody_and_is_parked() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        for number in 0..30 {
            broker.publish(message(&format!("m{number}")));
        }
        broker.publish(message("bad: kills"));
        for number in 30..60 {
            broker.publish(message(&format!("m{number}")));
        }
        let running = Running::start(&stage, &broker);
        in_time("handling", broker.until(|broker| broker.unsettled() == 0)).await;
        let counts = running.stop().await;
        assert_eq!((counts.done, counts.dead_lettered), (60, 1));
        let dead = broker.dead_letters();
        assert!(
            dead[0].1.contains("its connection was lost") && dead[0].1.contains("attempt 5 of 5"),
            "{dead:?}"
        );
        assert_once(&stage, 60).await;
    });
}

#[test]
fn a_database_that_does_not_answer_is_not_waited_for_without_end() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        // Somebody has a mark in a transaction that does not end: marking it waits for that.
        let mut other = stage.client().await;
        let mut transaction = other.transaction().await.unwrap();
        let marks = Marks::new("public").unwrap();
        assert!(marks.once(&mut transaction, "billing", "id:id of a").await.unwrap());
        broker.publish(message("a"));
        let batches = batches(&stage, &broker, Effects, |number| number == 0);
        let limits = (Duration::from_millis(300), Duration::from_mins(5));
        let running = Running::run(batches.with_time_limits(limits.0, limits.1).unwrap());
        let counts = running.counts.clone();
        // The first connection is never made, and then the mark is never set.
        in_time("giving up", broker.until(|_| counts.now().store_failed >= 2)).await;
        transaction.commit().await.unwrap();
        in_time("handling", broker.until(|broker| broker.unsettled() == 0)).await;
        assert_eq!(running.stop().await.duplicates, 1);
        assert!(broker.dead_letters().is_empty(), "it was nobody's fault");
        assert_once(&stage, 0).await;
    });
}

/// Never ends.
struct Endless(Arc<tokio::sync::Notify>);

impl BatchHandler for Endless {
    fn handle<'t, 'c>(&'t self, transaction: &'t mut Transaction<'c>, _: &'t [&'t Message]) -> BatchFuture<'t>
    where
        'c: 't,
    {
        Box::pin(async move {
            transaction.execute("INSERT INTO effects VALUES ('endless')", &[]).await.unwrap();
            self.0.notify_one();
            std::future::pending().await
        })
    }
}

#[test]
fn a_shutdown_gives_up_a_handler_that_does_not_end_and_begins_no_other_batch() {
    block_on(async {
        let (stage, broker) = (stage().await, MemoryBroker::default());
        for number in 0..500 {
            broker.publish(message(&format!("m{number}")));
        }
        let (clock, begun) = (Arc::new(ManualClock::default()), Arc::new(tokio::sync::Notify::new()));
        let batches = batches(&stage, &broker, Endless(begun.clone()), |_| false);
        let running = Running::run(batches.with_clock(clock.clone()));
        for _ in 0..2 {
            begun.notified().await;
        }
        drop(running.stop);
        // As long as a shutdown waits, and no more.
        clock.slept_on_for_exactly(Duration::from_secs(20)).await;
        clock.advance(Duration::from_secs(20));
        in_time("stopping", running.ended).await.unwrap();
        assert_eq!((running.counts.now().fetched, broker.out()), (100, 0), "given back");
        assert_eq!(broker.unsettled(), 500);
        assert_once(&stage, 0).await;
    });
}
