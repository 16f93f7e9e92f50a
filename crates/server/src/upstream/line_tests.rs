//! Requests as they leave and answers of every kind, over sockets that do as they are told.

use std::time::Duration;

use http::HeaderValue;
use http_body_util::{BodyExt as _, StreamBody};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::clock;

const GET: fn() -> Request<Body> = || Request::get("/a?b=c").header("host", "x").body(Body::empty()).unwrap();

async fn connected() -> (Line, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (ours, theirs) = tokio::join!(TcpStream::connect(address), listener.accept());
    (Line::new(Stream::Clear(ours.unwrap())), theirs.unwrap().0)
}

/// What came of a request.
type Came = Result<(StatusCode, HeaderMap, Vec<u8>, Option<HeaderMap>), Broken>;

async fn came(line: &mut Line, request: Request<Body>) -> Came {
    let answer = line.exchange(request, clock::after(Duration::from_mins(1))).await.expect("in time")?;
    let (parts, mut remaining) = answer.into_parts();
    let (mut content, mut trailers) = (Vec::new(), None);
    while let Some(frame) = poll_fn(|cx| line.poll_body(&mut remaining, cx)).await {
        match frame?.into_data() {
            Ok(bytes) => content.extend_from_slice(&bytes),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((parts.status, parts.headers, content, trailers))
}

/// What comes of a request that is answered with these bytes, after which the connection ends.
async fn answered(request: Request<Body>, bytes: &[u8]) -> (Came, bool) {
    let (mut line, mut theirs) = connected().await;
    let serving = async {
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
    };
    let (came, ()) = tokio::join!(came(&mut line, request), serving);
    (came, line.is_ready())
}

/// A request as it arrives.
async fn arrived(request: Request<Body>) -> String {
    let (mut line, mut theirs) = connected().await;
    let asking = async {
        let _ = line.exchange(request, clock::after(Duration::ZERO)).await;
        drop(line);
    };
    let mut bytes = Vec::new();
    let ((), read) = tokio::join!(asking, theirs.read_to_end(&mut bytes));
    read.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn the_end_of_an_answer_is_known() {
    let cases: &[(Method, &str, &str, bool)] = &[
        (Method::GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        (Method::GET, "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "", true),
        (
            Method::GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
            "ok",
            true,
        ),
        (Method::GET, "HTTP/1.1 200 OK\r\n\r\nok", "ok", false),
        (Method::GET, "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\nok", "ok", false),
        (Method::GET, "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok", "ok", false),
        (Method::GET, "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", false),
        (Method::GET, "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nok", "ok", true),
        (
            Method::GET,
            "HTTP/1.0 200 OK\r\nConnection: Keep-Alive, close\r\nContent-Length: 2\r\n\r\nok",
            "ok",
            false,
        ),
        (Method::GET, "HTTP/1.1 204 No Content\r\n\r\n", "", true),
        (Method::GET, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", "", true),
        (Method::HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "", true),
        (Method::HEAD, "HTTP/1.1 200 OK\r\n\r\n", "", true),
        (
            Method::GET,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            "",
            true,
        ),
        // What nobody asked for follows: nobody may take it for the next answer.
        (Method::GET, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", "ok", false),
    ];
    for (method, bytes, content, is_kept) in cases {
        let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
        let (came, is_ready) = answered(request, bytes.as_bytes()).await;
        assert_eq!(came.unwrap().2, content.as_bytes(), "{bytes}");
        assert_eq!(is_ready, *is_kept, "{bytes}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_told_apart_from_one_that_was_cut_off() {
    for bad in [
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 99 Too Low\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
    ] {
        let (came, _) = answered(GET(), bad.as_bytes()).await;
        assert!(matches!(came, Err(Broken::Malformed(_))), "{bad}: {came:?}");
    }
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(FIELDS_MAX + 1));
    let (came, _) = answered(GET(), many.as_bytes()).await;
    assert!(matches!(came, Err(Broken::Malformed(Malformed::HeadTooLarge))), "{came:?}");
    for whole in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    ] {
        for length in 0..whole.len() {
            let (came, _) = answered(GET(), &whole.as_bytes()[..length]).await;
            assert!(matches!(came, Err(Broken::Closed)), "{length} bytes of {whole}: {came:?}");
        }
        assert!(answered(GET(), whole.as_bytes()).await.0.is_ok(), "{whole}");
    }
}

#[tokio::test]
async fn of_two_lengths_only_the_one_that_was_used_goes_further() {
    let bytes =
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let (_, fields, content, _) = answered(GET(), bytes).await.0.unwrap();
    assert_eq!(content, b"hello");
    assert!(!fields.contains_key(CONTENT_LENGTH), "{fields:?}");
}

#[tokio::test]
async fn fields_and_trailers_arrive_as_they_were_sent() {
    let bytes = b"HTTP/1.1 201 Made\r\nSet-Cookie: a\r\nX: \xc3\xa9 b \r\nset-cookie: b\r\nTransfer-Encoding: chunked\r\n\r\n\
        2\r\nok\r\n0\r\nX-Sum: 7\r\n\r\n";
    let (status, fields, content, trailers) = answered(GET(), bytes).await.0.unwrap();
    assert_eq!((status, &content[..]), (StatusCode::CREATED, &b"ok"[..]));
    assert_eq!(fields.get_all("set-cookie").iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(fields["x"].as_bytes(), b"\xc3\xa9 b");
    assert_eq!(trailers.unwrap()["x-sum"], "7");
}

#[tokio::test]
async fn a_request_says_how_long_its_body_is() {
    assert_eq!(arrived(GET()).await, "GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n");
    let bare = Request::get("http://x?b=c").body(Body::empty()).unwrap();
    assert_eq!(arrived(bare).await, "GET /?b=c HTTP/1.1\r\n\r\n");
    let post = || Request::post("/p").header("content-length", "0");
    let empty = post().body(Body::empty()).unwrap();
    assert_eq!(arrived(empty).await, "POST /p HTTP/1.1\r\ncontent-length: 0\r\n\r\n");
    // What the head said before is not believed.
    let sized = post().body(Body::from("paid")).unwrap();
    assert_eq!(arrived(sized).await, "POST /p HTTP/1.1\r\ncontent-length: 4\r\n\r\npaid");
    let parts = ["pa", "", "id"].map(|part| Ok::<_, io::Error>(Frame::data(Bytes::from(part))));
    let mut sums = HeaderMap::new();
    let never = ["host", "authorization", "transfer-encoding", "onlyonce-fence", "x-forwarded-for"];
    for name in ["x-sum", "x-other"].iter().chain(&never) {
        sums.insert(*name, HeaderValue::from_static("7"));
    }
    let ends = [Ok(Frame::trailers(sums))];
    let stream = StreamBody::new(futures_util::stream::iter(parts.into_iter().chain(ends)));
    let announced = "x-none, X-Sum, host, Authorization, transfer-encoding, onlyonce-fence, X-Forwarded-For";
    let streamed = post().header("trailer", announced).body(Body::new(stream.boxed_unsync())).unwrap();
    assert_eq!(
        arrived(streamed).await,
        format!(
            "POST /p HTTP/1.1\r\ntrailer: {announced}\r\ntransfer-encoding: chunked\r\n\r\n\
             2\r\npa\r\n2\r\nid\r\n0\r\nx-sum: 7\r\n\r\n"
        )
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_requests_own_fault() {
    let parts = [Ok(Frame::data(Bytes::from("pa"))), Err(io::Error::other("gone"))];
    let body = Body::new(StreamBody::new(futures_util::stream::iter(parts)).boxed_unsync());
    let (mut line, _theirs) = connected().await;
    let came = came(&mut line, Request::post("/").body(body).unwrap()).await;
    assert!(matches!(came, Err(Broken::Request(_))), "{came:?}");
}

#[tokio::test]
async fn an_answer_counts_even_if_the_rest_of_the_request_was_not_wanted() {
    let (mut line, mut theirs) = connected().await;
    let serving = async {
        let mut some = [0; 64];
        theirs.read_exact(&mut some).await.unwrap();
        theirs.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
        theirs.shutdown().await.unwrap();
        // Only then is it certain that what is still sent meets nobody.
        while theirs.read(&mut vec![0; 65536]).await.unwrap_or(0) > 0 {}
    };
    let large = Request::post("/").body(Body::from(vec![7; 8 << 20])).unwrap();
    let (came, ()) = tokio::join!(
        async {
            let came = came(&mut line, large).await;
            drop(line);
            came
        },
        serving
    );
    assert_eq!(came.unwrap().0, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn whatever_an_upstream_says_is_an_answer_or_an_error() {
    const ANSWERS: [&[u8]; 4] = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n002 \r\nlo\r\n0\r\nA: b\r\n\r\n",
        b"HTTP/1.0 404 Not Found\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n",
    ];
    const SPOILS: &[u8] = b"\r\n\0 :;0129afx\xff\x7f";
    let mut random = SmallRng::seed_from_u64(1);
    let (mut answers, mut errors) = (0, 0);
    for round in 0..600 {
        let mut bytes = ANSWERS[round % ANSWERS.len()].to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            let spoil = SPOILS[random.random_range(0..SPOILS.len())];
            match random.random_range(0..3) {
                0 => bytes[at] = spoil,
                1 => bytes.insert(at, spoil),
                _ => drop(bytes.drain(at..(at + 3).min(bytes.len()))),
            }
        }
        // It ends, without a panic, and nothing is made up.
        match answered(GET(), &bytes).await.0 {
            Ok((_, _, content, _)) => {
                assert!(content.len() <= bytes.len(), "{}", bytes.escape_ascii());
                answers += 1;
            }
            Err(Broken::Closed | Broken::Malformed(_)) => errors += 1,
            Err(other) => panic!("{other:?} after {}", bytes.escape_ascii()),
        }
    }
    assert!(answers > 50 && errors > 50, "{answers} answers, {errors} errors");
}
