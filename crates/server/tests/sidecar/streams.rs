//! Streams of HTTP/2 that no well-behaved library makes: frames are written here byte by byte.

use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use onlyonce_server::ListenAddress;
use onlyonce_server::config::UpstreamHttp;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Wire;
use crate::stage::{Stage, post};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const CONTENT: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const NOTHING: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Literal fields, neither indexed nor compressed.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let length = |length: u8| if length < 127 { vec![length] } else { vec![127, length - 127] };
    let text = |text: &str| [&length(u8::try_from(text.len()).unwrap())[..], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], text(name), text(value)].concat()).collect()
}

fn request(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let pseudo = [(":method", method), (":scheme", "http"), (":authority", "shop.test"), (":path", path)];
    block(&[&pseudo, more].concat())
}

fn reset(stream: u32) -> Vec<u8> {
    // NO_ERROR
    frame(RESET, NOTHING, stream, &[0; 4])
}

/// The next frame: its kind, its flags, its stream and what is in it.
async fn next_frame(wire: &mut Wire) -> (u8, u8, u32, Vec<u8>) {
    let head: [u8; 9] = wire.bytes(9).await.try_into().unwrap();
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    (head[3], head[4], stream, wire.bytes(length as usize).await)
}

/// Sends frames on a connection of their own, and waits for the status of `stream`, as its index in the static table.
async fn status_of(stage: &Stage, frames: &[Vec<u8>], stream: u32) -> u8 {
    let mut wire = stage.connect().await;
    wire.write([PREFACE, &frame(SETTINGS, NOTHING, 0, &[]), &frames.concat()].concat()).await;
    loop {
        if let (HEADERS, _, on, block) = next_frame(&mut wire).await
            && on == stream
        {
            // Before it the table may be given a size.
            return *block.iter().find(|byte| **byte >= 0x80).unwrap() - 0x80;
        }
    }
}

const OK: u8 = 8;
const BAD_REQUEST: u8 = 12;

#[tokio::test(flavor = "multi_thread")]
async fn half_a_body_is_no_request_however_its_stream_ends() {
    let stage = Stage::new().await;
    for key in [Some("k"), None] {
        let key = key.map(|key| ("idempotency-key", key));
        let frames = [
            frame(HEADERS, END_HEADERS, 1, &request("POST", "/pay", key.as_slice())),
            frame(CONTENT, NOTHING, 1, b"half"),
            reset(1),
            // Answered after the other was heard out.
            frame(HEADERS, END_HEADERS | END_STREAM, 3, &request("GET", "/after", &[])),
        ];
        assert_eq!(status_of(&stage, &frames, 3).await, OK);
    }
    let whole = stage.send(post("/pay", "k", "half and half")).await;
    assert_eq!((whole.status, whole.body.as_str()), (200, "1:half and half"), "{whole:?}");
    assert_eq!(stage.application.effects(), 1);
}

#[derive(Clone, Copy)]
enum Upon {
    Head,
    End,
}

/// An upstream over HTTP/2 that answers each request with these frames once it has this one of it.
async fn answering(upon: Upon, frames: &'static [fn(u32) -> Vec<u8>]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                stream.write_all(&frame(SETTINGS, NOTHING, 0, &[])).await.unwrap();
                let mut preface = [0; PREFACE.len()];
                stream.read_exact(&mut preface).await.unwrap();
                let mut wire = Wire::over(stream);
                loop {
                    let (kind, flags, stream, _) = next_frame(&mut wire).await;
                    let is_due = match upon {
                        Upon::Head => kind == HEADERS,
                        Upon::End => matches!(kind, HEADERS | CONTENT) && flags & END_STREAM != 0,
                    };
                    if is_due {
                        let answer: Vec<u8> = frames.iter().flat_map(|frame| frame(stream)).collect();
                        wire.write(answer).await;
                    }
                }
            });
        }
    });
    url
}

fn created(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &block(&[(":status", "201")]))
}

fn half(stream: u32) -> Vec<u8> {
    frame(CONTENT, NOTHING, stream, b"half")
}

fn rest(stream: u32) -> Vec<u8> {
    frame(CONTENT, END_STREAM, stream, b" and half")
}

