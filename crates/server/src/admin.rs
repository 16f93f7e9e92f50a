//! The admin side: health and figures, at an address of its own, so that what callers can reach says nothing of it.
//!
//! | path | for | token |
//! |---|---|---|
//! | `/health/live` | whoever restarts processes: it runs | no |
//! | `/health/ready` | whoever sends it requests: it takes them, and its store answers | no |
//! | `/health/guarantee` | whoever relies on it: the promise in force | yes |
//! | `/metrics` | Prometheus | yes |

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use onlyonce_core::{Engine, RecordId};
use onlyonce_http::Body;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bearer::bearer;
use crate::body::OnItsWay;
use crate::clock::Stopwatch;
use crate::config::AdminSettings;
use crate::listen::{Answers, Connection, Door, ListenAddress};
use crate::metrics::Metrics;
use crate::store::Tiers;

/// How long the store may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);
/// How old the count of records may be: on some stores it is not for nothing.
const COUNT_AGAIN_AFTER: Duration = Duration::from_secs(15);

/// How long those who are being answered have when the process ends.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How often what was observed is put into its buckets, so that it takes no room when nobody reads it.
const TIDY_UP_EVERY: Duration = Duration::from_secs(5);

/// Where the promise in force is known.
pub(crate) type PromiseInForce = Box<dyn Fn() -> Value + Send + Sync>;

/// What is shown, from where it is known.
pub(crate) struct Admin {
    metrics: Arc<Metrics>,
    engine: Engine,
    tiers: Tiers,
    promise: PromiseInForce,
    token: Option<String>,
    /// Cancelled once no more work is taken.
    stopping: CancellationToken,
    counted: Mutex<Option<Stopwatch>>,
    /// What else is to be counted before figures are shown.
    also: Option<Also>,
}

/// Counts something into the figures.
pub(crate) type Also = Box<dyn Fn(Arc<Metrics>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The admin side, listening.
pub(crate) struct AdminDoor {
    door: Door<Arc<Admin>>,
    metrics: Arc<Metrics>,
    stopping: CancellationToken,
}

impl AdminDoor {
    pub(crate) async fn open(
        settings: &AdminSettings,
        metrics: Arc<Metrics>,
        (engine, tiers): (Engine, Tiers),
        promise: PromiseInForce,
        also: Option<Also>,
    ) -> io::Result<Self> {
        let stopping = CancellationToken::new();
        let admin = Admin {
            metrics: Arc::clone(&metrics),
            engine,
            tiers,
            promise,
            token: settings.token.clone(),
            stopping: stopping.clone(),
            counted: Mutex::new(None),
            also,
        };
        let door = Door::open(settings.door.clone(), None, Arc::new(admin)).await?;
        Ok(Self { door, metrics, stopping })
    }

    pub(crate) const fn address(&self) -> &ListenAddress {
        self.door.address()
    }

    /// Answers until `ended` resolves.
    async fn run_until(mut self, ended: impl Future<Output = ()>) {
        let tidying = async {
            let mut every = tokio::time::interval(TIDY_UP_EVERY);
            loop {
                every.tick().await;
                self.metrics.tidy_up();
            }
        };
        tokio::select! {
            () = self.door.accept() => {}
            () = tidying => {}
            () = ended => {}
        }
        self.door.close();
        self.door.end(LAST_ANSWERS_WITHIN).await;
        self.door.cut().await;
    }
}

/// The admin side, answering on a task of its own. Nothing happens where there is none.
pub(crate) struct Showing {
    stopping: CancellationToken,
    ended: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Showing {
    pub(crate) fn begin(admin: Option<AdminDoor>) -> Self {
        let ended = CancellationToken::new();
        let stopping = admin.as_ref().map_or_else(CancellationToken::new, |admin| admin.stopping.clone());
        let task = admin.map(|admin| tokio::spawn(admin.run_until(ended.clone().cancelled_owned())));
        Self { stopping, ended, task }
    }

    /// Once it is cancelled, it says that no work is taken.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.stopping.clone()
    }

    pub(crate) async fn end(self) {
        self.ended.cancel();
        if let Some(task) = self.task {
            // It only answers: a panic there was logged, and is nobody's loss here.
            let _ = task.await;
        }
    }
}

impl Answers for Arc<Admin> {
    type Service = AdminService;

    fn serve(&self, connection: Arc<Connection>) -> AdminService {
        AdminService { admin: Self::clone(self), connection }
    }
}

/// The admin side, for one connection.
pub(crate) struct AdminService {
    admin: Arc<Admin>,
    connection: Arc<Connection>,
}

impl hyper::service::Service<Request<Incoming>> for AdminService {
    type Response = Response<OnItsWay<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (admin, in_hand) = (Arc::clone(&self.admin), self.connection.request());
        Box::pin(async move {
            let response = admin.answer(&request).await;
            Ok(response.map(|body| OnItsWay::new(body, in_hand)))
        })
    }
}

