//! Takes connections: TCP or unix socket, TLS or clear, never more than a cap, each served until it ends or is told to.

mod address;
mod aside;
mod connection;
mod received;
mod usual;
pub(crate) mod wire;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use onlyonce_http::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::address::{Accepted, Listener};
use self::aside::Aside;
use self::wire::Wire;
use crate::body::OnItsWay;
use crate::config::DoorSettings;

pub use address::ListenAddress;
pub(crate) use connection::{Connection, InHand};
pub(crate) use received::Received;

/// How long to wait after accepting failed: out of file descriptors, most likely, and those come back.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What answers the requests of connections.
pub(crate) trait Answers: Clone + Send + Sync + 'static {
    /// Answers those of one connection.
    type Service: Service<Request<Received>, Response = Response<OnItsWay<Body>>, Error = Infallible, Future: Send>
        + Send
        + 'static;

    /// What hyper calls for each request of `connection`.
    fn serve(&self, connection: Arc<Connection>) -> Self::Service;
}

/// The side that clients see.
pub(crate) struct Door<F> {
    /// Gone once no more connections are taken: those that knock then are refused, not left waiting.
    listener: Option<Listener>,
    address: ListenAddress,
    tls: Option<TlsAcceptor>,
    serving: Serving<F>,
    cap: Arc<Semaphore>,
    connections: TaskTracker,
}

/// What serving one connection takes.
#[derive(Clone)]
struct Serving<F> {
    http: Arc<auto::Builder<TokioExecutor>>,
    front: F,
    settings: Arc<DoorSettings>,
    /// Cancelled when connections are to end after what they are at.
    ending: CancellationToken,
    /// Cancelled when they are to end at once.
    cutting: CancellationToken,
}

impl<F: Answers> Door<F> {
    pub(crate) fn open(
        settings: DoorSettings,
        tls: Option<Arc<rustls::ServerConfig>>,
        front: F,
    ) -> io::Result<Self> {
        let listener = Listener::bind(&settings.listen)?;
        Ok(Self {
            address: listener.address()?,
            listener: Some(listener),
            tls: tls.map(TlsAcceptor::from),
            cap: Arc::new(Semaphore::new(settings.connections_max.min(Semaphore::MAX_PERMITS))),
            connections: TaskTracker::new(),
            serving: Serving {
                http: Arc::new(http(&settings)),
                front,
                settings: Arc::new(settings),
                ending: CancellationToken::new(),
                cutting: CancellationToken::new(),
            },
        })
    }

    pub(crate) const fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Takes no more connections.
    pub(crate) fn close(&mut self) {
        self.listener = None;
    }

    /// Takes connections for ever. Cancel it to stop: connections that were taken go on.
    pub(crate) async fn accept(&self) {
        let Some(listener) = &self.listener else { return };
        loop {
            // ORDER: a place first, a connection second: beyond the cap they wait in the kernel, unaccepted.
            let Ok(place) = Arc::clone(&self.cap).acquire_owned().await else { return };
            match listener.accept().await {
                Ok(accepted) => self.take(accepted, place),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            }
        }
    }

    fn take(&self, accepted: Accepted, place: OwnedSemaphorePermit) {
        let (serving, tls) = (self.serving.clone(), self.tls.clone());
        self.connections.spawn(async move {
            match accepted {
                Accepted::Tcp(stream, peer) => {
                    // An IPv4 client of an IPv6 socket is an IPv4 client.
                    serving.connection(stream, Some(peer.ip().to_canonical()), tls, place).await;
                }
                Accepted::Unix(stream) => serving.connection(stream, None, tls, place).await,
            }
        });
    }

    /// Lets connections end after the request they are at, for up to `patience`. `true` when all have.
    pub(crate) async fn end(&self, patience: Duration) -> bool {
        self.serving.ending.cancel();
        self.connections.close();
        tokio::time::timeout(patience, self.connections.wait()).await.is_ok()
    }

    /// Ends what is left.
    pub(crate) async fn cut(&self) {
        self.serving.cutting.cancel();
        self.connections.close();
        self.connections.wait().await;
    }
}

