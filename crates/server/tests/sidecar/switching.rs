//! Protocol switches: through the sidecar where no key can be, and nowhere else.

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::client::Wire;
use crate::stage::Stage;

const SWITCH: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A stage whose upstream takes one connection and answers one request as `answer` says: the head of the request, and
/// what came after it. It ends its side at once where nothing more is to come.
async fn upstream_that_says(answer: &'static str, ends: bool) -> (Stage, JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heard = tokio::spawn(async move {
        let mut wire = Wire::over(listener.accept().await.unwrap().0);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.extend(wire.bytes(1).await);
        }
        wire.write(answer).await;
        if ends {
            wire.end().await;
        }
        (String::from_utf8(head).unwrap().to_lowercase(), wire.rest().await)
    });
    (Stage::with(|flags| flags.proxy.upstream = Some(url)).await, heard)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes_bytes_both_ways() {
    let stage = Stage::new().await;
    let mut wire = stage.connect().await;
    wire.write(SWITCH).await;
    let answer = wire.answer().await.unwrap();
    assert_eq!((answer.status, answer.header("upgrade")), (101, Some("websocket")), "{answer:?}");
    assert_eq!(answer.header("connection"), Some("upgrade"));
    // Not HTTP any more: bare line feeds and all.
    for text in ["hello\n\n", "\0\u{1}GET / HTTP/1.1\n", "bye"] {
        wire.write(text).await;
        assert_eq!(wire.bytes(text.len()).await, text.as_bytes());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_outlives_idle_time_and_ends_with_the_sidecar() {
    let mut stage = Stage::with(|flags| flags.proxy.idle_within = Some("100ms".parse().unwrap())).await;
    let mut wire = stage.connect().await;
    wire.write(SWITCH).await;
    assert_eq!(wire.answer().await.unwrap().status, 101);
    let mut idle = stage.connect().await;
    idle.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    idle.answer().await.unwrap();
    idle.rest().await;
    wire.write("still here").await;
    assert_eq!(wire.bytes(10).await, b"still here");
    stage.begin_stop();
    assert_eq!(wire.rest().await, "");
    stage.stopped().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switched_connection_has_its_place_until_it_ends() {
    let stage = Stage::with(|flags| flags.proxy.connections_max = Some(1)).await;
    let mut wire = stage.connect().await;
    wire.write(SWITCH).await;
    assert_eq!(wire.answer().await.unwrap().status, 101);
    let mut next = stage.connect().await;
    next.write("GET /next HTTP/1.1\r\nHost: a\r\n\r\n").await;
    for _ in 0..100 {
        wire.write("still here").await;
        assert_eq!(wire.bytes(10).await, b"still here");
    }
    assert!(stage.application.seen.lock().unwrap().is_empty(), "served beyond the cap");
    drop(wire);
    assert_eq!(next.answer().await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_says_after_the_upstream_has_ended_arrives_whole() {
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (stage, upstream) = upstream_that_says(switch, true).await;
    let mut wire = stage.connect().await;
    wire.write(SWITCH).await;
    assert_eq!(wire.answer().await.unwrap().status, 101);
    assert_eq!(wire.rest().await, "", "the upstream has ended");
    let said = (0..20_000).map(|number: u32| number.to_string()).collect::<Vec<_>>().join(";");
    for part in said.as_bytes().chunks(1000) {
        wire.write(part).await;
        tokio::task::yield_now().await;
    }
    wire.end().await;
    let (_, heard) = upstream.await.unwrap();
    assert!(heard == said, "{} of {} bytes arrived", heard.len(), said.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_to_switch_does_not_speak_in_our_name() {
    let no = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nOnlyonce-Outcome: committed\r\n\r\nno";
    let (stage, upstream) = upstream_that_says(no, false).await;
    let forged = "\r\nOnlyonce-Fence: 999\r\nOnlyonce-Attempt: 1\r\nUpgrade: ";
    let answer = stage.send(SWITCH.replace("\r\nUpgrade: ", forged)).await;
    assert_eq!((answer.status, answer.header("onlyonce-outcome")), (200, None), "{answer:?}");
    stage.stopped().await;
    let (head, _) = upstream.await.unwrap();
    assert!(head.contains("upgrade: websocket") && !head.contains("onlyonce-fence"), "{head}");
    assert!(!head.contains("onlyonce-attempt"), "{head}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_can_carry_a_key_does_not_switch() {
    let stage = Stage::new().await;
    let answer = stage
        .send(
            "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Content-Length: 0\r\n\r\n",
        )
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!stage.application.last().headers.contains_key("upgrade"));
}

#[tokio::test(flavor = "multi_thread")]
async fn h2c_is_not_a_way_past_the_sidecar() {
    let stage = Stage::new().await;
    let answer = stage.send(SWITCH.replace("websocket", "h2c")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(!stage.application.last().headers.contains_key("upgrade"));
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_sent_before_the_switch_was_agreed_on_never_reach_the_upstream() {
    // CVE-2026-2833: what follows the request is a request until the upstream has said 101.
    let no = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno";
    let (stage, upstream) = upstream_that_says(no, false).await;
    let mut wire = stage.connect().await;
    wire.write(format!("{SWITCH}POST /smuggled HTTP/1.1\nHost: a\r\n\r\n")).await;
    assert_eq!(wire.answer().await.unwrap().status, 200);
    assert_eq!(wire.answer().await.unwrap().status, 400);
    stage.stopped().await;
    assert_eq!(upstream.await.unwrap().1, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_protocol_that_is_spoken_early_is_carried_whole_or_not_at_all() {
    let stage = Stage::new().await;
    // Perhaps the beginning of a head: kept until it is clear what it is.
    let mut wire = stage.connect().await;
    wire.write(format!("{SWITCH}early")).await;
    assert_eq!(wire.answer().await.unwrap().status, 101);
    assert_eq!(wire.bytes(5).await, b"early");
    // Refused as one, and lost: nothing that comes behind it may be taken for the beginning.
    let mut wire = stage.connect().await;
    wire.write(format!("{SWITCH}early\n")).await;
    assert_eq!(wire.answer().await.unwrap().status, 400);
}