impl Admin {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Body> {
        let path = request.uri().path();
        if !matches!(path, "/health/live" | "/health/ready" | "/health/guarantee" | "/metrics") {
            let all = "there are /health/live, /health/ready, /health/guarantee and /metrics";
            return problem(StatusCode::NOT_FOUND, all);
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refusal = problem(StatusCode::METHOD_NOT_ALLOWED, "this is only read");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        match path {
            "/health/live" => shown(StatusCode::OK, &json!({ "status": "live" })),
            "/health/ready" => self.ready().await,
            _ if !self.may_ask(request) => {
                let mut refusal =
                    problem(StatusCode::UNAUTHORIZED, "admin.token must be shown as a bearer token");
                refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                refusal
            }
            "/metrics" => self.figures().await,
            _ => shown(StatusCode::OK, &(self.promise)()),
        }
    }

    fn may_ask<B>(&self, request: &Request<B>) -> bool {
        let Some(token) = &self.token else { return true };
        bearer(request.headers()) == Some(blake3::hash(token.as_bytes()))
    }

    async fn ready(&self) -> Response<Body> {
        if self.stopping.is_cancelled() {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "stopping: no new work is taken");
        }
        // Any id will do: a store that can say that there is no such record can be asked for others.
        let id = RecordId::from_bytes([0; 32]);
        match tokio::time::timeout(READY_WITHIN, self.engine.store().lookup(&id)).await {
            Ok(Ok(_)) => shown(StatusCode::OK, &json!({ "status": "ready" })),
            Ok(Err(error)) => {
                problem(StatusCode::SERVICE_UNAVAILABLE, &format!("the store fails: {}", error.code()))
            }
            Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer"),
        }
    }

    async fn figures(&self) -> Response<Body> {
        self.metrics.at_work(self.engine.running(), self.engine.waiting());
        self.tiers.count(&self.metrics);
        self.count_records().await;
        if let Some(also) = &self.also {
            also(Arc::clone(&self.metrics)).await;
        }
        let mut response = Response::new(Body::from(self.metrics.render()));
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }

    /// Figures that cannot be had are left as they were: their age can be seen from the failures beside them.
    async fn count_records(&self) {
        let mut counted = self.counted.lock().await;
        if counted.is_some_and(|watch| watch.elapsed() < COUNT_AGAIN_AFTER) {
            return;
        }
        if let Ok(Ok(stats)) = tokio::time::timeout(READY_WITHIN, self.engine.count()).await {
            self.metrics.stored(&stats);
        }
        *counted = Some(Stopwatch::start());
    }
}

fn shown(status: StatusCode, value: &Value) -> Response<Body> {
    json_of(status, value, HeaderValue::from_static("application/json"))
}

fn problem(status: StatusCode, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let value = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    json_of(status, &value, HeaderValue::from_static("application/problem+json"))
}

fn json_of(status: StatusCode, value: &Value, content_type: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
