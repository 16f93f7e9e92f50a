//! The store contract through the service: every clause and the model test, over HTTP, on the real stores. The client is
//! the store under test; the service runs in this process, so that its store goes by the suite's clock.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod embedded;
#[path = "../../../store-postgres/tests/suite/fixture.rs"]
mod postgres;
#[path = "../../../store-redis/tests/redis/stage.rs"]
#[allow(dead_code, clippy::print_stdout, reason = "the store's own tests use the rest")]
mod redis;
mod served;

use std::sync::Arc;

use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use onlyonce_testkit::{ManualClock, run, suite};

use crate::embedded::Folder;
use crate::postgres::Schema;
use crate::redis::{Damage, Moved, Servers as _};
use crate::served::Served;

/// Has a length of its own on every store, and there it has no service in between.
const SOAK: &str = "model_soak";

#[test]
fn every_clause_holds_over_an_embedded_store() {
    let clauses = suite::clauses::<Served<Folder>>().into_iter().rev().filter(|(name, _)| *name != SOAK);
    let in_folder = |(name, clause): (&'static str, fn(&Served<Folder>) -> suite::Clause<'_>)| {
        (name, move || run(async { clause(&Served::new(Folder::new()).await).await }))
    };
    suite::run_all(&clauses.map(in_folder).collect::<Vec<_>>());
}

#[test]
fn every_clause_holds_over_postgresql() {
    let server = PostgresServer::start(&[]).unwrap();
    let url = server.url();
    let clauses = suite::clauses::<Served<Schema>>().into_iter().rev().filter(|(name, _)| *name != SOAK);
    let in_schema = |(name, clause): (&'static str, fn(&Served<Schema>) -> suite::Clause<'_>)| {
        let url = url.as_str();
        (name, move || {
            // Not dropped by a task: it has a runtime of its own.
            let served = run(Served::new(Schema::new(url, name)));
            run(clause(&served));
        })
    };
    suite::run_all(&clauses.map(in_schema).collect::<Vec<_>>());
}

#[test]
fn every_clause_holds_over_redis() {
    run(async {
        let server = Arc::new(RedisServer::start(RedisOptions::default()).unwrap());
        let clauses = suite::clauses::<Served<Moved<Arc<RedisServer>>>>();
        for (name, clause) in clauses.into_iter().filter(|(name, _)| *name != SOAK) {
            let moved = Moved::on(Arc::clone(&server), ManualClock::default(), Some(Damage::Head)).await;
            tracing::debug!(name);
            clause(&Served::new(moved).await).await;
            server.flush();
        }
    });
}
