//! Protocol switches (WebSocket): passed through, once the upstream has agreed, and only where no key can be.
//!
//! The switch is asked for with GET, which is never protected. On any other method `Upgrade` is dropped like every
//! field of a hop, and the request takes the usual way.

use std::io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use onlyonce_http::Body;
use onlyonce_http::header::{strip_request_marks, strip_steering};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::{OnItsWay, Pace, Paced};
use crate::listen::{Connection, InHand, Received};
use crate::upstream::{Upstream, hop};

/// How long one side may say nothing once the other has ended.
const QUIET_MAX: Duration = Duration::from_mins(1);

/// Connections that have switched.
#[derive(Clone, Default)]
pub(super) struct Tunnels {
    open: TaskTracker,
    cutting: CancellationToken,
}

/// The protocol that a request may switch to.
pub(super) fn protocol(request: &Request<Received>) -> Option<HeaderValue> {
    if request.method() != Method::GET || request.version() != Version::HTTP_11 {
        return None;
    }
    // Nothing speaks HTTP/2 this way; it is only good for getting requests past a proxy.
    hop::upgrade(request.headers()).filter(|protocol| !protocol.as_bytes().eq_ignore_ascii_case(b"h2c"))
}

impl Tunnels {
    /// Asks the upstream to switch, and connects both sides if it agrees.
    pub(super) async fn open(
        &self,
        upstream: &Upstream,
        mut request: Request<Received>,
        protocol: HeaderValue,
        connection: Arc<Connection>,
        in_hand: InHand,
        pace: Pace,
    ) -> Response<OnItsWay<Body>> {
        let client = hyper::upgrade::on(&mut request);
        // No key, no grant: nobody speaks to the application in our name, and what it tells us is for us alone.
        strip_request_marks(request.headers_mut());
        let request = request.map(|body| Body::new(Paced::new(body, pace)));
        let upstream = upstream.for_client(Arc::clone(&connection));
        let mut response = match upstream.send_upgrade(request, protocol).await {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => response,
            Ok(response) => return plain(seen(upstream.answer(response)), in_hand),
            Err(response) => return plain(*response, in_hand),
        };
        let server = hyper::upgrade::on(&mut response);
        let agreed = response.headers().get(UPGRADE).cloned();
        let mut answer =
            seen(upstream.answer(response)).map(|_| OnItsWay::new(Body::empty(), connection.request()));
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(agreed) = agreed {
            answer.headers_mut().insert(UPGRADE, agreed);
        }
        // ORDER: before the client can know of the switch, so that its first bytes are not taken for a request.
        connection.upgrade();
        let cutting = self.cutting.clone();
        self.open.spawn(async move {
            tokio::select! {
                () = join(client, server) => {}
                () = cutting.cancelled() => {}
            }
            drop(in_hand);
            connection.leave();
        });
        answer
    }

    /// Cuts all off.
    pub(super) async fn cut(&self) {
        self.cutting.cancel();
        self.open.close();
        self.open.wait().await;
    }
}

async fn join(client: OnUpgrade, server: OnUpgrade) {
    match tokio::try_join!(client, server) {
        Ok((client, server)) => {
            if let Err(error) = carry(TokioIo::new(client), TokioIo::new(server)).await {
                tracing::debug!(%error, "a switched connection ended");
            }
        }
        Err(error) => tracing::debug!(%error, "the switch was agreed on but did not happen"),
    }
}

/// Carries everything both ways, until both sides have ended, or one has and the other says nothing more.
async fn carry(
    client: impl AsyncRead + AsyncWrite + Send,
    server: impl AsyncRead + AsyncWrite + Send,
) -> std::io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let moved = AtomicU64::new(0);
    let mut there = pin!(one_way(from_client, to_server, &moved));
    let mut back = pin!(one_way(from_server, to_client, &moved));
    let mut rest: Pin<&mut (dyn Future<Output = _> + Send)> = tokio::select! {
        ended = there.as_mut() => ended.map(|()| back)?,
        ended = back.as_mut() => ended.map(|()| there)?,
    };
    // Nobody reads from the side that has ended, so it does not show that it is gone, and it has a place.
    loop {
        let before = moved.load(Ordering::Relaxed);
        match tokio::time::timeout(QUIET_MAX, rest.as_mut()).await {
            Ok(ended) => return ended,
            Err(_) if moved.load(Ordering::Relaxed) == before => return Ok(()),
            Err(_) => {}
        }
    }
}

async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> std::io::Result<()> {
    let mut room = vec![0; 8 * 1024];
    loop {
        let length = from.read(&mut room).await?;
        match say(&room[..length], &mut to).await {
            // Nobody hears it any more; what they had said may still be on its way back.
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected) => {
                return Ok(());
            }
            said => said?,
        }
        if length == 0 {
            return Ok(());
        }
        moved.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Nothing is the end.
async fn say(what: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    if what.is_empty() {
        return to.shutdown().await;
    }
    to.write_all(what).await?;
    to.flush().await
}

/// What the client may see of an answer.
fn seen(mut response: Response<Body>) -> Response<Body> {
    strip_steering(response.headers_mut());
    response
}

fn plain(response: Response<Body>, in_hand: InHand) -> Response<OnItsWay<Body>> {
    response.map(|body| OnItsWay::new(body, in_hand))
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn one_side_that_has_ended_is_not_waited_for_when_the_other_is_silent() {
        let (mut client, client_side) = duplex(64);
        let (mut server, server_side) = duplex(64);
        let begun = clock::after(Duration::ZERO);
        let carried = tokio::spawn(carry(client_side, server_side));
        // Silence is no reason while both are there.
        tokio::time::sleep(10 * QUIET_MAX).await; // tidy: sleep because time is paused and this moves it
        client.write_all(b"last words").await.unwrap();
        client.shutdown().await.unwrap();
        let mut said = Vec::new();
        server.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"last words");
        for _ in 0..3 {
            tokio::time::sleep(QUIET_MAX * 2 / 3).await; // tidy: sleep because time is paused and this moves it
            server.write_all(b"and").await.unwrap();
            let mut heard = [0; 3];
            client.read_exact(&mut heard).await.unwrap();
        }
        assert!(!carried.is_finished(), "the other still speaks");
        carried.await.unwrap().unwrap();
        assert!(begun.elapsed() < 15 * QUIET_MAX);
    }

    #[tokio::test]
    async fn what_was_said_arrives_though_nobody_hears_the_answer() {
        let (mut client, client_side) = duplex(64);
        let (mut server, server_side) = duplex(1000);
        server.write_all(&[7; 1000]).await.unwrap();
        drop(server);
        client.write_all(b"are you there?").await.unwrap();
        let carried = tokio::spawn(carry(client_side, server_side));
        let mut said = vec![0; 1000];
        client.read_exact(&mut said).await.unwrap();
        assert_eq!(said, [7; 1000]);
        drop(client);
        carried.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn both_ends_are_told_when_the_other_has_ended() {
        let (mut client, client_side) = duplex(64);
        let (mut server, server_side) = duplex(64);
        let carried = tokio::spawn(carry(client_side, server_side));
        server.write_all(b"bye").await.unwrap();
        server.shutdown().await.unwrap();
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"bye");
        client.shutdown().await.unwrap();
        assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
        carried.await.unwrap().unwrap();
    }
}
