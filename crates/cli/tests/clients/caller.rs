//! The Rust middleware in front of the real sidecar: a caller that is killed between send and answer finishes with the
//! same key.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_client::{FileJournal, Idempotent, Journal as _, Operation, Retries};
use onlyonce_core::Key;
use reqwest_middleware::ClientBuilder;

use crate::binary::Proxy;
use crate::service::{Program, say};
use crate::upstream::Upstream;

/// The caller that the next test kills. Does nothing unless it is asked to.
#[tokio::test]
async fn child_that_pays() {
    let (Ok(url), Ok(journal)) = (std::env::var("TEST_PAY_URL"), std::env::var("TEST_PAY_JOURNAL")) else {
        return;
    };
    let journal = Arc::new(FileJournal::open(Path::new(&journal)).unwrap());
    let retries = Retries {
        attempts_max: 10_000,
        first: Duration::from_millis(10),
        longest: Duration::from_millis(100),
        attempt_within: Duration::from_mins(5),
        within: Duration::from_mins(10),
    };
    let client = ClientBuilder::new(http()).with(Idempotent::new(journal).with_retries(retries)).build();
    let operation = Operation::named("order-7/charge").unwrap();
    let asked = client.post(format!("{url}/pay")).bearer_auth("sesame").body("100");
    let answer = asked.with_extension(operation).send().await.unwrap();
    let replayed = answer.headers().get("idempotency-replayed").map(|mark| mark.to_str().unwrap().to_owned());
    let (status, body) = (answer.status().as_u16(), answer.text().await.unwrap());
    say("answered", &format!("{status} {} {body}", replayed.unwrap_or_default()));
}

pub(crate) fn http() -> reqwest::Client {
    // TLS is part of the build and needs a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

#[test]
fn a_caller_that_is_killed_between_send_and_answer_finishes_with_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.journal");
    let upstream = Upstream::start();
    let proxy = Proxy::start(&["--upstream", &upstream.url(), "--store", "memory:"]);
    let url = format!("http://{}", proxy.address);
    let settings = [("TEST_PAY_URL", url.as_str()), ("TEST_PAY_JOURNAL", path.to_str().unwrap())];
    upstream.hold(true);
    let caller = Program::of_this_binary("caller::child_that_pays", &settings);
    // Its effect has happened; its answer is held back.
    upstream.wait_for_effects(1);
    caller.kill();
    upstream.hold(false);
    for _ in 0..2 {
        let mut caller = Program::of_this_binary("caller::child_that_pays", &settings);
        assert_eq!(caller.wait_for("answered"), "200 true {\"effect\": 1}");
    }
    assert_eq!(upstream.effects(), 1);
    // Another operation is another effect: it is the key that did it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let journal = FileJournal::open(&path).unwrap();
        assert_eq!(journal.operations(), 1);
        journal.forget("order-7/charge").await.unwrap();
        let new = Key::new("new").unwrap();
        assert_eq!(journal.key("order-7/charge", new.clone()).await.unwrap(), new);
    });
    let mut caller = Program::of_this_binary("caller::child_that_pays", &settings);
    assert_eq!(caller.wait_for("answered"), "200 false {\"effect\": 2}");
}
