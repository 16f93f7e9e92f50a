//! Refused before the body was read: over HTTP/2 the client can still send it to its end, but not for ever.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http::header::AUTHORIZATION;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::client::PATIENCE;
use crate::stage::Stage;

type Sent = UnsyncBoxBody<Bytes, Infallible>;

const TOKENS: &str = "[[token]]\nsecret = \"0123456789abcdef\"\nscopes = [\"claim\"]\n";

async fn connected(stage: &Stage) -> SendRequest<Sent> {
    let stream = TcpStream::connect(&stage.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Claims with this token, and a body of what is sent to the channel.
async fn claim(sender: &mut SendRequest<Sent>, token: &str) -> (StatusCode, mpsc::Sender<Bytes>) {
    let (parts, received) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(received, async |mut received| {
        let part = received.recv().await?;
        Some((Ok(Frame::data(part)), received))
    });
    let request = Request::post("http://claims.test/v1/claims")
        .header(AUTHORIZATION, format!("Bearer {token}"))
        .body(StreamBody::new(body).boxed_unsync())
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status();
    assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
    (status, parts)
}

/// Another request and its answer: whatever was sent before has arrived after it.
async fn is_live(sender: &mut SendRequest<Sent>) {
    let request = Request::get("http://claims.test/health/live").body(Empty::new().boxed_unsync()).unwrap();
    assert_eq!(sender.send_request(request).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn who_is_refused_before_the_body_can_send_it_to_its_end() {
    let stage = Stage::of(TOKENS).await;
    let mut sender = connected(&stage).await;
    let (status, parts) = claim(&mut sender, "0000000000000000").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    is_live(&mut sender).await;
    for _ in 0..3 {
        parts.send(Bytes::from_static(b"{}")).await.unwrap();
    }
    // It was taken, and the stream has not been reset since.
    drop(parts.reserve().await.unwrap());
    is_live(&mut sender).await;
    assert!(!parts.is_closed());
}

#[tokio::test]
async fn who_is_refused_and_never_ends_is_cut_off() {
    let stage = Stage::of(TOKENS).await;
    let mut sender = connected(&stage).await;
    let (status, parts) = claim(&mut sender, "0000000000000000").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let part = Bytes::from(vec![b' '; 16 * 1024]);
    let sending = async { while parts.send(part.clone()).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, sending).await.unwrap();
    is_live(&mut sender).await;
}
