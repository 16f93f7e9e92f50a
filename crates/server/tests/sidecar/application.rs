//! A service behind the sidecar that counts its effects, and that can be told to wait.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// What came, as the application saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) version: http::Version,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: HeaderMap,
}

#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) address: SocketAddr,
    /// POSTs that were carried out.
    pub(crate) effects: AtomicUsize,
    pub(crate) seen: Mutex<Vec<Seen>>,
    /// How many requests for `/slow` have arrived.
    arrived: watch::Sender<usize>,
    /// A request for `/slow` is answered once there is a place here.
    pub(crate) gate: Semaphore,
}

impl Application {
    pub(crate) async fn start() -> Arc<Self> {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(tls: Option<Arc<rustls::ServerConfig>>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let application = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            effects: AtomicUsize::new(0),
            seen: Mutex::default(),
            arrived: watch::Sender::new(0),
            gate: Semaphore::new(0),
        });
        let serving = Arc::clone(&application);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (application, tls) = (Arc::clone(&serving), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => application.serve(stream).await,
                        Some(tls) => {
                            if let Ok(stream) = TlsAcceptor::from(tls).accept(stream).await {
                                application.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        application
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().expect("something came").clone()
    }

    /// Resolves when `count` requests for `/slow` have arrived.
    pub(crate) async fn arrived(&self, count: usize) {
        self.arrived.subscribe().wait_for(|arrived| *arrived >= count).await.unwrap();
    }

    async fn serve(
        self: Arc<Self>,
        io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) {
        let service = service_fn(|request| {
            let application = Arc::clone(&self);
            async move { Ok::<_, Infallible>(application.answer(request).await) }
        });
        // A client that goes away is part of the tests.
        let _ = auto::Builder::new(TokioExecutor::new())
            .serve_connection_with_upgrades(TokioIo::new(io), service)
            .await;
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        if request.headers().contains_key("upgrade") {
            return switch(&mut request);
        }
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return Response::default() };
        let trailers = body.trailers().cloned().unwrap_or_default();
        let body = body.to_bytes();
        let path = head.uri.path().to_owned();
        self.seen.lock().unwrap().push(Seen {
            method: head.method.clone(),
            target: head.uri.path_and_query().unwrap().to_string(),
            version: head.version,
            headers: head.headers,
            trailers,
        });
        if path == "/slow" {
            self.arrived.send_modify(|arrived| *arrived += 1);
            self.gate.acquire().await.unwrap().forget();
        }
        let number = match head.method {
            Method::POST => self.effects.fetch_add(1, Ordering::SeqCst) + 1,
            _ => 0,
        };
        let mut response = Response::new(Full::from(format!("{number}:{}", String::from_utf8_lossy(&body))));
        if path == "/redirect" {
            *response.status_mut() = StatusCode::FOUND;
            response.headers_mut().insert("location", "/elsewhere".parse().unwrap());
        }
        response
    }
}

/// Agrees to whatever protocol is asked for, and sends everything back.
fn switch(request: &mut Request<Incoming>) -> Response<Full<Bytes>> {
    let protocol = request.headers()["upgrade"].clone();
    let switching = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let switched = TokioIo::new(switching.await.unwrap());
        let (mut reader, mut writer) = tokio::io::split(switched);
        let _ = tokio::io::copy(&mut reader, &mut writer).await;
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "upgrade")
        .header("upgrade", protocol)
        .body(Full::default())
        .unwrap()
}
