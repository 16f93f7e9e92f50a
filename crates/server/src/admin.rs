//! The admin side: health, figures, records and the dashboard, at an address of its own, so that what callers can reach says
//! nothing of it.
//!
//! | path | for | token |
//! |---|---|---|
//! | `/health/live` | whoever restarts processes: it runs | no |
//! | `/health/ready` | whoever sends it requests: it takes them, and its store answers | no |
//! | `/`, `/assets/…` | the dashboard, which says nothing by itself | no |
//! | `/health/guarantee` | whoever relies on it: the promise in force | yes |
//! | `/metrics` | Prometheus | yes |
//! | `/api/…` | operators: records, events, the overview, the audit | yes |

mod client;
mod events;
mod guard;
mod health;
mod overview;
mod router;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use onlyonce_core::Timestamp;
use onlyonce_core::sweeper::Sweeping;
use onlyonce_http::Body;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::client::{AdminClient, CallError, EventStream, ServerEvent};
use crate::body::OnItsWay;
use crate::census::Census;
use crate::config::AdminSettings;
use crate::listen::{Answers, Connection, Door, ListenAddress, Received};
use crate::operator::{Audit, Operator, Place, now};

/// How long those who are being answered have when the process ends.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(1);
/// How long commands have whose sender is gone by then.
const LAST_COMMANDS_WITHIN: Duration = Duration::from_secs(30);
/// How many commands are read and run at a time: each holds its body in memory.
const COMMANDS_MAX: usize = 8;
/// How many questions about records are answered at a time: each holds a page of them in memory.
const QUESTIONS_MAX: usize = 16;
/// How many may look on at a time: each keeps a connection.
const LOOKING_ON_MAX: usize = 32;

/// Where the promise in force is known.
pub(crate) type PromiseInForce = Box<dyn Fn() -> Value + Send + Sync>;
/// Where the configuration in force is known, without its secrets.
pub(crate) type ConfigurationInForce = Box<dyn Fn() -> String + Send + Sync>;

/// What is shown, from where it is known.
pub(crate) struct Ground {
    /// `proxy`, `consume` or `serve`.
    pub(crate) command: &'static str,
    /// Where records are.
    pub(crate) places: Vec<Place>,
    pub(crate) promise: PromiseInForce,
    pub(crate) configuration: ConfigurationInForce,
    /// What was odd about the configuration.
    pub(crate) warnings: Vec<String>,
    /// How the sweeping of each store goes.
    pub(crate) sweeping: Vec<Sweeping>,
}

/// The admin side of a process.
pub(crate) struct Admin {
    ground: Ground,
    operator: Operator,
    census: Arc<Census>,
    token: Option<String>,
    started_at: Timestamp,
    /// Cancelled once no more work is taken.
    stopping: CancellationToken,
    /// Cancelled once nobody is answered any more.
    closing: CancellationToken,
    commands: Arc<Semaphore>,
    questions: Arc<Semaphore>,
    looking_on: Arc<Semaphore>,
    /// Commands go on when whoever sent them is gone.
    tasks: TaskTracker,
}

/// The admin side, listening.
pub(crate) struct AdminDoor {
    door: Door<Arc<Admin>>,
    admin: Arc<Admin>,
}

impl AdminDoor {
    pub(crate) fn open(
        settings: &AdminSettings,
        tls: Option<Arc<rustls::ServerConfig>>,
        census: Arc<Census>,
        mut ground: Ground,
    ) -> io::Result<Self> {
        let audit = settings.audit.clone().map(Audit::new);
        let places = std::mem::take(&mut ground.places);
        let admin = Arc::new(Admin {
            ground,
            operator: Operator::new(places, audit, Some(census.metrics().events())),
            census,
            token: settings.token.clone(),
            started_at: now(),
            stopping: CancellationToken::new(),
            closing: CancellationToken::new(),
            commands: Arc::new(Semaphore::new(COMMANDS_MAX)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            looking_on: Arc::new(Semaphore::new(LOOKING_ON_MAX)),
            tasks: TaskTracker::new(),
        });
        let door = Door::open(settings.door.clone(), tls, Arc::clone(&admin))?;
        Ok(Self { door, admin })
    }

    pub(crate) const fn address(&self) -> &ListenAddress {
        self.door.address()
    }

    /// Answers until `ended` resolves.
    async fn run_until(mut self, ended: impl Future<Output = ()>) {
        tokio::select! {
            () = self.door.accept() => {}
            () = self.admin.census.metrics().keep_tidy() => {}
            () = ended => {}
        }
        self.door.close();
        self.admin.closing.cancel();
        self.door.end(LAST_ANSWERS_WITHIN).await;
        self.door.cut().await;
        // ORDER: commands whose sender is gone go on to their end before the store is closed.
        self.admin.tasks.close();
        let _ = tokio::time::timeout(LAST_COMMANDS_WITHIN, self.admin.tasks.wait()).await;
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
        let stopping = admin.as_ref().map_or_else(CancellationToken::new, |door| door.admin.stopping.clone());
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

impl hyper::service::Service<Request<Received>> for AdminService {
    type Response = Response<OnItsWay<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Received>) -> Self::Future {
        let (admin, in_hand) = (Arc::clone(&self.admin), self.connection.request());
        let from = self.connection.peer.map_or_else(|| "unix socket".to_owned(), |peer| peer.to_string());
        Box::pin(async move {
            let response = router::answer(&admin, request, from).await;
            Ok(response.map(|body| OnItsWay::new(body, in_hand)))
        })
    }
}
