//! The way of one protected request: prepare it, ask the engine, and make an answer of the reply.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body as HttpBody;
use onlyonce_core::{
    BoxError, EngineError, EngineErrorKind, Execution, Ran, RecordId, RecoveryHook, Reply, Request as Call,
    StoreErrorKind,
};
use tower_service::Service;

use super::AskedKey;
use super::ending;
use super::prepare::{Prepared, prepare, taken};
use super::recover::SafeGet;
use super::reply::{Replier, conflict_problem, store_problem};
use super::shadow;
use crate::body::Body;
use crate::dispatch::Dispatch;
use crate::fingerprint::Asked;
use crate::header::{ONLYONCE_ATTEMPT, ONLYONCE_FENCE, ONLYONCE_UNPROTECTED, strip_steering};
use crate::layer::Shared;
use crate::observe::{Event, How, Would};
use crate::problem::Problem;
use crate::route::Route;
use crate::rules::OnStoreFailure;
use crate::trace::TraceContext;

/// A protected request on its way, and the service it is for.
pub(super) struct Protect<S> {
    replier: Replier,
    inner: S,
}

impl<S, R> Protect<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    pub(super) fn new(shared: Arc<Shared>, route: Arc<Route>, inner: S, headers: &HeaderMap) -> Self {
        let style = route.style(headers.get(CONTENT_TYPE).is_some_and(ending::is_grpc));
        Self { replier: Replier { shared, route, style }, inner }
    }

    pub(super) async fn answer(
        self,
        key: AskedKey,
        head: Box<Parts>,
        body: Body,
    ) -> Result<Response<Body>, S::Error> {
        let Self { replier, inner } = self;
        let route = &replier.route;
        let asking = route.query.is_some().then(|| inner.clone());
        let hook = move |asked: &_| -> Option<Arc<dyn RecoveryHook>> {
            Some(Arc::new(SafeGet::new(asking?, route, asked)))
        };
        match prepare(&replier.shared, route, key, head, body, hook).await {
            Prepared::Ask(call, asked) => ask(replier, inner, call, asked).await,
            // Boxed: what asks the engine would carry its room.
            Prepared::Pass(request) => Box::pin(pass(inner, *request)).await,
            Prepared::Refuse(problem, Some(request)) if replier.route.shadow => {
                replier.observe(Event::Shadow { would: Would::Refuse(problem.kind()), id: None });
                Box::pin(pass(inner, *request)).await
            }
            Prepared::Refuse(problem, _) => Ok(replier.refuse(*problem, None)),
        }
    }
}

/// Asks the engine, which runs the work on a task of its own: a caller who hangs up changes nothing.
async fn ask<S, R>(
    replier: Replier,
    mut inner: S,
    call: Arc<Call>,
    asked: Arc<Asked>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let id = call.id();
    let spare = replier.route.may_run_unprotected().then(|| inner.clone());
    let (route, taking) = (Arc::clone(&replier.route), Arc::clone(&asked));
    let extends = replier.shared.extends;
    let work = move |execution: Execution| {
        // At once, and not in the future: it would be larger by all of the request.
        let dispatched = taken(&taking).map(|request| {
            let trace = request.extensions().get::<TraceContext>().copied();
            (inner.call(granted(request, execution, extends)), trace)
        });
        async move {
            // The body takes up room until its answer is here, also when nobody waits for that any more.
            let _held = taking;
            let Some((answering, trace)) = dispatched else {
                return ending::without_answer(Dispatch::NoAnswer);
            };
            match answering.await {
                Ok(response) => ending::of_answer(&route, response, trace).ended().await,
                Err(error) => {
                    let error: BoxError = error.into();
                    tracing::debug!(%error, "the application gave no answer");
                    ending::without_answer(Dispatch::of(&*error))
                }
            }
        }
    };
    let engine = &replier.route.engine;
    let (performed, answer) = if replier.route.shadow {
        // Boxed: where rules are enforced, every request would carry its room.
        Box::pin(shadow::perform(engine, call, work)).await
    } else {
        (engine.perform(call, work).await, None)
    };
    let would = match performed {
        Ok(Reply::Ran(ran)) => {
            return Ok(replier.ran(id, Ran { value: answer.unwrap_or(ran.value), ..ran }));
        }
        Ok(Reply::Replay(replay)) if !replier.route.shadow => {
            if let Some(check) = &replier.shared.replay_check
                && let Some(refused) = Box::pin(replier.withheld(&**check, id, replay.fence, &asked)).await
            {
                return Ok(refused);
            }
            return Ok(replier.replayed(id, &replay));
        }
        Ok(Reply::Replay(_)) => Refused::Replay,
        Ok(Reply::Conflict(conflict)) => Refused::Problem(conflict_problem(id, conflict)),
        Err(error) => Refused::Store(error),
    };
    match answer {
        Some(answer) => Ok(replier.shadowed(id, would.would(), *answer)),
        None => not_run(&replier, id, would, &asked, spare).await,
    }
}

