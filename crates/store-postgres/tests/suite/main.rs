//! The store keeps the contract on a real server: every clause and the model test, each in a schema of its own.
//!
//! One server for all of them: a server takes longer to start than most clauses to run.
#![expect(clippy::panic, reason = "a failed check panics")]

mod fixture;

use onlyonce_testkit::servers::{PgBouncer, PostgresServer};
use onlyonce_testkit::{Encrypting, Fixture, Soak, model, run, suite};

use crate::fixture::Schema;

/// Has a length of its own here, because every command goes to a disk.
const SOAK: &str = "model_soak";

/// Runs every clause, each in a schema of its own. From the end: the model test is there and takes longest.
fn run_suite<F: Fixture>(url: &str, seen: fn(Schema) -> F) {
    let clauses = suite::clauses::<F>().into_iter().rev().filter(|(name, _)| *name != SOAK);
    let in_schema = |(name, clause): (&'static str, fn(&F) -> suite::Clause<'_>)| {
        (name, move || run(clause(&seen(Schema::new(url, name)))))
    };
    suite::run_all(&clauses.map(in_schema).collect::<Vec<_>>());
}

#[test]
fn every_clause_holds_on_a_server() {
    let server = PostgresServer::start(&[]).expect("a private server");
    run_suite(&server.url(), |schema| schema);
}

/// All that the server gets of a caller's bytes is encrypted.
#[test]
fn every_clause_holds_behind_encryption() {
    let server = PostgresServer::start(&[]).expect("a private server");
    run_suite(&server.url(), Encrypting);
}

/// No session state, unnamed statements, waiters that look for themselves.
#[test]
fn every_clause_holds_behind_a_pooler_in_transaction_mode() {
    let server = PostgresServer::start(&[]).expect("a private server");
    let pooler = PgBouncer::start(&server).expect("a private pooler");
    run_suite(&pooler.url(&server), |schema| schema);
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
