//! A column that was changed past the functions is damage: an error, never absence, and never a grant.

use onlyonce_core::store::{Listing, SweepBudget};
use onlyonce_core::transition::{Erase, Release, Renew, Token};
use onlyonce_core::{Lease, StateKind, Store as _, StoreErrorKind};
use onlyonce_store_postgres::PostgresStore;

use crate::stage::{block_on, claim_of, client, complete_of, granted, open, server};

/// What makes another value of a column, by its type.
fn other_value(column: &str, of: &str) -> String {
    match of {
        "bigint" | "integer" | "smallint" => format!("coalesce({column}, 0) + 1"),
        "uuid" => "'00000000-0000-0000-0000-000000000001'".to_owned(),
        "boolean" => format!("NOT {column}"),
        "bytea" => format!("coalesce({column}, '') || '\\x01'"),
        _ => "'{a}'".to_owned(),
    }
}

async fn is_refused(store: &PostgresStore, key: u64, token: Token, column: &str) {
    let refused = |kind| matches!(kind, StoreErrorKind::Corrupt | StoreErrorKind::Unsupported);
    let error = store.claim(&claim_of(key)).await.expect_err(column);
    assert!(refused(error.kind()) && !error.is_retryable(), "{column}: {error:?}");
    assert!(store.lookup(&token.id).await.is_err(), "{column}: looked up");
    assert!(store.complete(&complete_of(key, token)).await.is_err(), "{column}: completed");
    let renew = Renew { token, lease: Lease::DEFAULT };
    assert!(store.renew(&renew).await.is_err(), "{column}: renewed");
    let release = Release { token, keep_fingerprint: true };
    assert!(store.release(&release).await.is_err(), "{column}: released");
    assert!(store.erase(&Erase { id: token.id }).await.is_err(), "{column}: erased");
}

#[test]
fn every_column_that_is_flipped_is_noticed() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        let admin = client(&server).await;
        let columns = "SELECT column_name::text, data_type::text FROM information_schema.columns \
            WHERE table_schema = 'onlyonce' AND table_name = 'records' AND column_name NOT IN ('id', 'body')";
        let mut flipped = 0;
        for completes in [false, true] {
            for (key, row) in (0..).zip(admin.query(columns, &[]).await.expect("columns")) {
                let key = key + if completes { 1000 } else { 0 };
                let (column, of): (String, String) = (row.get(0), row.get(1));
                let token = granted(&store, &claim_of(key)).await;
                if completes {
                    store.complete(&complete_of(key, token)).await.expect("completed");
                }
                let flip = format!(
                    "UPDATE onlyonce.records SET {column} = {} WHERE id = '\\x{}'",
                    other_value(&column, &of),
                    token.id
                );
                assert_eq!(admin.execute(&flip, &[]).await.expect("flipped"), 1);
                is_refused(&store, key, token, &column).await;
                flipped += 1;
            }
        }
        assert!(flipped > 40, "{flipped} columns");
        // Those whose times say that they have expired stay all the same, for someone to look at.
        admin.batch_execute("UPDATE onlyonce.records SET due_at = 1").await.expect("expired");
        while store.sweep(SweepBudget::DEFAULT).await.expect("swept").more {}
        let left: i64 =
            admin.query_one("SELECT count(*) FROM onlyonce.records", &[]).await.expect("an answer").get(0);
        assert_eq!(left, flipped);
    });
}

#[test]
fn a_damaged_record_is_named_by_the_listing_that_meets_it() {
    let server = server(&[]);
    block_on(async {
        let store = open(&server.url()).await;
        for key in 0..5 {
            let token = granted(&store, &claim_of(key)).await;
            store.complete(&complete_of(key, token)).await.expect("completed");
        }
        let damaged = claim_of(3).id;
        let flip = format!("UPDATE onlyonce.records SET fence = fence + 1 WHERE id = '\\x{damaged}'");
        client(&server).await.batch_execute(&flip).await.expect("flipped");
        for states in [vec![], vec![StateKind::Unknown]] {
            let all = states.is_empty();
            let page = store.list(&Listing { states, ..Listing::default() }).await.expect("a page");
            let [named] = page.unreadable.as_slice() else { panic!("one, not {page:?}") };
            assert!(named.id == damaged && named.why.contains("damaged"), "{named:?}");
            assert_eq!(page.records.len(), if all { 4 } else { 0 }, "the others are shown");
        }
        // Page by page it has its place.
        let mut listing = Listing { limit: 1, ..Listing::default() };
        let mut pages = 1;
        while let Some(next) = store.list(&listing).await.expect("a page").next {
            (listing.after, pages) = (Some(next), pages + 1);
        }
        assert_eq!(pages, 5);
    });
}
