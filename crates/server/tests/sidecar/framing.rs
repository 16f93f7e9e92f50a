//! Requests that two parsers could read differently: refused with 400, and the connection closed. Raw sockets.

use tokio::io::AsyncWriteExt as _;

use crate::stage::{Stage, post};

/// Sends `bytes` and says what came back until the sidecar closed the connection.
async fn refused(stage: &Stage, bytes: &[u8]) -> String {
    let mut wire = stage.connect().await;
    wire.write(bytes).await;
    wire.rest().await
}

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_heads_get_400_and_close_and_reach_nobody() {
    let stage = Stage::new().await;
    let fields = |fields: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nabcde");
    let cases = [
        fields("Content-Length: 5\r\nTransfer-Encoding: chunked"),
        fields("Transfer-Encoding: chunked\r\nContent-Length: 5"),
        fields("Content-Length: 5\r\nContent-Length: 5"),
        fields("Content-Length: 5\r\nContent-Length: 6"),
        fields("Content-Length: 5, 5"),
        fields("Content-Length: +5"),
        fields("Content-Length: -1"),
        fields("Transfer-Encoding: gzip, chunked"),
        fields("Transfer-Encoding: chunked, identity"),
        fields("Transfer-Encoding: xchunked"),
        fields("Transfer-Encoding : chunked"),
        fields("X: a\r\n b\r\nContent-Length: 5"),
        fields("X: a\nY: b\r\nContent-Length: 5"),
        fields("X: a\rY: b\r\nContent-Length: 5"),
        fields("X\0: a\r\nContent-Length: 5"),
        fields("Host: b\r\nContent-Length: 5"),
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".to_owned(),
        "POST / HTTP/1.1\nHost: a\nContent-Length: 5\n\nabcde".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned(),
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\0\u{1}\n".to_owned(),
    ];
    for case in cases {
        // A second request behind it must not be taken for one.
        let text =
            refused(&stage, format!("{case}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await;
        assert!(text.starts_with("HTTP/1.1 400 "), "{case:?} got {text:?}");
        assert_eq!(text.matches("HTTP/1.1").count(), 1, "{case:?} got {text:?}");
        assert!(text.to_ascii_lowercase().contains("connection: close"), "{text:?}");
    }
    let seen = stage.application.seen.lock().unwrap();
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hyper_alone_would_have_let_some_of_these_pass() {
    // The reason for the strict reader in front: when hyper refuses these by itself, it can go.
    use hyper::service::service_fn;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = onlyonce_server::ListenAddress::Tcp(listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|_| async {
                Ok::<_, std::convert::Infallible>(http::Response::new(
                    http_body_util::Full::<bytes::Bytes>::default(),
                ))
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        }
    });
    for lenient in [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut wire = crate::client::Wire::connect(&address).await;
        wire.write(lenient).await;
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, 200, "hyper has become strict about {lenient:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_chunk_ends_the_connection_and_reaches_nobody() {
    let stage = Stage::new().await;
    for chunks in [
        "5\nabcde\r\n0\r\n\r\n",
        "5\r\nabcdeX0\r\n\r\n",
        "+5\r\nabcde\r\n0\r\n\r\n",
        "5;a\nb\r\nabcde\r\n0\r\n\r\n",
    ] {
        let head =
            "POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n";
        let text =
            refused(&stage, format!("{head}{chunks}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
                .await;
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 400 "), "{chunks:?} got {text:?}");
        assert!(text.matches("HTTP/1.1").count() <= 1, "{chunks:?} got {text:?}");
    }
    let seen = stage.application.seen.lock().unwrap();
    assert!(seen.is_empty(), "{seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn good_requests_in_a_row_are_answered_in_order_and_a_bad_one_ends_it() {
    let stage = Stage::new().await;
    let mut wire = stage.connect().await;
    let good =
        |body: &str| format!("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    wire.write(format!("{}\r\n{}GET / HTTP/1.1\nHost: a\r\n\r\n{}", good("one"), good("two"), good("three")))
        .await;
    assert_eq!(wire.answer().await.unwrap().body, "1:one");
    assert_eq!(wire.answer().await.unwrap().body, "2:two");
    assert_eq!(wire.answer().await.unwrap().status, 400);
    assert_eq!(wire.answer().await, None);
    assert_eq!(stage.application.effects(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_early_answer_never_leaves_its_body_to_be_read_as_a_request() {
    // Smuggling by replay (CVE-2025-4366): the body holds a request, and the answer does not need the body.
    let stage = Stage::with(|flags| {
        flags.defaults.required = Some(true);
        flags.defaults.request_bytes_max = Some(1024);
    })
    .await;
    let hidden = "POST /hidden HTTP/1.1\r\nHost: a\r\nIdempotency-Key: h\r\nContent-Length: 0\r\n\r\n";
    let filler = "x".repeat(300_000);
    for (what, head, status) in [
        ("no key", "Accept: a", 400),
        ("a bad key", "Idempotency-Key: a, b", 400),
        ("too large", "Idempotency-Key: k", 413),
    ] {
        let body = format!("{hidden}{filler}{hidden}");
        let request = format!(
            "POST /pay HTTP/1.1\r\nHost: a\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut wire = stage.connect().await;
        wire.write(&request).await;
        let answer = wire.answer().await.unwrap_or_else(|| panic!("{what}: no answer"));
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(wire.rest().await, "", "{what}: one answer, then the end");
    }
    // A replay reads its body, which it must compare: the connection goes on.
    let mut wire = stage.connect().await;
    for _ in 0..2 {
        wire.write(post("/pay", "k9", hidden)).await;
        assert_eq!(wire.answer().await.unwrap().status, 200);
    }
    let seen = stage.application.seen.lock().unwrap();
    assert_eq!(seen.iter().map(|seen| seen.target.as_str()).collect::<Vec<_>>(), ["/pay"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_still_sending_when_it_is_refused_can_finish_and_read_why() {
    // Closing at once would reset the connection: many clients then report the reset and never the answer.
    let stage = Stage::with(|flags| flags.defaults.required = Some(true)).await;
    let onlyonce_server::ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    let begun = std::time::Instant::now();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(b"POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").await.unwrap();
    stream.peek(&mut [0]).await.expect("the refusal has gone out while the client is sending");
    for _ in 0..20 {
        let sent = stream.write_all(&[b'x'; 1000]).await;
        // It lingers for two seconds. On a loaded machine they can be over before this task has its next turn.
        assert!(sent.is_ok() || begun.elapsed().as_secs() >= 2, "it is still taken: {sent:?}");
    }
    let mut wire = crate::client::Wire::over(stream);
    assert_eq!(wire.answer().await.unwrap().status, 400);
    assert_eq!(wire.answer().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_end_is_cut_off() {
    let stage = Stage::new().await;
    let text =
        refused(&stage, format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(40_000)).as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 4"), "{text:?}");
    let many = "a: b\r\n".repeat(101);
    let text = refused(&stage, format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n").as_bytes()).await;
    assert!(text.starts_with("HTTP/1.1 4"), "{text:?}");
}
