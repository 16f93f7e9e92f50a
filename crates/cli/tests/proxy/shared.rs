//! Three sidecars that share a server: whichever of them is asked, and however often, the work runs once.

use std::collections::HashMap;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
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
fn one_effect_for_each_key(name: &'static str, store: &[&str]) {
    let upstream = Upstream::start();
    let url = upstream.url();
    let args = [&["--upstream", &url, "--wait", "30s", "--store"], store].concat();
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
    one_effect_for_each_key("three sidecars on Redis", &[&server.url()]);
}

#[test]
fn three_sidecars_on_one_postgres_soak() {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = migrate(&server.url());
    assert!(migrated.status.success(), "{migrated:?}");
    one_effect_for_each_key("three sidecars on PostgreSQL", &[&server.url()]);
}

/// What happens to a cache tier, each as one script: nothing, or what any client could do to it.
const DISTURBANCES: [&str; 6] = [
    // Everything is gone.
    "redis.call('FLUSHALL')",
    // One answer is gone.
    "local key = redis.call('RANDOMKEY') if key then redis.call('DEL', key) end",
    // All answers are written down …
    "for _, key in ipairs(redis.call('KEYS', 'onlyonce:tier:*')) do
         redis.call('HSET', 'old', key, redis.call('GET', key)) end",
    // … and come back when they are old.
    "local old = redis.call('HGETALL', 'old')
     for at = 1, #old, 2 do redis.call('SET', old[at], old[at + 1], 'PX', 60000) end",
    // One answer is under the key of another.
    "local a, b = redis.call('RANDOMKEY'), redis.call('RANDOMKEY')
     if a and b and a ~= b and a ~= 'old' and b ~= 'old' then redis.call('COPY', a, b, 'REPLACE') end",
    // Every answer is garbled.
    "for _, key in ipairs(redis.call('KEYS', 'onlyonce:tier:*')) do redis.call('SETRANGE', key, 3, '?') end",
];

#[test]
fn three_sidecars_behind_a_tier_that_forgets_and_lies_soak() {
    let server = PostgresServer::start(&[]).unwrap();
    let tier = RedisServer::start(RedisOptions::without_persistence()).unwrap();
    let migrated = migrate(&server.url());
    assert!(migrated.status.success(), "{migrated:?}");
    let (done, mut disturbed) = (AtomicBool::new(false), 0);
    thread::scope(|scope| {
        let disturbing = scope.spawn(|| {
            let mut times = 0;
            while !done.load(Ordering::Relaxed) {
                tier.ask(&["EVAL", DISTURBANCES[times % DISTURBANCES.len()], "0"]).unwrap();
                times += 1;
                if times % 50 == 0 {
                    tier.restart().unwrap();
                }
            }
            times
        });
        let finished = Finished(&done);
        let store = [&server.url(), "--cache", &tier.url()];
        one_effect_for_each_key("three sidecars on PostgreSQL behind Redis", &store);
        drop(finished);
        disturbed = disturbing.join().unwrap();
    });
    assert!(disturbed > 0);
    println!("the tier was disturbed {disturbed} times");
}

/// Says so also when a check failed: the other thread must not go on for ever.
struct Finished<'a>(&'a AtomicBool);

impl Drop for Finished<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn migrate(store: &str) -> Output {
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
