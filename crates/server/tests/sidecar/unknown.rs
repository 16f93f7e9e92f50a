//! What the sidecar says when the upstream gives no answer: nothing sent is released, everything else is unknown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onlyonce_http::rules::Span;
use onlyonce_server::config::Sources;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use crate::application::Application;
use crate::client::Wire;
use crate::stage::{Stage, flags, post};

async fn in_front_of(url: &str, change: impl FnOnce(&mut onlyonce_server::config::File)) -> Stage {
    let mut flags = flags(url);
    change(&mut flags);
    Stage::start(Application::start().await, Sources { flags, ..Sources::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_refuses_connections_releases_the_key() {
    // A port that is taken, so that no other test gets it, and where nobody listens yet.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let stage = in_front_of(&format!("http://{}", silent.local_addr().unwrap()), |_| {}).await;
    for _ in 0..3 {
        let answer = stage.send(post("/pay", "k", "1")).await;
        assert_eq!(answer.status, 502, "{answer:?}");
        assert!(answer.body.contains("upstream-unreachable"), "{answer:?}");
    }
    // Back again: the same key runs.
    let listener = silent.listen(16).unwrap();
    tokio::spawn(async move {
        let mut wire = Wire::over(listener.accept().await.unwrap().0);
        wire.bytes(10).await;
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        wire.rest().await;
    });
    let answer = stage.send(post("/pay", "k", "1")).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "ok"));
    let seen = answer.header("idempotency-replayed");
    assert_eq!(seen, Some("false"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_does_not_shake_hands_releases_the_key() {
    // It takes connections and says nothing that is TLS: nothing of the request was sent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let mut wire = Wire::over(listener.accept().await.unwrap().0);
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                wire.bytes(5).await;
                wire.write("HTTP/1.1 400 Bad Request\r\n\r\n").await;
            });
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let (ca, _) = crate::versions::certificate(folder.path(), "localhost");
    let stage = in_front_of(&url, |flags| flags.proxy.upstream_ca = Some(ca)).await;
    for count in 1..=2 {
        assert_eq!(stage.send(post("/pay", "k", "1")).await.status, 502);
        assert!(connections.load(Ordering::SeqCst) >= count, "the key was free, so it was tried again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_takes_too_long_leaves_the_outcome_unknown() {
    // Long enough for the request to arrive on a loaded machine: time that is up before it was sent is another story.
    let stage = Stage::with(|flags| flags.proxy.upstream_within = Some("4s".parse().unwrap())).await;
    let unkeyed = stage.send("POST /slow?unkeyed HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    let (answer, unkeyed, ()) =
        tokio::join!(stage.send(post("/slow", "k", "1")), unkeyed, stage.application.arrived(2));
    assert_eq!(answer.status, 504, "{answer:?}");
    assert!(answer.body.contains("upstream-timeout"), "{answer:?}");
    let again = stage.send(post("/slow", "k", "1")).await;
    assert_eq!(again.status, 409, "{again:?}");
    assert!(
        again.body.contains("outcome-unknown") && again.body.contains("onlyonce records resolve"),
        "{again:?}"
    );
    let seen = stage.application.seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|seen| seen.target == "/slow").count(), 1);
    assert_eq!(unkeyed.status, 504);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_pauses_in_its_answer_leaves_the_outcome_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut wire = Wire::over(listener.accept().await.unwrap().0);
        wire.bytes(10).await;
        wire.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await;
        wire.rest().await;
    });
    let stage =
        in_front_of(&url, |flags| flags.proxy.upstream_pause_max = Some("200ms".parse().unwrap())).await;
    let answer = stage.send(post("/pay", "k", "1")).await;
    assert!(matches!(answer.status, 502 | 504), "{answer:?}");
    let again = stage.send(post("/pay", "k", "1")).await;
    assert!(again.status == 409 && again.body.contains("outcome-unknown"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooled_connection_that_the_upstream_closed_is_not_used() {
    // Answers one request a connection and then closes it without a word, as servers do with idle ones.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let effects = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&effects);
    // How many ends the sidecar has seen: it then closes its own side.
    let ends = watch::Sender::new(0);
    let ended = ends.clone();
    tokio::spawn(async move {
        loop {
            let mut wire = Wire::over(listener.accept().await.unwrap().0);
            let (effects, ended) = (Arc::clone(&counted), ended.clone());
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n1") {
                    head.extend(wire.bytes(1).await);
                }
                effects.fetch_add(1, Ordering::SeqCst);
                wire.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                wire.end().await;
                wire.rest().await;
                ended.send_modify(|ends| *ends += 1);
            });
        }
    });
    let stage = in_front_of(&url, |flags| flags.proxy.upstream_idle = Some(Span::from_secs(60))).await;
    for number in 0..100 {
        let request = post("/pay", &format!("k{number}"), "1");
        let before = effects.load(Ordering::SeqCst);
        let mut answer = stage.send(&request).await;
        while answer.status == 502 && effects.load(Ordering::SeqCst) == before {
            answer = stage.send(&request).await;
        }
        // Of a request that meets the end either truth may be told. Once the end was seen, nothing is in doubt.
        assert!(answer.status == 200 || number < 50, "{number}: {answer:?}");
        assert!(effects.load(Ordering::SeqCst) <= before + 1, "{number}: a second effect: {answer:?}");
        if number >= 49 {
            let all = effects.load(Ordering::SeqCst);
            ends.subscribe().wait_for(|ends| *ends == all).await.unwrap();
        }
    }
}