async fn in_front_of(url: String) -> Stage {
    Stage::with(|flags| {
        flags.proxy.upstream = Some(url);
        flags.proxy.upstream_http = Some(UpstreamHttp::Http2);
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_answer_is_no_answer_however_its_stream_ends() {
    let stage = in_front_of(answering(Upon::End, &[created, half, reset]).await).await;
    let first = stage.send(post("/pay", "k", "1")).await;
    assert_eq!(first.status, 502, "{first:?}");
    let again = stage.send(post("/pay", "k", "1")).await;
    assert!(again.status == 409 && again.body.contains("outcome-unknown"), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_has_ended_is_whole_whatever_follows() {
    // Who answers early takes the rest of the request back so (RFC 9113 §8.1): more than the window of a stream is left.
    let long = "1".repeat(100_000);
    for (upon, body) in [(Upon::End, "1"), (Upon::Head, &long)] {
        let stage = in_front_of(answering(upon, &[created, half, rest, reset]).await).await;
        for replayed in ["false", "true"] {
            let answer = stage.send(post("/pay", "k", body)).await;
            assert_eq!((answer.status, answer.body.as_str()), (201, "half and half"), "{answer:?}");
            assert_eq!(answer.header("idempotency-replayed"), Some(replayed));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_head_may_say_is_no_trailer() {
    let announced = "x-sum, onlyonce-fence, x-forwarded-for, x-forwarded-uri, forwarded, x-real-ip, x-original-url, \
                     authorization, cookie, idempotency-key, early-data";
    let trailers: Vec<_> = announced.split(", ").map(|name| (name, "7")).collect();
    for version in [UpstreamHttp::Http1, UpstreamHttp::Http2] {
        let stage = Stage::with(|flags| flags.proxy.upstream_http = Some(version)).await;
        for key in [Some("k"), None] {
            let key = key.map(|key| ("idempotency-key", key));
            let fields = [key.as_slice(), &[("te", "trailers"), ("trailer", announced)]].concat();
            let frames = [
                frame(HEADERS, END_HEADERS, 1, &request("POST", "/pay", &fields)),
                frame(CONTENT, NOTHING, 1, b"1"),
                frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&trailers)),
            ];
            assert_eq!(status_of(&stage, &frames, 1).await, OK);
            let seen = stage.application.last().trailers;
            // With a key the body is whole, and goes over HTTP/1 with its length, behind which there are none.
            let expected: &[&str] =
                if version == UpstreamHttp::Http1 && key.is_some() { &[] } else { &["x-sum"] };
            assert_eq!(seen.keys().collect::<Vec<_>>(), expected, "{version:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_no_path_is_refused() {
    let stage = Stage::new().await;
    let nowhere = block(&[(":method", "GET"), (":scheme", "http")]);
    for head in [nowhere, request("GET", "*", &[])] {
        let frames = [frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)];
        assert_eq!(status_of(&stage, &frames, 1).await, BAD_REQUEST);
    }
    assert!(stage.application.seen.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_host_is_refused() {
    let stage = Stage::new().await;
    let get =
        |hosts: &[(&str, &str)]| [frame(HEADERS, END_HEADERS | END_STREAM, 1, &request("GET", "/", hosts))];
    assert_eq!(status_of(&stage, &get(&[("host", "shop.test")]), 1).await, OK);
    for hosts in [[("host", "shop.test"), ("host", "shop.test")], [("host", "shop.test"), ("host", "b.test")]]
    {
        assert_eq!(status_of(&stage, &get(&hosts), 1).await, BAD_REQUEST, "{hosts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_that_come_one_by_one_go_on_as_one_field() {
    let stage = Stage::new().await;
    let ListenAddress::Tcp(address) = stage.address else { unreachable!("TCP") };
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let asked = Request::get("http://shop.test/").header("cookie", "a=1").header("cookie", "b=2");
    sender.send_request(asked.body(Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let seen = stage.application.last();
    let cookies: Vec<_> = seen.headers.get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_are_counted_over_http2_too() {
    let stage = Stage::with(|flags| flags.proxy.fields_max = Some(8)).await;
    let names: Vec<_> = (0..9).map(|number| format!("x-{number}")).collect();
    let fields: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let asked =
        |fields: &[(&str, &str)]| [frame(HEADERS, END_STREAM | END_HEADERS, 1, &request("GET", "/", fields))];
    assert_eq!(status_of(&stage, &asked(&fields[..8]), 1).await, OK);
    // 431 is no status of the static table: it is written out.
    assert_ne!(status_of(&stage, &asked(&fields), 1).await, OK);
    assert_eq!(stage.application.seen.lock().unwrap().len(), 1);
}
