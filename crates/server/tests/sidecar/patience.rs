//! Clients that do nothing, do it slowly, or come in crowds: each wait ends, and the others are served.

use std::time::Duration;

use onlyonce_http::rules::Span;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::stage::{Stage, post};

fn short() -> Span {
    "300ms".parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_a_first_byte_is_closed() {
    let stage = Stage::with(|flags| flags.proxy.first_byte_within = Some(short())).await;
    assert_eq!(stage.connect().await.rest().await, "");
}

/// Sends `first`, then `drop` for as long as anybody takes it: everything that came back until the end.
async fn trickle(stage: &Stage, first: &str, drop: &'static str) -> String {
    let onlyonce_server::ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    let (mut reader, mut writer) = TcpStream::connect(address).await.unwrap().into_split();
    writer.write_all(first.as_bytes()).await.unwrap();
    let trickling = tokio::spawn(async move {
        while writer.write_all(drop.as_bytes()).await.is_ok() {
            // tidy: sleep because slowness itself is what is tested
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut read = Vec::new();
    let reading = reader.read_to_end(&mut read);
    // A reset ends it just as well. What keeps it open for as long as it trickles does not end at all.
    let _ =
        tokio::time::timeout(Duration::from_mins(1), reading).await.expect("it is cut off while it trickles");
    trickling.abort();
    String::from_utf8_lossy(&read).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_trickles_is_cut_off_while_it_trickles() {
    let stage = Stage::with(|flags| flags.proxy.head_within = Some(short())).await;
    let read = trickle(&stage, "GET / HTTP/1.1\r\nHost: a\r\nX: ", "a").await;
    assert!(!read.contains(" 200 "), "{read}");
    assert_eq!(stage.application.seen.lock().unwrap().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_stops_is_refused_and_claims_nothing() {
    let stage = Stage::with(|flags| flags.proxy.body_pause_max = Some(short())).await;
    let mut wire = stage.connect().await;
    let request = post("/pay", "k", "0123456789");
    wire.write(&request[..request.len() - 3]).await;
    let answer = wire.answer().await;
    assert!(answer.is_none_or(|answer| answer.status == 400 || answer.status == 408));
    assert_eq!(wire.rest().await, "", "and the connection is closed");
    let whole = stage.send(&request).await;
    assert_eq!((whole.status, whole.header("idempotency-replayed")), (200, Some("false")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_takes_too_long_in_all_is_cut_off_while_it_trickles() {
    let stage = Stage::with(|flags| flags.proxy.body_within = Some(short())).await;
    let head = "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 1000000\r\n\r\n";
    let read = trickle(&stage, head, "x").await;
    assert!(!read.contains(" 200 "), "{read}");
    assert_eq!(stage.application.effects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_but_not_one_that_waits_for_us() {
    let stage = Stage::with(|flags| flags.proxy.idle_within = Some(short())).await;
    let mut idle = stage.connect().await;
    idle.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    let mut waiting = stage.connect().await;
    waiting.write(post("/slow", "k", "1")).await;
    stage.application.arrived(1).await;
    assert_eq!(idle.rest().await, "", "closed while the other one waits, for longer than idle_within");
    // Before its answer: a client that is slow to come back with the next one would find the connection closed.
    waiting.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    stage.application.gate.add_permits(1);
    assert_eq!(waiting.answer().await.unwrap().status, 200);
    assert_eq!(waiting.answer().await.unwrap().status, 200, "and it can be used again");
    assert_eq!(waiting.rest().await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_off() {
    let stage = Stage::with(|flags| {
        flags.proxy.write_pause_max = Some(short());
        flags.proxy.connections_max = Some(1);
    })
    .await;
    let big = "x".repeat(16 << 20);
    let mut deaf = stage.connect().await;
    deaf.write(format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{big}", big.len())).await;
    // Its place is free again although it never read a byte.
    assert_eq!(stage.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    drop(deaf);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_connections_than_the_cap_are_served_at_once() {
    let stage = Stage::with(|flags| flags.proxy.connections_max = Some(2)).await;
    let (mut one, mut two) = (stage.connect().await, stage.connect().await);
    one.write(post("/slow", "k1", "1")).await;
    two.write(post("/slow", "k2", "1")).await;
    stage.application.arrived(2).await;
    // The kernel takes the third; nobody reads it until a place is free.
    let mut three = stage.connect().await;
    three.write("GET /three HTTP/1.1\r\nHost: a\r\n\r\n").await;
    stage.application.gate.add_permits(2);
    assert_eq!(one.answer().await.unwrap().status, 200);
    assert!(
        stage.application.seen.lock().unwrap().iter().all(|seen| seen.target != "/three"),
        "served beyond the cap"
    );
    drop(one);
    assert_eq!(three.answer().await.unwrap().status, 200);
    assert_eq!(two.answer().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_told_to_go_on_or_why_not() {
    let stage = Stage::with(|flags| flags.defaults.required = Some(true)).await;
    let head = post("/pay", "k", "100").replace("\r\n\r\n100", "\r\nExpect: 100-continue\r\n\r\n");
    let mut wire = stage.connect().await;
    wire.write(&head).await;
    assert_eq!(wire.answer().await.unwrap().status, 100);
    wire.write("100").await;
    assert_eq!(wire.answer().await.unwrap().body, "1:100");
    assert!(!stage.application.last().headers.contains_key("expect"), "it was ours to answer");
    let mut wire = stage.connect().await;
    wire.write(head.replace("Idempotency-Key: k\r\n", "")).await;
    assert_eq!(wire.answer().await.unwrap().status, 400);
    assert_eq!(wire.rest().await, "");
}
