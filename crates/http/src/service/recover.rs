//! Asking the application what became of a request, for `unknown = "query"`: a safe GET on behalf of the caller who
//! asks again, with the caller's own credentials and key.
//!
//! 2xx: it happened, and this is its answer. 404 and 410: it did not happen. Everything else, and no answer in time, is
//! a doubt. `Onlyonce-Outcome` says it more clearly than a status.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::PathAndQuery;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body as HttpBody;
use onlyonce_core::{BoxError, Ending, Found, Question, RecoveryHook};
use tower_service::Service;

use super::ending::{self, Made};
use crate::body::Body;
use crate::classify::{Steer, Steering};
use crate::fingerprint::Asked;
use crate::header::{ONLYONCE_ATTEMPT, ONLYONCE_FENCE, ONLYONCE_OUTCOME};
use crate::route::Route;

/// What belongs to the request in question and not to a question about it: its body, and its conditions.
const NOT_ASKED_WITH: [HeaderName; 14] = [
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::EXPECT,
    header::RANGE,
    header::IF_RANGE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Asks the service that the request is for.
pub(super) struct SafeGet<S> {
    /// A service need not be shared between threads; a question is asked from whichever has the time.
    inner: Mutex<S>,
    route: Arc<Route>,
    asked: Arc<Asked>,
}

impl<S> SafeGet<S> {
    pub(super) fn new(inner: S, route: &Arc<Route>, asked: &Arc<Asked>) -> Self {
        Self { inner: Mutex::new(inner), route: Arc::clone(route), asked: Arc::clone(asked) }
    }

    /// The question, if there is a place to ask.
    fn question(&self, question: &Question) -> Option<Request<Body>> {
        let target = self.route.query.as_ref()?.about(question.key.key())?;
        let mut head = self.asked.head()?;
        head.method = Method::GET;
        head.uri = with_target(head.uri, target)?;
        for name in NOT_ASKED_WITH {
            head.headers.remove(name);
        }
        head.headers.insert(ONLYONCE_FENCE, question.fence.get().into());
        head.headers.insert(ONLYONCE_ATTEMPT, question.attempt.into());
        Some(Request::from_parts(head, Body::empty()))
    }
}

impl<S> fmt::Debug for SafeGet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SafeGet").field("route", &self.route).finish_non_exhaustive()
    }
}

impl<S, R> RecoveryHook for SafeGet<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError> + Send + 'static,
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    fn find_out<'a>(
        &'a self,
        question: &'a Question,
    ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>> {
        Box::pin(async move {
            let (Some(query), Some(request)) = (&self.route.query, self.question(question)) else {
                return Ok(Found::Unknown);
            };
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let asking = async {
                poll_fn(|cx| inner.poll_ready(cx)).await.map_err(Into::into)?;
                let response = inner.call(request).await.map_err(Into::into)?;
                Ok(found(&self.route, response).await)
            };
            tokio::select! {
                biased;
                found = asking => found,
                () = async { self.route.engine.clock().sleep(query.within).await } => {
                    Err("query_url gave no answer within query_within".into())
                }
            }
        })
    }
}

/// The same scheme and authority, another path.
fn with_target(uri: Uri, target: PathAndQuery) -> Option<Uri> {
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(target);
    Uri::from_parts(parts).ok()
}

/// What an answer says about the request in question.
async fn found<R>(route: &Arc<Route>, response: Response<R>) -> Found
where
    R: HttpBody<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut head, body) = response.into_parts();
    let steering = Steering::take(&mut head.headers);
    let said = match (steering.outcome, steering.is_odd) {
        (Some(steer), _) => steer,
        (None, true) => Steer::Unknown,
        (None, false) => by_status(head.status),
    };
    let kept = match said {
        Steer::Failed => return Found::NotExecuted,
        Steer::Unknown => {
            tracing::warn!(status = head.status.as_u16(), "query_url does not tell what happened");
            return Found::Unknown;
        }
        Steer::Committed => "committed",
        Steer::Discard => "discard",
    };
    say(&mut head.headers, kept);
    // From here on it is an answer like any other: bounded, complete or nothing, and without what is not replayed.
    // In which trace it was made, nobody knows.
    match ending::of_answer(route, Response::from_parts(head, body), None).ended().await {
        // It can be asked again, and may be whole then.
        Ending::Complete { value, .. } if matches!(*value, Made::BrokenOff { .. }) => Found::Unknown,
        Ending::Complete { outcome, .. } => Found::Executed(outcome),
        Ending::Release { .. } | Ending::Abandon { .. } => Found::Unknown,
    }
}

fn by_status(status: StatusCode) -> Steer {
    match status {
        status if status.is_success() => Steer::Committed,
        StatusCode::NOT_FOUND | StatusCode::GONE => Steer::Failed,
        _ => Steer::Unknown,
    }
}

fn say(headers: &mut HeaderMap, outcome: &'static str) {
    headers.insert(ONLYONCE_OUTCOME, HeaderValue::from_static(outcome));
}
