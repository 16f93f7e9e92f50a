//! The store keeps the contract on a real server: every clause and the model test, each in a schema of its own.
//!
//! One server for all of them: a server takes longer to start than most clauses to run.
#![expect(clippy::panic, reason = "a failed check panics")]

mod fixture;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use onlyonce_testkit::servers::{PgBouncer, PostgresServer};
use onlyonce_testkit::{Soak, model, run, suite};

use crate::fixture::Schema;

/// How many clauses run at a time: most of them wait for the server.
const AT_A_TIME: usize = 4;
/// Has a length of its own here, because every command goes to a disk.
const SOAK: &str = "model_soak";

/// Runs every clause, and names all that failed.
fn run_suite(url: &str) {
    let mut clauses = suite::clauses::<Schema>();
    clauses.retain(|(name, _)| *name != SOAK);
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // From the end: the model test is there and takes longest.
                while let Some((name, clause)) =
                    clauses.iter().rev().nth(next.fetch_add(1, Ordering::Relaxed))
                {
                    // What a clause has to say of its failure was printed by its panic.
                    let ran = catch_unwind(AssertUnwindSafe(|| {
                        let schema = Schema::new(url, name);
                        run(clause(&schema));
                    }));
                    if ran.is_err() {
                        failed.lock().expect("no panic").push(*name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no panic");
    assert!(failed.is_empty(), "{} of {} clauses failed: {failed:?}", failed.len(), clauses.len());
}

#[test]
fn every_clause_holds_on_a_server() {
    let server = PostgresServer::start(&[]).expect("a private server");
    run_suite(&server.url());
}

/// No session state, unnamed statements, waiters that look for themselves.
#[test]
fn every_clause_holds_behind_a_pooler_in_transaction_mode() {
    let server = PostgresServer::start(&[]).expect("a private server");
    let pooler = PgBouncer::start(&server).expect("a private pooler");
    run_suite(&pooler.url(&server));
}

#[test]
fn soak_random_commands_answer_as_transition_does() {
    let server = PostgresServer::start(&[]).expect("a private server");
    let mut soak = Soak::new("model on PostgreSQL", 6);
    let mut commands = 0;
    while let Some((seed, _)) = soak.next_round() {
        let schema = Schema::new(&server.url(), SOAK);
        commands += run(model::compare(&schema, seed, 400));
    }
    soak.report(commands, "commands answered as transition does");
}
