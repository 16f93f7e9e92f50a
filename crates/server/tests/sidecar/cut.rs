//! Connections that end at every byte: of a request from the client, of an answer from the upstream. No panic, and never
//! a second effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use crate::application::Application;
use crate::client::Wire;
use crate::stage::{Stage, flags, post};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_cut_at_any_byte_starts_nothing_or_runs_once() {
    let stage = Stage::new().await;
    let length = post("/pay", "key-000", "100").len();
    for cut in 0..=length {
        let key = format!("key-{cut:03}");
        let request = post("/pay", &key, "100");
        let before = stage.application.effects();
        let mut wire = stage.connect().await;
        wire.write(&request.as_bytes()[..cut]).await;
        drop(wire);
        // The whole request afterwards: the first if nothing was started, a replay if all had come.
        let mut retry = stage.send(&request).await;
        while retry.status == 409 {
            retry = stage.send(&request).await;
        }
        assert_eq!(retry.status, 200, "cut at {cut}: {retry:?}");
        assert_eq!(stage.application.effects(), before + 1, "cut at {cut}");
        if cut < length {
            assert_eq!(retry.header("idempotency-replayed"), Some("false"), "cut at {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_request_cut_at_any_byte_starts_nothing() {
    let stage = Stage::new().await;
    let request = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nt: 1\r\n\r\n";
    for cut in 0..request.len() {
        let mut wire = stage.connect().await;
        wire.write(&request.as_bytes()[..cut]).await;
        drop(wire);
    }
    let whole = stage.send(request).await;
    assert_eq!((whole.status, whole.header("idempotency-replayed")), (200, Some("false")));
    assert_eq!(stage.application.effects(), 1);
}

/// An upstream that answers with the first `cut` bytes of `answer`, `cut` growing by one with each request, and closes.
async fn cutting(answer: &'static [u8], effects: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let mut wire = Wire::over(listener.accept().await.unwrap().0);
            let effects = Arc::clone(&effects);
            tokio::spawn(async move {
                // Connections that the pool opened and did not use come to nothing.
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n100") {
                    head.extend(wire.bytes(1).await);
                }
                let cut = effects.fetch_add(1, Ordering::SeqCst);
                wire.write(&answer[..cut.min(answer.len())]).await;
            });
        }
    });
    url
}

async fn cut_answers(answer: &'static [u8], whole_at: usize) {
    let effects = Arc::new(AtomicUsize::new(0));
    let url = cutting(answer, Arc::clone(&effects)).await;
    let sources = onlyonce_server::config::Sources { flags: flags(&url), ..Default::default() };
    let stage = Stage::start(Application::start().await, sources).await;
    for cut in 0..=answer.len() {
        let request = post("/pay", &format!("key-{cut}"), "100");
        let first = stage.send(&request).await;
        assert_eq!(effects.load(Ordering::SeqCst), cut + 1, "cut at {cut}: {first:?}");
        let again = stage.send(&request).await;
        assert_eq!(effects.load(Ordering::SeqCst), cut + 1, "cut at {cut}: a second effect, after {first:?}");
        if cut < whole_at {
            assert_eq!((first.status, again.status), (502, 409), "cut at {cut}: {first:?} {again:?}");
            assert!(again.body.contains("outcome-unknown"), "{again:?}");
        } else {
            assert_eq!((first.status, again.status), (201, 201), "cut at {cut}: {first:?} {again:?}");
            assert_eq!((first.body.as_str(), again.body.as_str()), ("done", "done"), "cut at {cut}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_cut_at_any_byte_is_unknown_and_never_run_again() {
    let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\nX-A: b\r\n\r\ndone";
    cut_answers(answer, answer.len()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunked_answer_cut_at_any_byte_is_unknown_and_never_run_again() {
    let answer = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\ndo\r\n2\r\nne\r\n0\r\n\r\n";
    cut_answers(answer, answer.len()).await;
}
