//! `onlyonce consume` as a program: a real broker on one side, a handler that knows nothing of us on the other.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod broker;
mod consuming;
mod handler;

use std::collections::HashMap;
use std::time::Duration;

#[cfg(feature = "kafka")]
use broker::Kafka;
use broker::{Broker, Nats, Rabbit, Streams};
use consuming::{Consuming, onlyonce};
use handler::{Handler, Seen};

/// However slow the machine is, nothing that is at work is delivered again.
const LATE: Duration = Duration::from_mins(10);
/// What a killed process had is delivered again soon.
const SOON: Duration = Duration::from_secs(2);

/// A folder for records, and the URL of its store.
fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}", folder.path().display());
    (folder, store)
}

fn by_key(seen: Vec<Seen>) -> HashMap<String, Vec<Seen>> {
    let mut by_key = HashMap::<_, Vec<_>>::new();
    for seen in seen {
        by_key.entry(seen.key.clone()).or_default().push(seen);
    }
    by_key
}

/// The attempts at a message, in the order in which the handler saw them.
fn attempts(handler: &Handler, key: &str) -> Vec<u32> {
    handler.seen().iter().filter(|seen| seen.key == key).map(|seen| seen.attempt).collect()
}

fn fate(name: &str, count: u64) -> String {
    format!("onlyonce_messages_total{{fate=\"{name}\"}} {count}")
}

/// Each has its effect once, what cannot be done is kept, and what is put back runs once more and no more.
fn each_message_is_handled_once_and_what_cannot_be_is_kept<B: Broker>() {
    let (broker, handler, (_folder, store)) = (B::start(), Handler::start(), folder());
    let source = broker.source(LATE);
    for _ in 0..3 {
        broker.publish("paid-1", "pay");
    }
    broker.publish("refused-1", "refuse");
    broker.publish("failed-1", "fail once");
    broker.publish("failed-2", "always fail");
    let consuming = Consuming::start(&source, &handler, &store);
    consuming.until(&[
        fate("done", 2),
        fate("duplicate", 2),
        fate("dead-lettered", 2),
        "onlyonce_messages_waiting 0".into(),
        "onlyonce_claims_total{answer=\"granted\"} 7".into(),
    ]);
    // An operator finds a message by its id; a name that is not this machine's own is another site's.
    let admin = consuming.admin();
    let show = ["records", "show", "--key", "paid-1", "--json", "--admin", &admin];
    let shown = onlyonce(&show).output().unwrap();
    assert!(String::from_utf8_lossy(&shown.stdout).contains("\"state\":\"completed\""), "{shown:?}");
    assert!(consuming.get("/api/records").starts_with("HTTP/1.1 403"));
    let promise = consuming.stop();
    assert!(promise.contains("3 attempts, then to the dead letters"), "{promise}");
    assert_eq!(broker.left(), 0, "everything is settled");
    let seen = by_key(handler.seen());
    assert_eq!(seen["paid-1"].len(), 1, "three deliveries, one effect");
    let paid = &seen["paid-1"][0];
    assert_eq!((paid.body.as_str(), paid.headers["message-tenant"].as_str()), ("pay", "acme"));
    assert!(paid.headers["onlyonce-fence"].parse::<u64>().unwrap() > 0);
    assert_eq!(seen["refused-1"].len(), 1);
    assert_eq!(attempts(&handler, "failed-1"), [1, 2]);
    assert_eq!(attempts(&handler, "failed-2"), [1, 2, 3]);
    let dead = broker.dead_letters();
    assert!(dead.contains("refused-1") && dead.contains("422") && dead.contains("failed-2"), "{dead}");
    assert!(!dead.contains("paid-1") && !dead.contains("failed-1"), "{dead}");
    // Somebody mends the handler and puts the dead letters back, twice.
    handler.mend();
    for _ in 0..2 {
        broker.publish("refused-1", "refuse");
        broker.publish("failed-2", "always fail");
    }
    let consuming = Consuming::start(&source, &handler, &store);
    consuming.until(&[fate("done", 2), fate("duplicate", 2)]);
    consuming.stop();
    assert_eq!(broker.left(), 0, "everything is settled");
    assert_eq!(attempts(&handler, "refused-1").len(), 2, "once more");
    assert_eq!(attempts(&handler, "failed-2").len(), 4, "once more");
}

