//! Three sidecars that share a server: whichever of them is asked, and however often, the work runs once.

use std::collections::HashMap;
use std::process::Output;
use std::thread;

use onlyonce_testkit::Soak;
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::binary::{Proxy, onlyonce};
use crate::upstream::Upstream;

const SIDECARS: usize = 3;
const CLIENTS: usize = 64;
/// How many keys each round has. Every client uses all of them, each in an order of its own.
const KEYS: usize = 10;

/// 64 clients ask three sidecars for the same operations. CI does one round of ten keys.
fn one_effect_for_each_key(name: &'static str, store: &str) {
    let upstream = Upstream::start();
    let url = upstream.url();
    let args = ["--upstream", &url, "--store", store, "--wait", "30s"];
    let proxies: Vec<_> = (0..SIDECARS).map(|_| Proxy::start(&args)).collect();
    let mut soak = Soak::new(name, 1);
    let mut rounds = 0;
    while let Some((seed, _)) = soak.next_round() {
        rounds += 1;
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                let proxies = &proxies;
                scope.spawn(move || {
                    for step in 0..KEYS {
                        let key = format!("k{seed}-{}", (client * 7 + step) % KEYS);
                        until_answered(&proxies[(client + step) % SIDECARS], &key);
                    }
                });
            }
        });
    }
    let mut effects = HashMap::<_, usize>::new();
    for target in upstream.targets() {
        *effects.entry(target).or_default() += 1;
    }
    assert_eq!(effects.len(), rounds * KEYS, "every key ran");
    effects.retain(|_, count| *count != 1);
    assert!(effects.is_empty(), "and none of them twice: {effects:?}");
    soak.report((rounds * KEYS * CLIENTS) as u64, "requests, one effect for each key");
}

/// A client that is told that its request still runs asks again.
fn until_answered(proxy: &Proxy, key: &str) {
    loop {
        let (status, text) = proxy.post(&format!("/pay/{key}"), key);
        match status {
            200 => return,
            409 => assert!(text.contains("in-flight"), "{key}: {text}"),
            _ => panic!("{key}: {text}"),
        }
    }
}

#[test]
fn three_sidecars_on_one_redis_soak() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    one_effect_for_each_key("three sidecars on Redis", &server.url());
}

#[test]
fn three_sidecars_on_one_postgres_soak() {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = migrate(&server.url());
    assert!(migrated.status.success(), "{migrated:?}");
    one_effect_for_each_key("three sidecars on PostgreSQL", &server.url());
}

fn migrate(store: &str) -> Output {
    onlyonce(&["store", "migrate", "--store", store]).output().unwrap()
}

#[test]
fn a_store_is_migrated_once_and_refused_before() {
    let server = PostgresServer::start(&[]).unwrap();
    let url = server.url();
    let refused = onlyonce(&["proxy", "--upstream", "http://127.0.0.1:9", "--store", &url]).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(69) && told.contains("onlyonce store migrate"), "{told}");
    let first = migrate(&url);
    assert_eq!(String::from_utf8(first.stdout).unwrap(), "the schema is there, at version 1\n");
    let second = migrate(&url);
    assert_eq!(String::from_utf8(second.stdout).unwrap(), "the schema is at version 1 already\n");
    let other = migrate("redis://127.0.0.1");
    assert!(other.status.code() == Some(2), "{other:?}");
    let nobody = migrate("postgres://127.0.0.1:9/none");
    assert!(nobody.status.code() == Some(69), "{nobody:?}");
}
