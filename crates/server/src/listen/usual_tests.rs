//! What is served here and what is hyper's, over a pipe.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};

use super::super::connection::Connection;
use super::super::wire::{HeadLimits, Patience};
use super::*;

const LIMITS: HeadLimits = HeadLimits { bytes_max: 4096, fields_max: 32 };
const MINUTE: Duration = Duration::from_mins(1);
const PATIENCE: Patience = Patience { first_byte: MINUTE, head: MINUTE, idle: MINUTE, write: MINUTE };

type Answered = Result<Response<Answer>, Infallible>;

fn wire() -> (Wire<DuplexStream>, DuplexStream, Arc<Connection>) {
    let (ours, theirs) = duplex(1 << 20);
    let connection = Arc::new(Connection::new(None, false));
    (Wire::new(ours, LIMITS, PATIENCE, Arc::clone(&connection)), theirs, connection)
}

fn answer(connection: &Arc<Connection>, status: u16, body: Body) -> Response<Answer> {
    let mut response = Response::new(OnItsWay::new(body, connection.request()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("date", http::HeaderValue::from_static("today"));
    response
}

/// What a client reads that sends `bytes` and then waits, and whether the connection was served to its end.
async fn served(bytes: &[u8], status: u16, body: &'static str) -> (String, bool) {
    let (mut wire, mut client, connection) = wire();
    client.write_all(bytes).await.unwrap();
    let ending = CancellationToken::new();
    let mut service = service_fn(|request: Request<Received>| {
        let connection = Arc::clone(&connection);
        let ending = ending.clone();
        async move {
            let path = request.uri().path().to_owned();
            let asked = request.into_body().collect().await.unwrap().to_bytes();
            if path == "/last" {
                ending.cancel();
            }
            let mut answer = answer(&connection, status, Body::from(body));
            answer.headers_mut().insert("asked", http::HeaderValue::from_maybe_shared(asked).unwrap());
            Answered::Ok(answer)
        }
    });
    let is_over = serve(&mut wire, &mut service, &ending).await;
    drop(wire);
    let mut read = String::new();
    client.read_to_string(&mut read).await.unwrap();
    (read, is_over)
}

#[tokio::test]
async fn requests_are_answered_in_their_order() {
    let bytes = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\noneGET /b HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\n\r\n\
        POST /last HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nthree";
    let (read, is_over) = served(bytes, 201, "ok").await;
    let one = |asked: &str, more: &str| {
        format!("HTTP/1.1 201 Created\r\ndate: today\r\nasked: {asked}\r\n{more}content-length: 2\r\n\r\nok")
    };
    assert_eq!(read, one("one", "") + &one("", "") + &one("three", "connection: close\r\n"));
    assert!(is_over);
}

#[tokio::test]
async fn an_answer_without_a_body_says_so_in_its_own_way() {
    let post = b"POST /last HTTP/1.1\r\nHost: x\r\n\r\n";
    let head = b"HEAD /last HTTP/1.1\r\nHost: x\r\n\r\n";
    for (bytes, status, body, end) in [
        (&post[..], 200, "", "content-length: 0\r\n\r\n"),
        (post, 204, "", "close\r\n\r\n"),
        (post, 304, "", "close\r\n\r\n"),
        (head, 200, "twelve bytes", "content-length: 12\r\n\r\n"),
        (head, 200, "", "close\r\n\r\n"),
    ] {
        let (read, _) = served(bytes, status, body).await;
        assert!(read.ends_with(end), "{status} {body}: {read}");
        assert!(read.starts_with(&format!("HTTP/1.1 {status} ")), "{read}");
    }
}

#[tokio::test]
async fn a_body_may_come_after_its_head() {
    let (mut wire, mut client, connection) = wire();
    let mut service = service_fn(|request: Request<Received>| {
        let body = request.into_body().into_whole().unwrap();
        std::future::ready(Answered::Ok(answer(&connection, 200, Body::from(body))))
    });
    let sending = async {
        for part in ["POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", "he", "llo"] {
            client.write_all(part.as_bytes()).await.unwrap();
            // Lets the other side see it by itself.
            tokio::task::yield_now().await;
        }
        let mut read = Vec::new();
        while !read.ends_with(b"\r\n\r\nhello") {
            assert!(client.read_buf(&mut read).await.unwrap() > 0);
        }
        drop(client);
    };
    let ending = CancellationToken::new();
    let (is_over, ()) = tokio::join!(serve(&mut wire, &mut service, &ending), sending);
    assert!(is_over);
}

#[tokio::test]
async fn what_is_unusual_is_left_as_it_came() {
    for head in [
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhalf",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let usual = "GET /first HTTP/1.1\r\nHost: x\r\n\r\n";
        let has_first = !head.starts_with("PRI");
        let bytes = if has_first { format!("{usual}{head}") } else { head.to_owned() };
        let (mut wire, mut client, connection) = wire();
        client.write_all(bytes.as_bytes()).await.unwrap();
        let mut service = service_fn(|request: Request<Received>| {
            assert_eq!(request.uri().path(), "/first", "{head}");
            std::future::ready(Answered::Ok(answer(&connection, 204, Body::empty())))
        });
        assert!(!serve(&mut wire, &mut service, &CancellationToken::new()).await, "{head}");
        let mut again = vec![0; head.len()];
        wire.read_exact(&mut again).await.unwrap();
        assert_eq!(String::from_utf8(again).unwrap(), head);
    }
}

#[tokio::test]
async fn what_is_refused_is_hypers_to_refuse() {
    let (mut wire, mut client, _) = wire();
    client.write_all(b"GET / HTTP/1.1\nHost: x\n\n").await.unwrap();
    let mut service = service_fn(|_| async { unreachable!("it must not be served") });
    let service: &mut _ = &mut service;
    let is_over = serve(&mut wire, hint(service), &CancellationToken::new()).await;
    assert!(!is_over);
    let mut shown = [0; 5];
    wire.read_exact(&mut shown).await.unwrap();
    assert_eq!(&shown, b"\0\r\n\r\n");
}

/// Says what a service that never answers would answer with.
fn hint<S>(service: &mut S) -> &mut S
where
    S: Service<Request<Received>, Response = Response<Answer>, Error = Infallible>,
{
    service
}

#[tokio::test]
async fn nobody_works_for_a_client_that_has_gone() {
    let (mut wire, mut client, connection) = wire();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let (started, starting) = oneshot::channel();
    let started = std::sync::Mutex::new(Some(started));
    let (working, mut work) = mpsc::channel::<()>(1);
    let mut service = service_fn(|_: Request<Received>| {
        let (working, connection) = (working.clone(), Arc::clone(&connection));
        started.lock().unwrap().take().unwrap().send(()).unwrap();
        async move {
            working.closed().await;
            Answered::Ok(answer(&connection, 200, Body::empty()))
        }
    });
    let leaving = async {
        starting.await.unwrap();
        drop(client);
    };
    let ending = CancellationToken::new();
    let (is_over, ()) = tokio::join!(serve(&mut wire, &mut service, &ending), leaving);
    assert!(is_over);
    drop(working);
    assert!(work.recv().await.is_none(), "the work was dropped");
}

#[tokio::test]
async fn a_request_whose_client_ends_its_side_at_once_is_still_sent_on() {
    let (mut wire, mut client, connection) = wire();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    client.shutdown().await.unwrap();
    let is_sent = std::sync::atomic::AtomicBool::new(false);
    let mut service = service_fn(|_: Request<Received>| {
        let (connection, is_sent) = (Arc::clone(&connection), &is_sent);
        async move {
            turn::others_first().await;
            is_sent.store(true, std::sync::atomic::Ordering::Relaxed);
            std::future::pending::<()>().await;
            Answered::Ok(answer(&connection, 200, Body::empty()))
        }
    });
    assert!(serve(&mut wire, &mut service, &CancellationToken::new()).await);
    assert!(is_sent.into_inner(), "the client was taken for gone before its request was sent");
}

#[tokio::test]
async fn a_stream_leaves_part_by_part_and_ends_with_its_client() {
    let (mut wire, mut client, connection) = wire();
    client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let (parts, stream) = mpsc::channel::<&'static str>(1);
    let stream = futures_util::stream::unfold(stream, async |mut stream| {
        let part = stream.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(part))), stream))
    });
    let stream = std::sync::Mutex::new(Some(Body::new(StreamBody::new(stream).boxed_unsync())));
    let mut service = service_fn(|_: Request<Received>| {
        let body = stream.lock().unwrap().take().unwrap();
        std::future::ready(Answered::Ok(answer(&connection, 200, body)))
    });
    let reading = async {
        let mut read = Vec::new();
        for (part, until) in
            [("one", "\r\n\r\n3\r\none\r\n"), ("seventeen letters", "11\r\nseventeen letters\r\n")]
        {
            parts.send(part).await.unwrap();
            while !read.ends_with(until.as_bytes()) {
                assert!(client.read_buf(&mut read).await.unwrap() > 0);
            }
        }
        drop(client);
        // Nothing more is sent: that the client has gone is found out all the same.
        parts.closed().await;
    };
    let ending = CancellationToken::new();
    let (is_over, ()) = tokio::join!(
        async {
            let is_over = serve(&mut wire, &mut service, &ending).await;
            drop(stream.lock().unwrap().take());
            is_over
        },
        reading
    );
    assert!(is_over);
}

#[tokio::test]
async fn a_connection_that_is_idle_ends_when_all_are_to_end() {
    let (mut wire, mut client, connection) = wire();
    let mut service = service_fn(|_: Request<Received>| {
        std::future::ready(Answered::Ok(answer(&connection, 200, Body::empty())))
    });
    let ending = CancellationToken::new();
    let closing = async {
        ending.cancel();
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0);
        drop(client);
    };
    let (is_over, ()) = tokio::join!(serve(&mut wire, &mut service, &ending), closing);
    assert!(is_over);
}
