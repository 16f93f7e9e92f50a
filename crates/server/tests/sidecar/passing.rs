//! What passes through the sidecar, and what it adds and takes away.

use onlyonce_server::config::ForwardedMode;

use crate::stage::{Stage, post};

/// HS256 over `{"sub":"alice","exp":4102444800,"jti":N}`, with N = 1 and 2 and the secret of the test that uses them.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMCwianRpIjoxfQ.kgY_7vpxwu2IamAALQkcPT2v-BojzGSjaMc_mLkUmDI";
const REFRESHED: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbGljZSIsImV4cCI6NDEwMjQ0NDgwMCwianRpIjoyfQ.1Ft39nK_L8K8odFCnoGTq-Ck-LQljGUPDyycUv4sAf8";

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_request_runs_once_and_is_replayed() {
    let stage = Stage::new().await;
    let first = stage.send(post("/pay", "k1", "100")).await;
    assert_eq!((first.status, first.body.as_str()), (200, "1:100"));
    assert_eq!(first.header("idempotency-replayed"), Some("false"));
    let again = stage.send(post("/pay", "k1", "100")).await;
    assert_eq!((again.status, again.body.as_str()), (200, "1:100"));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let other = stage.send(post("/pay", "k1", "200")).await;
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(stage.application.effects(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_upstream_sees_the_key_the_fence_and_who_asked() {
    let stage = Stage::new().await;
    let forged = post("/pay?a=1", "k1", "1").replace(
        "\r\n\r\n1",
        "\r\nOnlyonce-Fence: 999999\r\nOnlyonce-Attempt: 9\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nConnection: keep-alive, \
         X-Hop, onlyonce-fence\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nTE: trailers, gzip\r\n\r\n1",
    );
    assert_eq!(stage.send(forged).await.status, 200);
    let seen = stage.application.last();
    assert_eq!(
        (seen.target.as_str(), seen.headers["host"].as_bytes()),
        ("/pay?a=1", b"shop.test".as_slice())
    );
    assert_eq!(seen.headers["idempotency-key"], "k1");
    assert_ne!(seen.headers["onlyonce-fence"], "999999");
    assert_eq!(seen.headers["onlyonce-attempt"], "1");
    assert_eq!(seen.headers["x-forwarded-for"], "127.0.0.1");
    assert_eq!(seen.headers["x-forwarded-proto"], "http");
    assert_eq!(seen.headers["x-forwarded-host"], "shop.test");
    assert_eq!(seen.headers["te"], "trailers");
    let via = seen.headers["via"].to_str().unwrap();
    assert!(via.starts_with("1.1 onlyonce-"), "{via}");
    for gone in ["forwarded", "x-hop", "keep-alive", "connection", "transfer-encoding"] {
        assert!(!seen.headers.contains_key(gone), "{gone}: {:?}", seen.headers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unkeyed_requests_pass_and_stream_both_ways() {
    let stage = Stage::with(|flags| flags.proxy.forwarded = Some(ForwardedMode::Off)).await;
    let chunked = "POST /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    for number in 1..=2 {
        let answer = stage.send(chunked).await;
        assert_eq!((answer.status, answer.body), (200, format!("{number}:abcdefg")));
    }
    assert_eq!(stage.application.last().headers["x-forwarded-for"], "1.1.1.1");
    assert_eq!(stage.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await.body, "0:");
    let mut wire = stage.connect().await;
    wire.write("HEAD /a HTTP/1.0\r\n\r\n").await;
    let head = wire.rest().await;
    assert!(head.starts_with("HTTP/1.0 200 ") && head.ends_with("\r\n\r\n"), "no body, and closed: {head:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_passed_on_not_followed() {
    let stage = Stage::new().await;
    let answer = stage.send(post("/redirect", "k1", "1")).await;
    assert_eq!((answer.status, answer.header("location")), (302, Some("/elsewhere")));
    assert_eq!(stage.application.seen.lock().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_of_the_upstream_stands_before_every_path() {
    let stage = Stage::with(|flags| {
        let url = flags.proxy.upstream.take().unwrap();
        flags.proxy.upstream = Some(format!("{url}/base/"));
    })
    .await;
    assert_eq!(stage.send("GET /a?b HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    assert_eq!(stage.application.last().target, "/base/a?b");
    // Without a path there is nothing that the prefix could stand before, and the whole server is not behind it.
    for no_path in ["GET a", "GET *", "OPTIONS *"] {
        let answer = stage.send(format!("{no_path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_eq!(answer.status, 400, "{no_path}");
    }
    assert_eq!(stage.send("GET http://a HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    assert_eq!(stage.application.last().target, "/base/");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_back_is_refused_as_a_loop() {
    // A sidecar whose upstream is itself, by way of a relay: its own address is known only once it has one.
    let relay = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", relay.local_addr().unwrap());
    let stage = Stage::with(|flags| flags.proxy.upstream = Some(url)).await;
    let onlyonce_server::ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    tokio::spawn(async move {
        let mut from = relay.accept().await.unwrap().0;
        let mut to = tokio::net::TcpStream::connect(address).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
    });
    let answer = stage.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(answer.status, 508, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn early_data_and_two_hosts_are_refused() {
    let stage = Stage::new().await;
    let early = post("/pay", "k1", "1").replace("\r\n\r\n", "\r\nEarly-Data: 1\r\n\r\n");
    assert_eq!(stage.send(&early).await.status, 425);
    // What is no value, or two, says the same.
    assert_eq!(stage.send(early.replace("Early-Data: 1", "Early-Data: 0")).await.status, 425);
    let twice = early.replace("Early-Data: 1", "Early-Data: 0\r\nEarly-Data: 1");
    assert_eq!(stage.send(twice).await.status, 425);
    assert_eq!(stage.send("GET / HTTP/1.1\r\nHost: a\r\nEarly-Data: 1\r\n\r\n").await.status, 200);
    assert_eq!(stage.send("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 400);
    assert_eq!(stage.send("GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n").await.status, 200);
    assert_eq!(stage.application.last().target, "/x");
    assert_eq!(stage.application.effects(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn auth_url_is_asked_before_every_replay_and_never_for_the_first() {
    let guard = crate::application::Application::start().await;
    let url = format!("http://{}/slow", guard.address);
    let stage = Stage::with(|flags| flags.proxy.auth_url = Some(url)).await;
    let more = "\r\nAuthorization: Bearer t\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\r\n";
    let request = post("/pay", "k1", "1").replace("\r\n\r\n", more);
    assert_eq!(stage.send(&request).await.status, 200);
    assert_eq!(guard.seen.lock().unwrap().len(), 0, "the application authorises the first itself");
    let (answer, ()) = tokio::join!(stage.send(&request), async {
        guard.arrived(1).await;
        guard.gate.add_permits(1);
    });
    assert_eq!((answer.status, answer.header("idempotency-replayed")), (200, Some("true")));
    let asked = guard.last();
    assert_eq!(asked.method, http::Method::GET);
    assert_eq!(
        (&asked.headers["authorization"], &asked.headers["x-original-uri"]),
        (&"Bearer t".parse().unwrap(), &"/pay".parse().unwrap())
    );
    // Nobody names an address of its own.
    assert_eq!(
        (&asked.headers["x-forwarded-for"], &asked.headers["x-forwarded-host"]),
        (&"127.0.0.1".parse().unwrap(), &"shop.test".parse().unwrap())
    );
    assert!(!asked.headers.contains_key("forwarded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_auth_url_takes_the_place_of_the_replay() {
    for (status, reason, expected) in
        [(401, "Unauthorized", 401), (403, "Forbidden", 403), (500, "Oops", 503)]
    {
        let guard = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/auth", guard.local_addr().unwrap());
        tokio::spawn(async move {
            let mut wire = crate::client::Wire::over(guard.accept().await.unwrap().0);
            wire.bytes(4).await;
            wire.write(format!(
                "HTTP/1.1 {status} {reason}\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\nno"
            ))
            .await;
            wire.rest().await;
        });
        let stage = Stage::with(|flags| flags.proxy.auth_url = Some(url)).await;
        assert_eq!(stage.send(post("/pay", "k1", "1")).await.status, 200);
        let refused = stage.send(post("/pay", "k1", "1")).await;
        assert_eq!(refused.status, expected, "{refused:?}");
        assert!(!refused.body.contains("1:1"), "nothing stored is shown");
        if expected != 503 {
            assert_eq!((refused.body.as_str(), refused.header("www-authenticate")), ("no", Some("Bearer")));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refreshed_token_is_the_same_caller_where_a_claim_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let stage = Stage::with(|flags| {
        flags.jwt.algorithm = Some("HS256".into());
        flags.jwt.key_file = Some(secret);
        flags.defaults.principal = Some("jwt:sub".parse().unwrap());
    })
    .await;
    let request = |token: &str| {
        post("/pay", "k", "1").replace("\r\n\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n\r\n"))
    };
    let first = stage.send(request(TOKEN)).await;
    assert_eq!((first.status, first.header("idempotency-replayed")), (200, Some("false")), "{first:?}");
    let refreshed = stage.send(request(REFRESHED)).await;
    assert_eq!((refreshed.status, refreshed.header("idempotency-replayed")), (200, Some("true")));
    let forged = stage.send(request(&format!("{}x", &TOKEN[..TOKEN.len() - 2]))).await;
    assert_eq!(forged.status, 400, "{forged:?}");
    assert_eq!(stage.application.effects(), 1);
}
