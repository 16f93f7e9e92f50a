//! A schema of its own for each clause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{RecordId, Store};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use onlyonce_testkit::{Fixture, ManualClock};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

static MADE: AtomicU64 = AtomicU64::new(0);

/// A store under test. Its connections live on a runtime of their own: some clauses block theirs.
pub(crate) struct Schema {
    url: String,
    options: Options,
    clock: Arc<ManualClock>,
    store: Mutex<Option<Arc<PostgresStore>>>,
    runtime: Runtime,
    name: String,
}

impl Schema {
    pub(crate) fn new(url: &str, clause: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let name = format!("s{}", MADE.fetch_add(1, Ordering::Relaxed));
        let options = Options::from_url(&format!("{url}&schema={name}")).expect("a good URL");
        let schema = Self {
            url: url.to_owned(),
            options,
            clock: Arc::new(ManualClock::default()),
            store: Mutex::new(None),
            runtime: runtime.expect("a runtime"),
            name,
        };
        let migrated = schema.runtime.block_on(migrate(&schema.options));
        migrated.unwrap_or_else(|error| panic!("{clause}: {error}: {:?}", std::error::Error::source(&error)));
        schema.runtime.block_on(schema.open());
        schema
    }

    async fn open(&self) {
        let store = PostgresStore::open_on(self.options.clone(), self.clock.clone()).await;
        *self.store.lock().expect("no panic") = Some(Arc::new(store.expect("the store opens")));
    }

    /// Runs `statement` past the store.
    async fn execute(&self, statement: String) -> u64 {
        let url = self.url.clone();
        let executed = self.runtime.spawn(async move {
            let (client, connection) =
                tokio_postgres::connect(url.split('&').next().unwrap_or_default(), NoTls)
                    .await
                    .expect("a connection");
            let driver = tokio::spawn(connection);
            let executed = client.execute_typed(&statement, &[]).await.expect("a good statement");
            driver.abort();
            executed
        });
        executed.await.expect("no panic")
    }
}

impl Fixture for Schema {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().expect("no panic").clone().expect("the store is open")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Another process takes over. The server's own end is a test of its own.
    async fn restart(&self) -> bool {
        drop(self.store.lock().expect("no panic").take());
        let opening = PostgresStore::open_on(self.options.clone(), self.clock.clone());
        let store = self.runtime.spawn(opening).await.expect("no panic").expect("the store opens");
        *self.store.lock().expect("no panic") = Some(Arc::new(store));
        true
    }

    async fn damage(&self, id: &RecordId) -> bool {
        let body = "set_byte(body, octet_length(body) / 2, get_byte(body, octet_length(body) / 2) # 1)";
        let statement = format!("UPDATE {}.records SET body = {body} WHERE id = '\\x{id}'", self.name);
        self.execute(statement).await == 1
    }
}
