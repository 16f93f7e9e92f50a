//! A collector that is away, fails or hangs: requests are answered as without one, and the process ends as told.

use onlyonce_testkit::servers::Port;

use super::receiver::{Mood, Receiver, SPANS};
use super::{end, traced};
use crate::admin::{figure, get, start_with};
use crate::binary::Proxy;
use crate::upstream::Upstream;

/// More than are sent together, so that some spans wait for others.
const REQUESTS: usize = 180;

/// Asks for many things, and for each again.
fn ask(proxy: &Proxy) {
    for number in 0..REQUESTS {
        let key = format!("k{number}");
        assert_eq!(proxy.post("/pay", &key).0, 200);
        let (status, again) = proxy.post("/pay", &key);
        assert!(status == 200 && again.to_lowercase().contains("idempotency-replayed: true"), "{again}");
    }
}

#[test]
fn nobody_waits_for_a_collector_that_hangs() {
    let (receiver, upstream) = (Receiver::start(Mood::Hangs), Upstream::start());
    let proxy = traced(&upstream, "memory:", &receiver.url());
    assert_eq!(proxy.post("/pay", "first").0, 200);
    // From here on it hangs in the hands of who sends.
    receiver.wait_for_tries(SPANS, 1);
    ask(&proxy);
    assert_eq!(upstream.effects(), REQUESTS + 1);
    // The end is bounded, although the collector never says a word.
    end(proxy);
}

#[test]
fn nobody_notices_that_the_collector_is_away() {
    let (port, upstream) = (Port::free().unwrap(), Upstream::start());
    let proxy = traced(&upstream, "memory:", &format!("http://127.0.0.1:{}", port.get()));
    ask(&proxy);
    assert_eq!(upstream.effects(), REQUESTS);
    proxy.signal("-TERM");
    let (status, _, log) = proxy.ended();
    assert!(status.success(), "{log}");
    assert!(log.contains("the collector takes no spans") && log.contains("spans were lost"), "{log}");
}

#[test]
fn what_the_collector_refuses_is_counted_and_given_up() {
    for status in [400, 500] {
        let (receiver, upstream) = (Receiver::start(Mood::Refuses(status)), Upstream::start());
        let (proxy, admin) = start_with(&upstream, &["--store", "memory:", "--otlp", &receiver.url()], &[]);
        assert_eq!(proxy.post("/pay", "k").0, 200);
        // The request's span, and that of its dispatch.
        let failed = || figure(&get(admin, "/metrics").1, "onlyonce_spans_total{fate=\"failed\"}");
        while failed() != Some(2.0) {
            std::thread::yield_now();
        }
        assert_eq!(proxy.post("/pay", "k").0, 200);
        end(proxy);
    }
}

#[test]
fn what_the_collector_cannot_take_now_is_sent_again() {
    let (receiver, upstream) = (Receiver::start(Mood::Refuses(503)), Upstream::start());
    let proxy = traced(&upstream, "memory:", &receiver.url());
    assert_eq!(proxy.post("/pay", "k").0, 200);
    receiver.wait_for_tries(SPANS, 3);
    end(proxy);
}
