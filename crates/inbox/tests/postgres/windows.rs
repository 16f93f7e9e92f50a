//! The crash windows with effect and mark in one transaction of a real server: none lost, none twice.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, Outcome, Store};
use onlyonce_inbox::suite::{Effect, Fixture, Stops, Window};
use onlyonce_inbox::{Handled, MemoryBroker, Message, Source, Work};
use onlyonce_store_postgres::PostgresStore;

use crate::stage::{EFFECT, Stage, client, count};

struct OnPostgres {
    stage: Stage,
    broker: MemoryBroker,
    store: Arc<PostgresStore>,
}

impl OnPostgres {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let (broker, store) = (MemoryBroker::new(stage.clock.clone()), stage.store().await);
        Self { stage, broker, store }
    }

    fn effect(&self) -> Transactional {
        Transactional { url: self.stage.server.url().into(), store: self.store.clone() }
    }
}

impl Fixture for OnPostgres {
    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.broker.source())
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.stage.store().await
    }

    async fn publish(&self, message: Message) {
        self.broker.publish(message);
    }

    async fn dead_letters(&self) -> Vec<Message> {
        self.broker.dead_letters().into_iter().map(|(message, _)| message).collect()
    }

    async fn take_away(&self) {
        self.broker.revoke_all();
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.stage.clock.clone()
    }

    fn lease(&self) -> Lease {
        Lease::DEFAULT
    }

    async fn pass(&self, time: Duration) {
        self.stage.clock.advance(time);
    }

    async fn idle(&self) {
        const STEP: Duration = Duration::from_millis(1);
        if self.broker.out() == 0 && self.broker.delayed() > 0 {
            return self.stage.clock.advance(Duration::from_millis(100));
        }
        // tidy: sleep because time must pass for calls of the server that failed, and no faster than the server's own
        tokio::time::sleep(STEP).await;
        self.stage.clock.advance(STEP);
    }
}

/// The handler's transaction: effect, mark, commit.
#[derive(Clone)]
struct Transactional {
    url: Arc<str>,
    /// Says where the functions are; the transaction is on the process's own connection.
    store: Arc<PostgresStore>,
}

impl Effect for Transactional {
    const TRANSACTIONAL: bool = true;

    async fn handle(&self, work: Work, stops: Stops) -> Handled {
        stops.pass(Window::W1).await;
        let mut client = client(&self.url).await;
        let mut transaction = client.transaction().await.unwrap();
        let name = String::from_utf8(work.message().body.to_vec()).unwrap();
        transaction.execute(EFFECT, &[&name]).await.unwrap();
        stops.pass(Window::W2).await;
        let outcome = Outcome::kept(2, format!("attempt {}", work.attempt()));
        match work.mark_in(&self.store, &mut transaction, outcome).await {
            Ok(handled) => match transaction.commit().await {
                Ok(()) => handled,
                Err(error) => Handled::unknown(error.to_string()),
            },
            Err(error) => Handled::retry(error.to_string()),
        }
    }

    async fn count(&self, name: &str) -> usize {
        usize::try_from(count(&client(&self.url).await, name).await).unwrap()
    }
}

onlyonce_inbox::crash_suite!(OnPostgres::new(), |fixture: &OnPostgres| fixture.effect());
