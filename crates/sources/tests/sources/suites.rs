//! The suites of `onlyonce_inbox` on real brokers: every clause of the source contract, and every crash window with the
//! effect elsewhere and in a transaction.
//!
//! The consumers' time and the store's is moved by hand, as fast as the broker's own passes: a machine that stalls does
//! not end a lease.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, MemoryLimits, MemoryStore, Store};
use onlyonce_inbox::suite::{Database, Fixture, Transactional};
use onlyonce_inbox::{Message, Source};
use onlyonce_testkit::ManualClock;
use onlyonce_testkit::servers::PostgresServer;

use crate::stage::{Letter, Stage};

/// How often whoever waits looks again.
const STEP: Duration = Duration::from_millis(5);
/// Long for a thread to stall, short for a retry to wait for a part of it.
const LEASE: Duration = Duration::from_secs(8);

/// A stage with a store, and the time they go by.
pub(crate) struct OnStage<S> {
    stage: S,
    clock: Arc<ManualClock>,
    keeping: Keeping,
}

/// Where marks are kept.
enum Keeping {
    Memory(Arc<dyn Store>),
    Postgres(Database),
}

impl<S> OnStage<S> {
    /// With a store in memory.
    pub(crate) fn new(stage: S) -> Self {
        let clock = ticking();
        let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, MemoryLimits::default());
        Self { stage, clock, keeping: Keeping::Memory(Arc::new(store)) }
    }

    /// With a database of its own on a server, and the effect in it.
    pub(crate) async fn on_postgres(
        stage: S,
        server: &PostgresServer,
        name: &str,
    ) -> (Arc<Self>, Transactional) {
        let clock = ticking();
        let admin = onlyonce_inbox::suite::connect(&server.url()).await;
        admin.batch_execute(&format!("CREATE DATABASE {name}")).await.expect("a database");
        let url = server.url().replace("/postgres?", &format!("/{name}?"));
        let database = Database::new(&url, Arc::clone(&clock) as Arc<dyn Clock>).await;
        let effect = database.effect().await;
        (Arc::new(Self { stage, clock, keeping: Keeping::Postgres(database) }), effect)
    }
}

/// A clock that goes on for as long as anyone has it, also while the suite waits for a process to end.
fn ticking() -> Arc<ManualClock> {
    let clock = Arc::new(ManualClock::default());
    let ticking = Arc::downgrade(&clock);
    tokio::spawn(async move {
        while let Some(clock) = ticking.upgrade() {
            clock.advance(STEP);
            drop(clock);
            // tidy: sleep because the broker's own time passes
            tokio::time::sleep(STEP).await;
        }
    });
    clock
}

impl<S: Stage> Fixture for OnStage<S> {
    async fn open(&self) -> Arc<dyn Source> {
        self.stage.starting().await;
        Arc::from(self.stage.open(self.stage.options()).await)
    }

    async fn store(&self) -> Arc<dyn Store> {
        match &self.keeping {
            Keeping::Memory(store) => Arc::clone(store),
            Keeping::Postgres(database) => database.store().await,
        }
    }

    async fn publish(&self, message: Message) {
        let text = |value: &bytes::Bytes| String::from_utf8_lossy(value).into_owned();
        let headers: Vec<_> =
            message.headers.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.stage.publish(&headers, &message.body).await;
    }

    async fn dead_letters(&self) -> Vec<Message> {
        let letter = |(headers, body): Letter| {
            headers
                .into_iter()
                .fold(Message::new(body), |message, (name, value)| message.with_header(name, value))
        };
        self.stage.dead_letters().await.into_iter().map(letter).collect()
    }

    async fn take_away(&self) {
        self.stage.take_away().await;
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as _
    }

    fn lease(&self) -> Lease {
        Lease::new(LEASE).expect("a lease")
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    fn kills(&self) -> u64 {
        S::KILLS
    }

    async fn idle(&self) {
        // tidy: sleep because the broker's own time passes
        tokio::time::sleep(STEP).await;
        self.stage.idle().await;
    }
}

/// One `#[test]` for every clause and every window, each on a stage of its own: for brokers that start at once.
#[macro_export]
macro_rules! suites {
    ($type:ident => $stage:expr) => {
        mod contract {
            use super::$type;

            onlyonce_inbox::source_suite!(async { $crate::suites::OnStage::new($stage) });
        }

        mod leased {
            use super::$type;

            onlyonce_inbox::crash_suite!(async { $crate::suites::OnStage::new($stage) }, |_: &_| {
                onlyonce_inbox::suite::Ledger::default()
            });
        }
    };
}

/// These clauses at once, each on a stage of its own. In boxes: together they are too large for a stack.
#[macro_export]
macro_rules! clauses_at_once {
    ($name:ident => $stage:expr; $($clause:ident),+ $(,)?) => {
        async { tokio::join!($(Box::pin(async {
            let $name = stringify!($clause);
            let fixture = std::sync::Arc::new($crate::suites::OnStage::new($stage));
            onlyonce_inbox::suite::in_time($name, onlyonce_inbox::suite::$clause(fixture)).await;
        })),+) }
    };
}

/// These windows at once, each on a stage of its own, with the effect elsewhere.
#[macro_export]
macro_rules! windows_at_once {
    ($name:ident => $stage:expr; $($window:ident),+ $(,)?) => {
        async { tokio::join!($(Box::pin(async {
            let $name = stringify!($window);
            let fixture = std::sync::Arc::new($crate::suites::OnStage::new($stage));
            let effect = onlyonce_inbox::suite::Ledger::default();
            onlyonce_inbox::suite::in_time($name, onlyonce_inbox::suite::$window(fixture, effect)).await;
        })),+) }
    };
}

/// These windows at once, each on a stage and a database of its own, with the effect in a transaction.
#[macro_export]
macro_rules! transactions_at_once {
    ($name:ident => $stage:expr; $($window:ident),+ $(,)?) => {
        async {
            let server = $crate::suites::postgres().await;
            tokio::join!($(Box::pin(async {
                let $name = concat!("in_", stringify!($window));
                let (fixture, effect) =
                    $crate::suites::OnStage::on_postgres($stage, &server, $name).await;
                onlyonce_inbox::suite::in_time($name, onlyonce_inbox::suite::$window(fixture, effect)).await;
            })),+)
        }
    };
}

/// A private server for all transactions of a test.
pub(crate) async fn postgres() -> PostgresServer {
    // Eleven windows with a store for each process.
    let starting = tokio::task::spawn_blocking(|| PostgresServer::start(&["max_connections=400"]));
    starting.await.expect("started").expect("a private server")
}
