//! What a handler over HTTP/2 says, frame by frame.

use http::Request;
use http::uri::PathAndQuery;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
const HEADERS: u8 = 1;

/// What a handler answers the first request of a connection with, once it has its head.
async fn answered_with(frames: &'static [&'static [u8]]) -> Handled {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: UpstreamUrl =
        UpstreamUrl::parse("handler", &format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let handler = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        stream.read_exact(&mut [0; PREFACE]).await.unwrap();
        let mut head = [0; 9];
        while head[3] != HEADERS {
            stream.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            stream.read_exact(&mut vec![0; length as usize]).await.unwrap();
        }
        stream.write_all(&frames.concat()).await.unwrap();
        // Until the other side has seen enough.
        while stream.read(&mut [0; 64]).await.is_ok_and(|length| length > 0) {}
    });
    let client = client(&url, UpstreamHttp::Http2, &Trust::in_ca(None), CONNECT_WITHIN, IDLE).unwrap();
    let target = Target::new(&url, &PathAndQuery::from_static("/")).unwrap();
    let post = Post { client, target, within: Duration::from_mins(1), traces: None };
    let request = Request::post(url.to_string()).body(Body::empty()).unwrap();
    let handled = post.exchange(request, None).await;
    handler.abort();
    handled
}

/// `:status: 200`, by the static table, of the first stream.
const OK: &[u8] = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
const HALF: &[u8] = b"\0\0\x04\0\0\0\0\0\x01half";
const END: &[u8] = b"\0\0\x04\0\x01\0\0\0\x01half";
/// With `NO_ERROR`.
const RESET: &[u8] = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\0";

#[tokio::test]
async fn half_an_answer_says_nothing_however_its_stream_ends() {
    let whole = answered_with(&[OK, HALF, END, RESET]).await;
    assert!(whole == Handled::done());
    let half = answered_with(&[OK, HALF, RESET]).await;
    let unknown = "the handler's answer broke off: the stream was reset before the body had ended";
    assert!(half == Handled::unknown(unknown));
}