/// What becomes of a call whose work was not run for it.
async fn not_run<S, R>(
    replier: &Replier,
    id: RecordId,
    would: Refused,
    asked: &Asked,
    spare: Option<S>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let passing = match (spare, taken(asked)) {
        (Some(spare), Some(request)) if would.may_pass(&replier.route) => {
            Some(Box::pin(run_unprotected(replier, spare, id, would.would(), request)))
        }
        _ => None,
    };
    match passing {
        Some(passing) => passing.await,
        None => Ok(replier.refuse(would.into_problem(id), Some(id))),
    }
}

/// Why the work was not run for a call.
enum Refused {
    /// Only in shadow mode: a replay that was not given.
    Replay,
    Problem(Problem),
    Store(EngineError),
}

impl Refused {
    /// Whether the rules let the request run all the same.
    fn may_pass(&self, route: &Route) -> bool {
        let is_away = |error: &EngineError| match error.kind() {
            // A record that cannot be read may hold the answer, and one of another attempt will: neither runs again.
            EngineErrorKind::Store(kind) => {
                !error.is_taken()
                    && !matches!(
                        kind,
                        StoreErrorKind::Corrupt | StoreErrorKind::Unsupported | StoreErrorKind::Misuse
                    )
            }
            _ => false,
        };
        match self {
            Self::Replay | Self::Problem(_) => route.shadow,
            Self::Store(error) => {
                route.shadow || (route.on_store_failure == OnStoreFailure::Open && is_away(error))
            }
        }
    }

    fn would(&self) -> Would {
        match self {
            Self::Replay => Would::Replay,
            Self::Problem(problem) => Would::Refuse(problem.kind()),
            Self::Store(_) => Would::Refuse(crate::ProblemKind::StoreUnavailable),
        }
    }

    fn into_problem(self, id: RecordId) -> Problem {
        match self {
            Self::Problem(problem) => problem,
            Self::Store(error) => store_problem(id, &error),
            // A replay is only withheld in shadow mode, where the request is always at hand.
            Self::Replay => Problem::new(crate::ProblemKind::InFlight, "Ask again with the same key."),
        }
    }
}

/// Runs a request without protection, because its route says so, and says so.
async fn run_unprotected<S, R>(
    replier: &Replier,
    inner: S,
    id: RecordId,
    would: Would,
    request: Request<Body>,
) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    if replier.route.shadow {
        replier.observe(Event::Shadow { would, id: Some(id) });
        let mut response = pass(inner, request).await?;
        replier.note(&mut response, How::Shadow, Some(id), None);
        return Ok(response);
    }
    replier.observe(Event::Unprotected { id });
    let mut response = pass(inner, request).await?;
    response.headers_mut().insert(ONLYONCE_UNPROTECTED, HeaderValue::from_static("true"));
    replier.note(&mut response, How::Unprotected, Some(id), None);
    Ok(response)
}

/// Lets a request through.
async fn pass<S, R>(mut inner: S, request: Request<Body>) -> Result<Response<Body>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>>,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    // Only the service that was first called is known to be ready; asking it again does no harm.
    poll_fn(|cx| inner.poll_ready(cx)).await?;
    let mut response = inner.call(request).await?;
    strip_steering(response.headers_mut());
    Ok(response.map(Body::new))
}

/// Tells the application under which grant it runs; in the extensions too, where somebody may look there.
fn granted(mut request: Request<Body>, execution: Execution, extends: bool) -> Request<Body> {
    let headers = request.headers_mut();
    headers.insert(ONLYONCE_FENCE, execution.fence().get().into());
    // Nearly always the first: to write a number takes memory of its own.
    let attempt = match execution.attempt() {
        1 => HeaderValue::from_static("1"),
        attempt => attempt.into(),
    };
    headers.insert(ONLYONCE_ATTEMPT, attempt);
    if extends {
        request.extensions_mut().insert(execution);
    }
    request
}
