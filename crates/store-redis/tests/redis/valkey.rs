//! Valkey, which came out of Redis and speaks as it does: the suite, the model, and a server that is killed.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_store_redis::{Acknowledgement, Options};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::crash::kill_again_and_again;
use crate::stage::{Damage, Live, complete_one, hold_the_suite, patient};

#[test]
fn the_suite_and_the_model_hold_on_valkey() {
    run(async {
        let server = Arc::new(RedisServer::start(RedisOptions::valkey()).expect("a server"));
        let held = hold_the_suite(&server, Some(Damage::Head), &["model_soak"]).await;
        println!("{held} clauses hold on Valkey");
    });
}

#[test]
fn soak_killing_valkey_loses_nothing_that_was_acknowledged() {
    run(kill_again_and_again("valkey kill -9", 10, RedisOptions::valkey()));
}

#[test]
fn an_answer_waits_for_the_disk() {
    run(async {
        let server = RedisOptions { appendfsync: Some("everysec"), ..RedisOptions::valkey() };
        let within = Duration::from_secs(20);
        let acknowledgement = Acknowledgement::Disks { master: true, replicas: 0, within };
        let live = Live::new(server, Options { acknowledgement, ..patient() }).await;
        complete_one(&*live.store).await;
        let told = live.store.survival().to_string();
        assert!(told.starts_with("Valkey ") && told.contains("its own disk"), "{told}");
    });
}
