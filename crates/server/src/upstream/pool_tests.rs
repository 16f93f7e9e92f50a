//! Connections that are used again, replaced and closed, against sockets that do as they are told.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use http_body_util::BodyExt as _;

use super::super::connect::Stream;
use super::*;
use crate::config::UpstreamUrl;

const WITHIN: Duration = Duration::from_mins(1);

async fn upstream() -> (TcpListener, Pool) {
    upstream_with(WITHIN).await
}

async fn upstream_with(idle_max: Duration) -> (TcpListener, Pool) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let url = UpstreamUrl::parse("upstream", &format!("http://{address}")).unwrap();
    (listener, Pool::new(Connector::new(&url, WITHIN, None).unwrap(), idle_max))
}

fn request() -> Box<Request<Body>> {
    let request = Request::post("/payments").header("host", "upstream").body(Body::from("paid"));
    Box::new(request.unwrap())
}

/// Reads one request, whose end is known.
async fn read(stream: &mut TcpStream) -> String {
    let mut read = String::new();
    while !read.ends_with("paid") {
        let mut buf = [0; 512];
        let count = stream.read(&mut buf).await.unwrap();
        assert!(count > 0, "cut off after {read:?}");
        read.push_str(std::str::from_utf8(&buf[..count]).unwrap());
    }
    read
}

async fn answer(stream: &mut TcpStream, head: &str, body: &str) {
    assert!(read(stream).await.starts_with("POST /payments HTTP/1.1\r\n"));
    stream.write_all(format!("HTTP/1.1 {head}\r\n\r\n{body}").as_bytes()).await.unwrap();
}

async fn whole(response: Result<Response<Answer>, Failure>) -> String {
    let bytes = match response.unwrap().into_body() {
        Answer::Whole(bytes) => bytes,
        Answer::Coming(body) => body.collect().await.unwrap().to_bytes(),
    };
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn waiting(pool: &Pool) -> usize {
    pool.0.waiting.lock().unwrap().lines.len()
}

#[tokio::test]
async fn a_connection_is_used_again_however_the_answer_ends() {
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "201 Created\r\nContent-Length: 2", "ok").await;
        answer(&mut stream, "200 OK\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n").await;
        answer(&mut stream, "204 No Content", "").await;
        answer(&mut stream, "200 OK\r\nContent-Length: 4", "last").await;
        stream
    };
    let asking = async {
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "");
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "last");
        assert_eq!(waiting(&pool), 1);
    };
    let ((), _open) = tokio::join!(asking, serving);
}

#[tokio::test]
async fn what_was_not_read_to_its_end_is_not_used_again() {
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "200 OK\r\nContent-Length: 9", "half").await;
        // It was closed: nobody reads the rest.
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap_or(0), 0);
    };
    let asking = async {
        let response = pool.send(request(), WITHIN).await.unwrap();
        drop(response);
        assert_eq!(waiting(&pool), 0);
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn a_connection_that_was_closed_while_it_waited_is_replaced_and_nothing_is_sent_twice() {
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "200 OK\r\nContent-Length: 2", "ok").await;
        stream.shutdown().await.unwrap();
        // Whatever comes on the first connection after its end is seen here.
        let (mut second, _) = listener.accept().await.unwrap();
        answer(&mut second, "200 OK\r\nContent-Length: 5", "again").await;
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    };
    let asking = async {
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        // The end of the connection has arrived once it can be seen: only then is the next request sent.
        while pool.0.look() {
            tokio::task::yield_now().await;
        }
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "again");
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn the_end_of_a_connection_is_seen_before_anything_is_written_to_it() {
    let (listener, pool) = upstream().await;
    let (close, closing) = oneshot::channel();
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "200 OK\r\nContent-Length: 2", "ok").await;
        closing.await.unwrap();
        drop(stream);
        let (mut second, _) = listener.accept().await.unwrap();
        answer(&mut second, "200 OK\r\nContent-Length: 5", "again").await;
    };
    let asking = async {
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        let line = pool.0.take(clock::after(Duration::ZERO)).unwrap();
        close.send(()).unwrap();
        // Nobody looks after it meanwhile: it is the request itself that finds out.
        pool.0.put(ended(line).await);
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "again");
    };
    tokio::join!(asking, serving);
}

/// Waits until the other side's end has arrived, without driving the connection.
async fn ended(line: Box<Line>) -> Box<Line> {
    let Stream::Clear(io) = &line.io else { unreachable!("it is not encrypted") };
    assert_eq!(io.peek(&mut [0]).await.unwrap_or(0), 0);
    line
}

#[tokio::test]
async fn what_waits_for_too_long_is_closed() {
    let (listener, pool) = upstream_with(Duration::ZERO).await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "200 OK\r\nContent-Length: 2", "ok").await;
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "closed by the pool");
    };
    let asking = async {
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        assert_eq!(waiting(&pool), 1);
        assert!(pool.0.take(clock::after(Duration::ZERO)).is_none(), "it is not used again");
        assert!(!pool.0.look(), "nothing is left to look after");
        assert_eq!(waiting(&pool), 0);
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn what_is_known_of_a_request_without_an_answer_is_said() {
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read(&mut stream).await;
        drop(stream);
        drop(listener);
    };
    let asking = async {
        let failure = pool.send(request(), WITHIN).await.err().unwrap();
        assert!(!failure.sent_nothing(), "{failure:?}");
    };
    tokio::join!(asking, serving);
    let failure = pool.send(request(), WITHIN).await.err().unwrap();
    assert!(failure.sent_nothing() && matches!(failure, Failure::Connect(_)), "{failure:?}");
}

#[tokio::test]
async fn an_answer_is_not_waited_for_for_ever_on_a_connection_that_was_used_before() {
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        answer(&mut stream, "200 OK\r\nContent-Length: 2", "ok").await;
        read(&mut stream).await;
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0, "closed by the pool");
    };
    let asking = async {
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "ok");
        let failure = pool.send(request(), Duration::from_millis(20)).await.err().unwrap();
        assert!(matches!(failure, Failure::TimedOut) && !failure.sent_nothing(), "{failure:?}");
        assert_eq!(waiting(&pool), 0);
    };
    tokio::join!(asking, serving);
}

#[tokio::test]
async fn an_answer_that_comes_early_does_not_cut_the_request_off() {
    const LENGTH: usize = 8 << 20;
    let (listener, pool) = upstream().await;
    let serving = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = stream.read_buf(&mut head).await.unwrap();
            assert!(count > 0);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        let end = head.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let mut left = LENGTH - (head.len() - end);
        while left > 0 {
            // No more than that: the next request may follow.
            let count = stream.read(&mut vec![0; left.min(65536)]).await.unwrap();
            assert!(count > 0, "cut off with {left} bytes to come");
            left -= count;
        }
        answer(&mut stream, "200 OK\r\nContent-Length: 4", "next").await;
    };
    let asking = async {
        let large = Request::post("/payments").header("host", "upstream").body(Body::from(vec![7; LENGTH]));
        assert_eq!(whole(pool.send(Box::new(large.unwrap()), WITHIN).await).await, "ok");
        while waiting(&pool) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(whole(pool.send(request(), WITHIN).await).await, "next");
    };
    tokio::join!(asking, serving);
}
