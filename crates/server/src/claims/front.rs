//! Between hyper and the router: each request on a task of its own, so that a caller who hangs up cancels no command.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse as _;
use http::{Request, Response};
use onlyonce_http::{Body, ProblemKind};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::refusal::Refusal;
use super::router::{self, Api};
use crate::body::{OnItsWay, Pace, Paced};
use crate::config::ServeSettings;
use crate::listen::{Answers, Connection, Received};
use crate::traces::Traces;

/// Cancelled when the caller of a request is gone: what only waits for them may stop.
#[derive(Debug, Clone)]
pub(crate) struct Gone(pub(crate) CancellationToken);

/// Everything behind hyper. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClaimsFront(Arc<Shared>);

struct Shared {
    router: Router,
    pace: Pace,
    tasks: TaskTracker,
    traces: Option<Arc<Traces>>,
}

impl ClaimsFront {
    pub(crate) fn new(api: Api, settings: &ServeSettings, traces: Option<Arc<Traces>>) -> Self {
        let pace = Pace { pause_max: settings.body_pause_max, within: Some(settings.body_within) };
        let mut router = router::router(api);
        if traces.is_some() {
            router = router.layer(axum::middleware::from_fn(router::note_route));
        }
        Self(Arc::new(Shared { router, pace, tasks: TaskTracker::new(), traces }))
    }

    /// Waits for commands that still run.
    pub(crate) async fn finish(&self, patience: Duration) {
        self.0.tasks.close();
        let _ = tokio::time::timeout(patience, self.0.tasks.wait()).await;
    }

    async fn handle(
        self,
        request: Request<Received>,
        connection: Arc<Connection>,
    ) -> Result<Response<OnItsWay<Body>>, Infallible> {
        let in_hand = connection.request();
        let gone = CancellationToken::new();
        let _gone_when_dropped = gone.clone().drop_guard();
        let mut request = request.map(|body| axum::body::Body::new(Paced::new(body, self.0.pace)));
        request.extensions_mut().insert(Gone(gone));
        let asked = self.0.traces.as_ref().map(|traces| traces.asked(&mut request, None));
        let answering = self.0.tasks.spawn(self.0.router.clone().call(request));
        let response = match answering.await {
            Ok(Ok(response)) => response,
            Err(error) => {
                tracing::error!(%error, "a request failed in this service");
                Refusal::for_now(ProblemKind::StoreUnavailable, "the request failed in this service")
                    .into_response()
            }
        };
        if let Some(asked) = asked {
            asked.served(&response);
        }
        Ok(response.map(|body| OnItsWay::new(Body::new(body), in_hand)))
    }
}

impl Answers for ClaimsFront {
    type Service = ClaimsService;

    fn serve(&self, connection: Arc<Connection>) -> ClaimsService {
        ClaimsService { front: self.clone(), connection }
    }
}

/// The front, for one connection.
#[derive(Clone)]
pub(crate) struct ClaimsService {
    front: ClaimsFront,
    connection: Arc<Connection>,
}

impl hyper::service::Service<Request<Received>> for ClaimsService {
    type Response = Response<OnItsWay<Body>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Received>) -> Self::Future {
        Box::pin(self.front.clone().handle(request, Arc::clone(&self.connection)))
    }
}