/// Parked after as many claims as it has attempts, although no consumer lived to say how it went.
fn a_message_that_kills_its_consumers_is_parked<B: Broker>() {
    let (broker, handler, (_folder, store)) = (B::start(), Handler::start(), folder());
    let source = broker.source(SOON);
    handler.hold(true);
    broker.publish("poison-1", "poison");
    for attempt in 1..=3 {
        let consuming = Consuming::start(&source, &handler, &store);
        handler.wait_for(attempt);
        consuming.kill();
    }
    handler.hold(false);
    broker.publish("paid-1", "pay");
    let consuming = Consuming::start(&source, &handler, &store);
    consuming.until_quiet_after(&["done", "dead-lettered"]);
    consuming.stop();
    assert_eq!(broker.left(), 0, "everything is settled");
    assert_eq!(attempts(&handler, "poison-1"), [1, 2, 3]);
    assert_eq!(attempts(&handler, "paid-1"), [1], "others are not held up");
    let dead = broker.dead_letters();
    assert!(dead.contains("poison-1") && !dead.contains("paid-1"), "{dead}");
}

fn what_a_killed_consumer_was_at_is_tried_again_and_nothing_is_lost<B: Broker>() {
    const MESSAGES: usize = 40;
    let (broker, handler, (_folder, store)) = (B::start(), Handler::start(), folder());
    let source = broker.source(SOON);
    for number in 0..MESSAGES {
        broker.publish(&format!("m-{number}"), "pay");
    }
    let first = Consuming::start(&source, &handler, &store);
    handler.wait_for(MESSAGES / 2);
    handler.hold(true);
    // Some are done, some are held by the handler, some have not come.
    broker.publish("last", "pay");
    handler.wait_for(MESSAGES / 2 + 1);
    first.kill();
    handler.hold(false);
    // Again and again, because nobody but a broker knows whether all has come, and not all of them tell at any time.
    loop {
        let next = Consuming::start(&source, &handler, &store);
        next.until_quiet();
        next.stop();
        if broker.left() == 0 {
            break;
        }
    }
    let seen = by_key(handler.seen());
    assert_eq!(seen.len(), MESSAGES + 1, "nothing is lost");
    for (key, seen) in &seen {
        let attempts: Vec<_> = seen.iter().map(|seen| seen.attempt).collect();
        // The second attempt is the first that is seen of what was claimed, but not posted, when it was killed.
        assert!(matches!(attempts[..], [1 | 2] | [1, 2]), "{key}: {attempts:?}");
    }
}

/// These tests on every broker.
macro_rules! on_each_broker {
    ($($test:ident),+ $(,)?) => {
        on_each_broker! { redis_streams Streams: $($test),+ }
        on_each_broker! { nats Nats: $($test),+ }
        on_each_broker! { rabbitmq Rabbit: $($test),+ }
        #[cfg(feature = "kafka")]
        on_each_broker! { kafka Kafka: $($test),+ }
    };
    ($name:ident $broker:ident: $($test:ident),+) => {
        mod $name {
            $(#[test]
            fn $test() {
                super::$test::<super::$broker>();
            })+
        }
    };
}

on_each_broker! {
    each_message_is_handled_once_and_what_cannot_be_is_kept,
    a_message_that_kills_its_consumers_is_parked,
    what_a_killed_consumer_was_at_is_tried_again_and_nothing_is_lost,
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let std::process::Output { status, stderr, .. } =
        onlyonce(&[&["consume"], args].concat()).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn what_cannot_work_is_refused_with_its_name() {
    let handler = ["--handler", "http://127.0.0.1:9/a", "--store", "memory:"];
    let with = |args: &[&'static str]| refused(&[args, &handler].concat());
    for (told, expected) in [
        (refused(&[]), "consume.source"),
        (refused(&["--source", "nats://a/b", "--store", "memory:"]), "consume.handler"),
        (refused(&["--source", "nats://a/b", "--handler", "ftp://a"]), "consume.handler"),
        (with(&["--source", "carrier-pigeon://a"]), "carrier-pigeon"),
        (with(&["--source", "nats://a/b", "--id", "tattoo"]), "consume.id"),
        (with(&["--source", "nats://a/b", "--unknown", "query"]), "consume.unknown"),
        (with(&["--source", "redis-stream://a:1/s?colour=red"]), "colour"),
    ] {
        assert!(matches!(told.0, Some(2 | 65)) && told.1.contains(expected), "{expected}: {told:?}");
    }
    if cfg!(not(feature = "kafka")) {
        let (code, told) = with(&["--source", "kafka://a/b"]);
        assert!(code == Some(65) && told.contains("`kafka`"), "{told}");
    }
    let (code, told) = with(&["--source", "redis-stream://127.0.0.1:9/s"]);
    assert_eq!(code, Some(69), "{told}");
}
