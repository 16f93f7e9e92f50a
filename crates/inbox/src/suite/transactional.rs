//! Effects in transactions of `PostgreSQL`, with their marks: had once, whatever is killed.

use std::sync::Arc;

use onlyonce_core::{Clock, Outcome};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use tokio_postgres::{Client, NoTls};

use super::effect::{Effect, name_of, outcome_of};
use super::stops::{Stops, Window};
use crate::handler::{Handled, Work};

/// A database with the schema of the store and a table of effects. The store goes by a clock of its own.
#[derive(Debug, Clone)]
pub struct Database {
    url: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Database {
    /// Has the effect of the message that it is given the name of.
    pub const EFFECT: &str = "INSERT INTO effects VALUES ($1)";

    /// Makes the schema and the table in the empty database at `url`.
    pub async fn new(url: &str, clock: Arc<dyn Clock>) -> Self {
        let database = Self::at(url, clock);
        migrate(&database.options()).await.expect("a schema");
        let table = "CREATE TABLE effects (name text NOT NULL)";
        database.client().await.batch_execute(table).await.expect("a table");
        database
    }

    /// The database at `url`, which has them already: somebody else made it.
    pub fn at(url: &str, clock: Arc<dyn Clock>) -> Self {
        Self { url: url.into(), clock }
    }

    /// The store, as a new process would open it.
    pub async fn store(&self) -> Arc<PostgresStore> {
        let opened = PostgresStore::open_on(self.options(), Arc::clone(&self.clock)).await;
        Arc::new(opened.expect("a store"))
    }

    /// What a handler does.
    pub async fn effect(&self) -> Transactional {
        Transactional { database: self.clone(), store: self.store().await }
    }

    /// A connection, which lives on this runtime.
    pub async fn client(&self) -> Client {
        connect(&self.url).await
    }

    /// How often the message named `name` had its effect.
    pub async fn count(&self, name: &str) -> i64 {
        let counting = "SELECT count(*) FROM effects WHERE name = $1";
        self.client().await.query_one(counting, &[&name]).await.expect("a count").get(0)
    }

    fn options(&self) -> Options {
        Options::from_url(&self.url).expect("a URL")
    }
}

/// A connection to the database at `url`, which lives on this runtime.
pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

/// The handler's transaction: effect, mark, commit.
#[derive(Debug, Clone)]
pub struct Transactional {
    database: Database,
    /// Says where the functions are; the transaction is on the process's own connection.
    store: Arc<PostgresStore>,
}

impl Effect for Transactional {
    const TRANSACTIONAL: bool = true;

    async fn handle(&self, work: Work, stops: Stops) -> Handled {
        stops.pass(Window::W1).await;
        let mut client = self.database.client().await;
        let mut transaction = client.transaction().await.expect("a transaction");
        transaction.execute(Database::EFFECT, &[&name_of(&work)]).await.expect("an effect");
        stops.pass(Window::W2).await;
        let outcome = Outcome::kept(2, outcome_of(&work));
        match work.mark_in(&self.store, &mut transaction, outcome).await {
            Ok(handled) => match transaction.commit().await {
                Ok(()) => handled,
                Err(error) => Handled::unknown(error.to_string()),
            },
            Err(error) => Handled::retry(error.to_string()),
        }
    }

    async fn count(&self, name: &str) -> usize {
        usize::try_from(self.database.count(name).await).expect("a count")
    }
}
