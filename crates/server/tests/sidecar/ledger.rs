//! A service that remembers what it did by key, can be asked about it, and can be killed at the worst moment.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// When it stops in the middle of a payment, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stall {
    Never,
    BeforeTheEffect,
    AfterTheEffect,
}

/// How it answers questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Truthfully: 200 or 404.
    Truth,
    /// With this status, and with this in `Onlyonce-Outcome`.
    Says(u16, &'static str),
    /// With so many bytes.
    Large(usize),
    Never,
}

/// What survives it.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) address: SocketAddr,
    pub(crate) stall: Mutex<Stall>,
    pub(crate) asked: Mutex<Asked>,
    /// Payments by key; more than one for a key is what must not be.
    payments: Mutex<BTreeMap<String, usize>>,
    /// Every question: its target and its headers.
    pub(crate) questions: Mutex<Vec<(String, HeaderMap)>>,
    /// How many payments have stalled.
    stalled: watch::Sender<usize>,
    serving: Mutex<Option<JoinHandle<()>>>,
}

impl Ledger {
    pub(crate) async fn start() -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ledger = Arc::new(Self {
            address: listener.local_addr().unwrap(),
            stall: Mutex::new(Stall::Never),
            asked: Mutex::new(Asked::Truth),
            payments: Mutex::default(),
            questions: Mutex::default(),
            stalled: watch::Sender::new(0),
            serving: Mutex::default(),
        });
        ledger.serve(listener);
        ledger
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn payments(&self, key: &str) -> usize {
        self.payments.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    /// Resolves when `count` payments have stalled.
    pub(crate) async fn stalled(&self, count: usize) {
        self.stalled.subscribe().wait_for(|stalled| *stalled >= count).await.unwrap();
    }

    /// Ends it as SIGKILL would: the listener and every connection are gone at once.
    pub(crate) async fn kill(&self) {
        let serving = self.serving.lock().unwrap().take().expect("it is running");
        serving.abort();
        let _ = serving.await;
    }

    /// Starts it again where it was.
    pub(crate) async fn restart(self: &Arc<Self>) {
        *self.stall.lock().unwrap() = Stall::Never;
        self.serve(TcpListener::bind(self.address).await.unwrap());
    }

    fn serve(self: &Arc<Self>, listener: TcpListener) {
        let ledger = Arc::clone(self);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let ledger = Arc::clone(&ledger);
                connections.spawn(async move {
                    let service = service_fn(|request| {
                        let ledger = Arc::clone(&ledger);
                        async move { Ok::<_, Infallible>(ledger.answer(request).await) }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        *self.serving.lock().unwrap() = Some(serving);
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let Ok(_) = body.collect().await else { return Response::default() };
        let target = head.uri.path_and_query().unwrap().to_string();
        if head.method == Method::GET {
            self.questions.lock().unwrap().push((target.clone(), head.headers));
            return self.tell(target.rsplit('/').next().unwrap()).await;
        }
        let key = head.headers["idempotency-key"].to_str().unwrap().to_owned();
        self.stall_at(Stall::BeforeTheEffect).await;
        *self.payments.lock().unwrap().entry(key.clone()).or_default() += 1;
        self.stall_at(Stall::AfterTheEffect).await;
        payment(&key)
    }

    async fn stall_at(&self, point: Stall) {
        let wanted = *self.stall.lock().unwrap();
        if wanted == point {
            self.stalled.send_modify(|stalled| *stalled += 1);
            std::future::pending::<()>().await;
        }
    }

    async fn tell(&self, key: &str) -> Response<Full<Bytes>> {
        let asked = *self.asked.lock().unwrap();
        match asked {
            Asked::Truth if self.payments(key) > 0 => payment(key),
            Asked::Truth => status(StatusCode::NOT_FOUND),
            Asked::Says(code, outcome) => {
                let mut response = status(StatusCode::from_u16(code).unwrap());
                if !outcome.is_empty() {
                    response.headers_mut().insert("onlyonce-outcome", outcome.parse().unwrap());
                }
                response
            }
            Asked::Large(bytes) => Response::new(Full::from(vec![b'x'; bytes])),
            Asked::Never => std::future::pending().await,
        }
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.get_mut().unwrap().take() {
            serving.abort();
        }
    }
}

fn payment(key: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(format!("paid {key}")));
    response.headers_mut().insert("location", format!("/pay/{key}").parse().unwrap());
    response
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from("said so"));
    *response.status_mut() = status;
    response
}
