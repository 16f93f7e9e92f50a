//! A role that owns nothing and may only use the schema can do everything but migrate.

use onlyonce_core::store::{Listing, SweepBudget};
use onlyonce_core::transition::{ClaimAnswer, Complete};
use onlyonce_core::{Outcome, Store as _};
use onlyonce_store_postgres::migrate;

use crate::stage::{block_on, claim_of, client, granted, id_of, open, options, server};

/// What `docs` and the crate's page tell operators to grant.
const GRANTS: &str = "
    CREATE ROLE app LOGIN;
    GRANT USAGE ON SCHEMA onlyonce TO app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onlyonce TO app;
    GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA onlyonce TO app;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA onlyonce TO app;
    CREATE ROLE stranger LOGIN;";

#[test]
fn a_role_without_ownership_is_enough() {
    let server = server(&[]);
    block_on(async {
        client(&server).await.batch_execute(GRANTS).await.expect("grants");
        let url = server.url().replace("onlyonce@", "app@");
        let store = open(&url).await;
        let token = granted(&store, &claim_of(1)).await;
        // Large enough for a partition, which this role may not make by itself.
        let outcome = Outcome::kept(1, vec![7; 5000]);
        store.complete(&Complete { token, outcome, retention: None }).await.expect("completed");
        assert!(matches!(store.claim(&claim_of(1)).await, Ok(ClaimAnswer::Replay(_))));
        let record = store.lookup(&token.id).await.expect("readable").expect("a record");
        store.import(&[(id_of(2), record)]).await.expect("taken in");
        store.sweep(SweepBudget::DEFAULT).await.expect("swept");
        store.watch(&token.id).await.expect("a watch");
        assert_eq!(store.list(&Listing::default()).await.expect("a page").records.len(), 2);
        store.stats().await.expect("counts");

        let stranger = options(&server.url().replace("onlyonce@", "stranger@"));
        assert!(onlyonce_store_postgres::PostgresStore::open(stranger.clone()).await.is_err());
        let elsewhere = format!("{}&schema=elsewhere", server.url().replace("onlyonce@", "stranger@"));
        assert!(migrate(&options(&elsewhere)).await.is_err(), "it may not make a schema");
    });
}