impl<F: Answers> Serving<F> {
    async fn connection<IO>(
        self,
        io: IO,
        peer: Option<std::net::IpAddr>,
        tls: Option<TlsAcceptor>,
        place: OwnedSemaphorePermit,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match tls {
            None => self.serve(io, Connection::new(peer, false).with_place(place)).await,
            // Boxed: a connection in the clear would carry its room.
            Some(tls) => Box::pin(self.encrypted(io, peer, tls, place)).await,
        }
    }

    async fn encrypted<IO>(
        self,
        io: IO,
        peer: Option<std::net::IpAddr>,
        tls: TlsAcceptor,
        place: OwnedSemaphorePermit,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let handshake = tokio::time::timeout(self.settings.patience.first_byte, tls.accept(io));
        let accepted = tokio::select! {
            accepted = handshake => accepted,
            () = self.ending.cancelled() => return,
        };
        match accepted {
            Ok(Ok(stream)) => {
                let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let connection =
                    Connection::new(peer, true).with_certificate(certificate.map(|shown| shown.to_vec()));
                self.serve(stream, connection.with_place(place)).await;
            }
            Ok(Err(error)) => tracing::debug!(?peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(?peer, "TLS handshake took too long"),
        }
    }

    async fn serve<IO>(self, io: IO, connection: Connection)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = Arc::new(connection);
        let mut wire = Wire::new(io, self.settings.head, self.settings.patience, Arc::clone(&connection));
        let mut answers = self.front.serve(Arc::clone(&connection));
        if !self.serve_usual(&mut wire, &mut answers).await {
            // Boxed: who sends nothing unusual would carry its room.
            Box::pin(self.serve_by_hyper(wire, answers, Arc::clone(&connection))).await;
        }
        // One that has switched to another protocol goes on, and has its place meanwhile.
        if !connection.is_upgraded() {
            connection.leave();
        }
    }

    /// Serves usual requests. `true` when the connection has ended.
    async fn serve_usual<IO>(&self, wire: &mut Wire<IO>, answers: &mut F::Service) -> bool
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut aside = Aside::default();
        let (mut serving, mut cut) =
            (pin!(usual::serve(wire, answers, &self.ending)), pin!(self.cutting.cancelled()));
        poll_fn(|cx| match serving.as_mut().poll(cx) {
            // ORDER: nobody is cut off who has just ended.
            Poll::Ready(is_over) => Poll::Ready(is_over),
            Poll::Pending => match aside.called(cx) {
                Some(mut cx) => cut.as_mut().poll(&mut cx).map(|()| true),
                None => Poll::Pending,
            },
        })
        .await
    }

    async fn serve_by_hyper<IO>(self, wire: Wire<IO>, answers: F::Service, connection: Arc<Connection>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let ending = self.ending.clone();
        let service = service_fn(move |request| answers.call(Received::with(request, &ending)));
        let mut serving = pin!(self.http.serve_connection_with_upgrades(TokioIo::new(wire), service));
        let ended = tokio::select! {
            // ORDER: a request that is there already is begun before hyper hears of the end: a connection of which it knows nothing
            // yet, it closes.
            biased;
            ended = serving.as_mut() => ended,
            () = self.ending.cancelled() => {
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = serving => ended,
                    () = self.cutting.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            // Clients that go away and clients that send nonsense: worth a look when somebody looks.
            tracing::debug!(peer = ?connection.peer, %error, "connection ended");
        }
    }
}

fn http(settings: &DoorSettings) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // The wire has its own, which also bounds the first byte and does not count while an answer is made.
        .header_read_timeout(None)
        // The wire counts fields by itself; hyper's own bound of 100 is fast, and is raised only for a higher one.
        .max_headers(settings.head.fields_max.max(100))
        // A head that the wire let through fits; bodies pass in parts.
        .max_buf_size(settings.head.bytes_max.max(64 * 1024));
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_header_list_size(u32::try_from(settings.head.bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(Some(250))
        .max_pending_accept_reset_streams(Some(20));
    builder
}
