//! The recipe in plain SQL does what it says: every statement on its page is run, by many at once where it matters.
#![expect(clippy::panic, reason = "a failed check panics")]

use std::collections::HashMap;
use std::process::Command;
use std::sync::Arc;

use onlyonce_testkit::servers::PostgresServer;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

const PAGE: &str = include_str!("../../../docs/recipes/postgres-sql.md");

/// The code on the page by language and name; what has no name of its own comes together.
fn code(language: &str) -> HashMap<&'static str, String> {
    let mut found: HashMap<&str, String> = HashMap::new();
    for block in PAGE.split("\n```").skip(1).step_by(2) {
        let (head, text) = block.split_once('\n').expect("a block of code");
        let (of, name) = head.split_once(' ').unwrap_or((head, ""));
        if of == language {
            found.entry(name).or_default().push_str(text);
        }
    }
    found
}

fn sql(name: &str) -> String {
    code("sql").remove(name).unwrap_or_else(|| panic!("the page has no `{name}`"))
}

async fn connect(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(test)
}

#[test]
fn a_message_is_processed_once_by_many_at_once() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        let client = connect(&server).await;
        client.batch_execute(&sql("schema")).await.expect("the tables");
        client.batch_execute("CREATE TABLE effects (event text)").await.expect("a table");
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut client = connect(&server).await;
            tasks.spawn(async move {
                for event in 0..25 {
                    let event = format!("event {event}");
                    let transaction = client.transaction().await.expect("a transaction");
                    if transaction.execute(&sql("mark"), &[&"consumer", &event]).await.expect("a mark") == 1 {
                        transaction
                            .execute("INSERT INTO effects VALUES ($1)", &[&event])
                            .await
                            .expect("an effect");
                        transaction.commit().await.expect("a commit");
                    }
                }
            });
        }
        tasks.join_all().await;
        let counts = "SELECT count(*), count(DISTINCT event) FROM effects";
        let row = client.query_one(counts, &[]).await.expect("an answer");
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (25, 25));
        // Old marks go, young ones stay.
        let age = "UPDATE processed_events SET processed_at = now() - interval '31 days' WHERE event_id < 'event 2'";
        let old = client.execute(age, &[]).await.expect("older");
        assert_eq!(client.execute(&sql("clean-events"), &[]).await.expect("cleaned"), old);
        assert_eq!(client.execute(&sql("clean-events"), &[]).await.expect("cleaned"), 0);
    });
}

/// Words for the statements about keys.
struct Keys(Client);

impl Keys {
    async fn claim(&self, key: &str, hash: &[u8], owner: Uuid) -> Option<i32> {
        let row = self.0.query_opt(&sql("claim"), &[&"scope", &key, &hash, &owner]).await.expect("a claim");
        row.map(|row| row.get(0))
    }

    async fn look(&self, key: &str, hash: &[u8]) -> String {
        self.0.query_one(&sql("look"), &[&"scope", &key, &hash]).await.expect("an answer").get(0)
    }

    async fn fail(&self, key: &str, owner: Uuid) -> u64 {
        self.0.execute(&sql("fail"), &[&"scope", &key, &owner]).await.expect("an update")
    }

    async fn complete(&self, key: &str, owner: Uuid) -> u64 {
        // The driver sends texts as they are; the column is JSON.
        let statement = sql("complete").replace("$4", "'{\"paid\": true}'");
        self.0.execute(&statement, &[&"scope", &key, &owner]).await.expect("an update")
    }

    async fn set(&self, assignment: &str) {
        self.0.batch_execute(&format!("UPDATE idempotency_keys SET {assignment}")).await.expect("an update");
    }
}

#[test]
fn a_key_goes_through_its_states() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        let client = connect(&server).await;
        client.batch_execute(&sql("schema")).await.expect("the tables");
        let keys = Keys(client);
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(keys.claim("k", b"hash", one).await, Some(1));
        assert_eq!(keys.claim("k", b"hash", two).await, None, "in work");
        assert!(keys.look("k", b"hash").await.starts_with("409: in work"));
        assert!(keys.look("k", b"other").await.starts_with("422"));
        assert_eq!(keys.complete("k", two).await, 0, "not the owner");
        assert_eq!(keys.fail("k", one).await, 1);
        assert!(keys.look("k", b"hash").await.starts_with("it is free"));
        assert_eq!(keys.claim("k", b"other", two).await, None, "another request");
        assert_eq!(keys.claim("k", b"hash", two).await, Some(2));
        assert_eq!(keys.complete("k", one).await, 0, "the first owner comes too late");
        assert_eq!(keys.complete("k", two).await, 1);
        assert_eq!(keys.claim("k", b"hash", one).await, None, "completed");
        assert_eq!(keys.look("k", b"hash").await, "replay the response");
        keys.set("expires_at = now() - interval '1 second'").await;
        assert_eq!(keys.claim("k", b"other", one).await, Some(1), "expired");
        keys.set("claimed_until = now() - interval '1 second', expires_at = now() - interval '1 second'")
            .await;
        assert_eq!(keys.claim("k", b"other", two).await, None, "nobody knows");
        assert!(keys.look("k", b"other").await.starts_with("409: nobody knows"));
        assert_eq!(
            keys.0.execute(&sql("clean-keys"), &[]).await.expect("cleaned"),
            0,
            "nobody knows: it stays"
        );
        keys.set("status = 'failed'").await;
        assert_eq!(keys.0.execute(&sql("clean-keys"), &[]).await.expect("cleaned"), 1);
    });
}

#[test]
fn of_many_claims_at_once_one_gets_the_key() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        connect(&server).await.batch_execute(&sql("schema")).await.expect("the tables");
        let mut tasks = tokio::task::JoinSet::new();
        for worker in 0..8u128 {
            let keys = Arc::new(Keys(connect(&server).await));
            tasks.spawn(async move {
                let mut granted = 0;
                for key in 0..25 {
                    let owner = Uuid::from_u128(worker * 100 + key);
                    let key = key.to_string();
                    if keys.claim(&key, b"hash", owner).await.is_some() {
                        granted += 1;
                        assert_eq!(keys.complete(&key, owner).await, 1);
                    }
                }
                granted
            });
        }
        assert_eq!(tasks.join_all().await.iter().sum::<i32>(), 25);
    });
}

#[test]
fn an_old_version_changes_nothing() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        let client = connect(&server).await;
        client.batch_execute(&sql("schema")).await.expect("the tables");
        for (amount, version, changed) in [(10i64, 1i64, 1), (30, 3, 1), (20, 2, 0), (30, 3, 0), (40, 4, 1)] {
            let done = client.execute(&sql("upsert"), &[&"a", &amount, &version]).await.expect("an upsert");
            assert_eq!(done, changed, "version {version}");
        }
    });
}

#[test]
fn the_jobs_in_other_languages_run_the_statement_that_was_tested() {
    let clean = sql("clean-keys");
    assert!(sql("pg_cron").contains(clean.trim()));
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (language, file, check) in [
        ("js", "clean.cjs", ["node", "--check"].as_slice()),
        ("python", "clean.py", &["python3", "-m", "py_compile"]),
    ] {
        let text = code(language).remove("").unwrap_or_else(|| panic!("no {language} on the page"));
        assert!(text.contains(clean.trim()), "{language} runs another statement");
        std::fs::write(folder.path().join(file), text).expect("a file");
        let status = Command::new(check[0]).args(&check[1..]).arg(folder.path().join(file)).status();
        assert!(status.is_ok_and(|status| status.success()), "{language} does not read it");
    }
}
