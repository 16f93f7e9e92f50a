//! What these tests have in common: a server with a schema and a table for effects.

use std::future::Future;
use std::sync::Arc;

use onlyonce_inbox::suite::Database;
pub(crate) use onlyonce_inbox::suite::connect as client;
use onlyonce_inbox::{Inbox, Message};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_testkit::ManualClock;
use onlyonce_testkit::servers::PostgresServer;
use tokio_postgres::Client;

/// A private server whose store goes by a clock moved by hand.
pub(crate) struct Stage {
    pub(crate) server: PostgresServer,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) database: Database,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        // Every handler has a connection of its own, and one that was dropped may linger for a while.
        let settings = ["max_connections=400"];
        let starting = move || PostgresServer::start(&settings).expect("a private server");
        let starting = tokio::task::spawn_blocking(starting);
        let (server, clock) = (starting.await.unwrap(), Arc::new(ManualClock::default()));
        let database = Database::new(&server.url(), clock.clone()).await;
        Self { server, clock, database }
    }

    pub(crate) async fn store(&self) -> Arc<PostgresStore> {
        self.database.store().await
    }

    pub(crate) async fn inbox(&self) -> Inbox {
        Inbox::open(self.store().await, "billing").await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        self.database.client().await
    }

    /// How often `name` had its effect.
    pub(crate) async fn effects(&self, name: &str) -> i64 {
        self.database.count(name).await
    }
}

pub(crate) const EFFECT: &str = Database::EFFECT;

pub(crate) fn message(name: &str) -> Message {
    Message::new(name.to_owned()).with_header("event-id", format!("id of {name}"))
}

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test)
}
