//! Which path leads where, and what every answer of the admin side carries.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Query;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY};
use http::header::{X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use onlyonce_http::{Body, ProblemKind};
use serde_json::{Value, json};

use super::{Admin, events, guard};
use crate::body::{Pace, Paced};
use crate::dashboard::{self, Asset};
use crate::listen::Received;
use crate::operator::{Asked, Target};
use crate::refusal::Refusal;

/// The largest command: an outcome as large as any that is kept by default, in base64, and more.
const COMMAND_BYTES_MAX: usize = 4 << 20;
/// How long a command may take to arrive.
const PACE: Pace = Pace { pause_max: Duration::from_secs(10), within: Some(Duration::from_mins(1)) };

/// Nothing from elsewhere, and nothing inside a page of somebody else.
const CONTENT_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

/// What a path is for.
enum Way {
    Live,
    Ready,
    Guarantee,
    Metrics,
    Asset(&'static Asset),
    Overview,
    Events,
    Records(Target),
}

impl Way {
    fn find(path: &str) -> Result<Self, Refusal> {
        Ok(match path {
            "/health/live" => Self::Live,
            "/health/ready" => Self::Ready,
            "/health/guarantee" => Self::Guarantee,
            "/metrics" => Self::Metrics,
            "/api/overview" => Self::Overview,
            "/api/events" => Self::Events,
            _ if path == "/" || path.starts_with("/assets/") => {
                Self::Asset(dashboard::asset(path).ok_or_else(nothing_here)?)
            }
            _ => Self::Records(Target::read(path).ok_or_else(nothing_here)??),
        })
    }

    /// Whether it is answered to whoever can reach it.
    const fn is_open(&self) -> bool {
        matches!(self, Self::Live | Self::Ready | Self::Asset(..))
    }
}

fn nothing_here() -> Refusal {
    let all = "there are /health/live, /health/ready, /health/guarantee, /metrics, the dashboard at / and the API below /api";
    Refusal::new(ProblemKind::NotFound, all)
}

/// Answers one request.
pub(super) async fn answer(admin: &Arc<Admin>, request: Request<Received>, from: String) -> Response<Body> {
    let mut response = match routed(admin, request, from).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_answer(),
    };
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CONTENT_SECURITY_POLICY, CONTENT_POLICY);
    response
}

async fn routed(
    admin: &Arc<Admin>,
    request: Request<Received>,
    from: String,
) -> Result<Response<Body>, Refusal> {
    let way = Way::find(request.uri().path())?;
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let method = if let Way::Records(target) = &way { target.method() } else { Method::GET };
    if is_read != (method == Method::GET) || (!is_read && *request.method() != method) {
        return Ok(not_allowed(&method));
    }
    if !way.is_open() {
        guard::may_ask(admin.token.as_deref(), &request)?;
    }
    if matches!(way, Way::Overview | Way::Events | Way::Records(_)) {
        guard::is_for_us(admin.token.as_deref(), &request)?;
        guard::is_of_this_site(&request)?;
    }
    match way {
        Way::Live => Ok(shown(StatusCode::OK, &json!({ "status": "live" }))),
        Way::Ready => admin.ready().await,
        Way::Guarantee => Ok(shown(StatusCode::OK, &(admin.ground.promise)())),
        Way::Metrics => Ok(admin.figures().await),
        Way::Asset(asset) => Ok(asset.answer(request.headers())),
        Way::Overview => Ok(shown(StatusCode::OK, &admin.overview().await)),
        Way::Events => events::stream(admin, &request),
        Way::Records(target) => records(admin, target, request, from).await,
    }
}

async fn records(
    admin: &Arc<Admin>,
    target: Target,
    request: Request<Received>,
    from: String,
) -> Result<Response<Body>, Refusal> {
    let query = Query::<Vec<(String, String)>>::try_from_uri(request.uri())
        .map_err(|error| Refusal::invalid(error.body_text()))?;
    let is_command = target.method() == Method::POST;
    let places = if is_command { &admin.commands } else { &admin.questions };
    if is_command {
        guard::may_command(&request)?;
    }
    // Held until it has ended, also when its sender has gone: each holds a body or a page of records in memory.
    let full = || Refusal::for_now(ProblemKind::Overloaded, "too many requests of operators run at a time");
    let place = Arc::clone(places).try_acquire_owned().map_err(|_| full())?;
    let body = if is_command { whole(request).await? } else { Bytes::new() };
    let asked = Asked::read(target, query.0, &body, from)?;
    let operator = admin.operator.clone();
    // On a task of its own: a sender who hangs up cancels no command, and leaves none without its line in the audit.
    let answering = admin.tasks.spawn(async move {
        let answer = operator.answer(asked).await;
        drop(place);
        answer
    });
    match answering.await {
        Ok(answer) => Ok(shown(StatusCode::OK, &answer?)),
        Err(error) => {
            tracing::error!(%error, "an operator's request failed in this process");
            Err(Refusal::for_now(ProblemKind::StoreUnavailable, "the request failed in this process"))
        }
    }
}

/// The whole body of a command.
async fn whole(request: Request<Received>) -> Result<Bytes, Refusal> {
    let body = Limited::new(Paced::new(request.into_body(), PACE), COMMAND_BYTES_MAX);
    match body.collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let detail = format!("a command has at most {COMMAND_BYTES_MAX} bytes");
            Err(Refusal::new(ProblemKind::BodyTooLarge, detail))
        }
        Err(error) => Err(Refusal::new(ProblemKind::BodyUnreadable, error.to_string())),
    }
}

fn not_allowed(method: &Method) -> Response<Body> {
    let detail =
        if *method == Method::GET { "this is only read" } else { "this is a command: send it by POST" };
    let mut refusal = Refusal::new(ProblemKind::MethodNotAllowed, detail).into_answer();
    let allowed = if *method == Method::GET { "GET, HEAD" } else { "POST" };
    refusal.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    refusal
}

pub(super) fn shown(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{value}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
