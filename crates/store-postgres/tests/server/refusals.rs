//! A server that cannot keep what would be promised is refused, and the text says what to do.

use onlyonce_core::Store as _;
use onlyonce_store_postgres::{OpenErrorKind, Options, PostgresStore, VERSION, migrate};
use onlyonce_testkit::servers::PostgresServer;

use crate::stage::{block_on, client, options, server};

async fn refusal(options: &Options) -> (OpenErrorKind, String) {
    let error = PostgresStore::open(options.clone()).await.expect_err("it must be refused");
    (error.kind(), error.to_string())
}

#[test]
fn a_server_that_does_not_sync_is_refused() {
    for (setting, named) in [("fsync=off", "fsync = on"), ("full_page_writes=off", "full_page_writes")] {
        let server = PostgresServer::start(&[setting]).expect("a private server");
        let options = options(&server.url());
        block_on(async {
            assert!(migrate(&options).await.is_err(), "{setting}: not even migrated");
            let (kind, text) = refusal(&options).await;
            assert_eq!(kind, OpenErrorKind::Unsafe);
            assert!(text.contains(named), "{text}");
        });
    }
}

#[test]
fn a_server_that_only_reads_is_refused() {
    let server = server(&[]);
    block_on(async {
        let admin = client(&server).await;
        let read_only = "ALTER ROLE onlyonce SET default_transaction_read_only = on";
        admin.batch_execute(read_only).await.expect("a setting");
        let (kind, text) = refusal(&options(&server.url())).await;
        assert_eq!(kind, OpenErrorKind::Unsafe);
        assert!(text.contains("read-only"), "{text}");
    });
    // A standby: the same files, started in recovery.
    std::fs::write(server.folder().join("cluster/standby.signal"), "").expect("a file");
    server.restart().expect("the server starts again");
    block_on(async {
        let (kind, text) = refusal(&options(&server.url())).await;
        assert_eq!(kind, OpenErrorKind::Unsafe);
        assert!(text.contains("standby"), "{text}");
    });
}

#[test]
fn a_schema_of_another_version_is_refused() {
    let server = PostgresServer::start(&[]).expect("a private server");
    let options = options(&server.url());
    block_on(async {
        let (kind, text) = refusal(&options).await;
        assert_eq!(kind, OpenErrorKind::Schema);
        assert!(text.contains("store migrate"), "{text}");

        // Many at once: one migrates, the others find it done.
        let mut migrations = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let options = options.clone();
            migrations.spawn(async move { migrate(&options).await });
        }
        let migrated: Vec<_> = migrations.join_all().await.into_iter().map(Result::unwrap).collect();
        assert_eq!(migrated.iter().filter(|done| done.from.is_none()).count(), 1);
        assert!(migrated.iter().all(|done| done.to == VERSION));
        PostgresStore::open(options.clone()).await.expect("a migrated schema opens");

        let admin = client(&server).await;
        for (version, advice) in [(VERSION + 1, "newer onlyonce"), (0, "store migrate")] {
            let set = format!("UPDATE onlyonce.meta SET version = {version}");
            admin.batch_execute(&set).await.expect("a version");
            let (kind, text) = refusal(&options).await;
            assert_eq!(kind, OpenErrorKind::Schema);
            assert!(text.contains(advice), "{text}");
        }
        admin.batch_execute("UPDATE onlyonce.meta SET version = 99").await.expect("a version");
        assert!(migrate(&options).await.is_err(), "a newer schema is left alone");
    });
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let error =
        block_on(PostgresStore::open(options("postgres://nobody@127.0.0.1:1/x"))).expect_err("no server");
    assert_eq!(error.kind(), OpenErrorKind::Unavailable);
    let source = std::error::Error::source(&error).expect("a cause");
    assert!(!source.to_string().is_empty());
}

#[test]
fn a_schema_may_have_the_name_of_a_word_of_sql() {
    let server = PostgresServer::start(&[]).expect("a private server");
    block_on(async {
        for name in ["select", "user", "default", "_1"] {
            let url = format!("{}&schema={name}", server.url());
            migrate(&options(&url)).await.expect(name);
            let store = crate::stage::open(&url).await;
            let token = crate::stage::granted(&store, &crate::stage::claim_of(1)).await;
            store.complete(&crate::stage::complete_of(1, token)).await.expect(name);
            store.watch(&token.id).await.expect(name);
            store.sweep(onlyonce_core::store::SweepBudget::DEFAULT).await.expect(name);
        }
    });
}
