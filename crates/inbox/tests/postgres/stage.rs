//! What these tests have in common: a server with a schema and a table for effects.

use std::future::Future;
use std::sync::Arc;

use onlyonce_core::Clock;
use onlyonce_inbox::{Inbox, Message};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use onlyonce_testkit::ManualClock;
use onlyonce_testkit::servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

/// A private server whose store goes by a clock moved by hand.
pub(crate) struct Stage {
    pub(crate) server: PostgresServer,
    pub(crate) clock: Arc<ManualClock>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let starting = tokio::task::spawn_blocking(|| PostgresServer::start(&[]).expect("a private server"));
        let stage = Self { server: starting.await.unwrap(), clock: Arc::new(ManualClock::default()) };
        migrate(&stage.options()).await.unwrap();
        let client = stage.client().await;
        client.batch_execute("CREATE TABLE effects (name text NOT NULL)").await.unwrap();
        stage
    }

    fn options(&self) -> Options {
        Options::from_url(&self.server.url()).unwrap()
    }

    pub(crate) async fn store(&self) -> Arc<PostgresStore> {
        let clock: Arc<dyn Clock> = self.clock.clone();
        Arc::new(PostgresStore::open_on(self.options(), clock).await.unwrap())
    }

    pub(crate) async fn inbox(&self) -> Inbox {
        Inbox::open(self.store().await, "billing").await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        client(&self.server.url()).await
    }

    /// How often `name` had its effect.
    pub(crate) async fn effects(&self, name: &str) -> i64 {
        count(&self.client().await, name).await
    }
}

pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

pub(crate) async fn count(client: &Client, name: &str) -> i64 {
    client.query_one("SELECT count(*) FROM effects WHERE name = $1", &[&name]).await.unwrap().get(0)
}

pub(crate) const EFFECT: &str = "INSERT INTO effects VALUES ($1)";

pub(crate) fn message(name: &str) -> Message {
    Message::new(name.to_owned()).with_header("event-id", format!("id of {name}"))
}

pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test)
}
