//! Protocol switches (WebSocket): passed through, once the upstream has agreed, and only where no key can be.
//!
//! The switch is asked for with GET, which is never protected. On any other method `Upgrade` is dropped like every
//! field of a hop, and the request takes the usual way.

use std::io;
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
use crate::upstream::{Upstream, hop, refuse};

/// How long one side may say nothing once the other has ended, and how long it may take nothing.
const QUIET_MAX: Duration = Duration::from_mins(1);

/// How long what nobody hears is read once all else has been said.
const LINGER_FOR: Duration = Duration::from_secs(10);

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
        if connection.has_refused() {
            // It is lost, so that what follows would not be all that the client says.
            let early = refuse(StatusCode::BAD_REQUEST, "more came before the switch was agreed on");
            return plain(early, in_hand);
        }
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
    client: impl AsyncRead + AsyncWrite + Send + 'static,
    server: impl AsyncRead + AsyncWrite + Send + 'static,
) -> io::Result<()> {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    let moved = AtomicU64::new(0);
    let mut there = pin!(one_way(from_client, to_server, &moved));
    let mut back = pin!(one_way(from_server, to_client, &moved));
    let (unheard, mut rest): (_, Pin<&mut (dyn Future<Output = io::Result<Unheard>> + Send)>) = tokio::select! {
        ended = there.as_mut() => (ended?, back),
        ended = back.as_mut() => (ended?, there),
    };
    let mut unheard = pin!(pass_over(unheard));
    let mut is_passed = false;
    // Nobody reads from the side that has ended, so it does not show that it is gone, and it has a place.
    let unheard_too = loop {
        let before = moved.load(Ordering::Relaxed);
        tokio::select! {
            ended = rest.as_mut() => break ended?,
            () = unheard.as_mut(), if !is_passed => is_passed = true,
            () = tokio::time::sleep(QUIET_MAX) => {
                if moved.load(Ordering::Relaxed) == before {
                    return Ok(());
                }
            }
        }
    };
    let passing = async {
        if !is_passed {
            unheard.await;
        }
        pass_over(unheard_too).await;
    };
    // Whoever speaks for ever to nobody is not heard out.
    drop(tokio::time::timeout(LINGER_FOR, passing).await);
    Ok(())
}

/// Who is still to be read from, because nobody hears it any more.
type Unheard = Option<Box<dyn AsyncRead + Send + Unpin>>;

/// Reads what nobody hears. A connection that is closed with something unread is reset, and what is on its way to the one who speaks
/// is lost.
async fn pass_over(unheard: Unheard) {
    let Some(mut from) = unheard else { return };
    let mut room = vec![0; 8 * 1024];
    while matches!(from.read(&mut room).await, Ok(1..)) {}
}

/// Until `from` has ended, or nobody hears it any more: what they had said may still be on its way back.
async fn one_way(
    mut from: impl AsyncRead + Send + Unpin + 'static,
    mut to: impl AsyncWrite + Unpin,
    moved: &AtomicU64,
) -> io::Result<Unheard> {
    let mut room = vec![0; 8 * 1024];
    loop {
        let length = match from.read(&mut room).await {
            // As good an end as any. Over TLS, many leave out the farewell.
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        match say(&room[..length], &mut to).await {
            Err(error) if is_gone(&error) => return Ok((length > 0).then(|| Box::new(from) as _)),
            said => said?,
        }
        if length == 0 {
            return Ok(None);
        }
        moved.fetch_add(length as u64, Ordering::Relaxed);
    }
}

/// Whether an error says that the other side is there no more.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}

/// Nothing is the end. Each piece that is taken has its time.
async fn say(mut what: &[u8], to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    if what.is_empty() {
        return in_time(to.shutdown()).await;
    }
    while !what.is_empty() {
        let taken = in_time(to.write(what)).await?;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        what = &what[taken..];
    }
    in_time(to.flush()).await
}

async fn in_time<T>(writing: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let written = tokio::time::timeout(QUIET_MAX, writing).await;
    written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
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
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::clock;

    /// More than is read at a time, and so much that it is not sent while nobody reads it.
    const LAST_WORDS: usize = 2 << 20;

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

    #[tokio::test(start_paused = true)]
    async fn a_side_that_does_not_read_ends_both() {
        let (client, client_side) = duplex(64);
        let (_server, server_side) = duplex(64);
        let (mut from_client, mut to_client) = tokio::io::split(client);
        let carried = tokio::spawn(carry(client_side, server_side));
        assert!(to_client.write_all(&[7; 1000]).await.is_err(), "who never ends it has a place for ever");
        assert_eq!(carried.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(from_client.read(&mut [0; 1]).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn last_words_arrive_at_a_client_that_goes_on_speaking() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, client) = tokio::join!(listener.accept(), connecting);
        let (mut server, server_side) = duplex(LAST_WORDS);
        server.write_all(&vec![7; LAST_WORDS]).await.unwrap();
        drop(server);
        let (mut from_client, mut to_client) = client.unwrap().into_split();
        let carried = tokio::spawn(carry(accepted.unwrap().0, server_side));
        // It speaks before it hears: all of it is for nobody, and none of it may end the connection.
        for _ in 0..100 {
            to_client.write_all(b"are you there?").await.unwrap();
            tokio::task::yield_now().await;
        }
        let mut heard = Vec::new();
        from_client.read_to_end(&mut heard).await.unwrap();
        assert!(heard == vec![7; LAST_WORDS], "{} bytes arrived", heard.len());
        drop((from_client, to_client));
        carried.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn last_words_of_a_client_that_resets_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, client) = tokio::join!(listener.accept(), connecting);
        let (accepted, mut client) = (accepted.unwrap().0, client.unwrap());
        let (mut server, server_side) = duplex(64);
        client.write_all(b"last words").await.unwrap();
        server.write_all(b"push").await.unwrap();
        let carried = tokio::spawn(carry(accepted, server_side));
        // Closed with something unread, a connection is reset.
        client.readable().await.unwrap();
        drop(client);
        let mut said = Vec::new();
        server.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"last words");
        drop(server);
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
