//! The store suite and the model test, on a server that is killed for every restart.

use std::sync::Arc;

use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use onlyonce_testkit::{Encrypting, run, suite};

use crate::stage::{Alone, Damage, hold_the_suite_as};

onlyonce_testkit::store_suite!(Alone::new(Damage::Head));

#[test]
fn c16_every_kind_of_damage_is_an_error() {
    run(async {
        for damage in [Damage::Version, Damage::Body] {
            suite::c16_damage_is_an_error_and_never_absence(&Alone::new(damage).await).await;
        }
    });
}

/// All that the server gets of a caller's bytes is encrypted.
#[test]
fn every_clause_holds_behind_encryption() {
    let server = Arc::new(RedisServer::start(RedisOptions::default()).expect("a server"));
    let held = run(hold_the_suite_as(&server, Some(Damage::Body), &["model_soak"], Encrypting));
    assert!(held > 60, "only {held} clauses");
}
