//! `kill -9` of the real binary over the embedded store: what was answered stays answered, what was not is unknown,
//! and nothing has a second effect.

use crate::binary::{Proxy, answer};
use crate::upstream::Upstream;

fn store(folder: &tempfile::TempDir) -> String {
    format!("file:{}", folder.path().join("records").display())
}

#[test]
fn killed_between_dispatch_and_response_the_outcome_is_unknown_and_nothing_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let (url, store) = (upstream.url(), store(&folder));
    let args = ["--upstream", &url, "--store", &store];
    for round in 1..=5 {
        upstream.hold(true);
        let mut proxy = Proxy::start(&args);
        let key = format!("key-{round}");
        let waiting = proxy.begin("/pay", &key);
        // The effect has happened; its answer has not been given.
        upstream.wait_for_effects(round);
        proxy.signal("-KILL");
        assert_eq!(answer(waiting).0, 0, "round {round}: killed before it could answer");
        proxy.ended();
        upstream.hold(false);
        proxy = Proxy::start(&args);
        for _ in 0..2 {
            let (status, text) = proxy.post("/pay", &key);
            assert_eq!(status, 409, "round {round}: {text}");
            assert!(text.contains("outcome-unknown"), "round {round}: {text}");
        }
        assert_eq!(upstream.effects(), round, "round {round}: {:?}", upstream.targets());
    }
}

#[test]
fn killed_after_the_answer_it_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::start();
    let (url, store) = (upstream.url(), store(&folder));
    let args = ["--upstream", &url, "--store", &store];
    for round in 1..=5 {
        let proxy = Proxy::start(&args);
        let key = format!("key-{round}");
        let (status, first) = proxy.post("/pay", &key);
        assert_eq!(status, 200, "{first}");
        proxy.signal("-KILL");
        proxy.ended();
        let proxy = Proxy::start(&args);
        let (status, again) = proxy.post("/pay", &key);
        assert_eq!(status, 200, "{again}");
        assert!(again.contains("idempotency-replayed: true"), "{again}");
        assert!(again.ends_with(&format!("{{\"effect\": {round}}}")), "{again}");
        assert_eq!(upstream.effects(), round);
    }
}
