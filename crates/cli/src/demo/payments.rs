//! The payments API of the demo: it takes every request for a new payment, and can be told to be slow, to fail, to refuse
//! and to hang up. It knows nothing of keys: that is the point.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Request, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use onlyonce::clock::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tower_service::Service as _;

use crate::times;

/// The slowest it can be told to be.
const SLOW_MAX: Duration = Duration::from_mins(1);
/// The most payments it remembers; then it refuses more.
const PAYMENTS_MAX: usize = 100_000;
/// What it offers, for tools that read such things: as it is reached through the sidecar.
const OPENAPI: &str = include_str!("openapi.json");

#[derive(Debug, Clone, Serialize)]
struct Payment {
    id: String,
    amount: u64,
    currency: String,
}

/// What a caller asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    amount: u64,
    #[serde(default = "euro")]
    currency: String,
}

fn euro() -> String {
    "EUR".to_owned()
}

/// How it is told to behave: in the query, or in headers of the same names after `Demo-`. Headers do not make another
/// request of it, so a retry can go without them.
#[derive(Debug, Default, Deserialize)]
struct Wishes {
    /// Takes this long to answer, after the payment is made.
    slow: Option<String>,
    /// Answers with this 5xx, and no payment is made.
    fail: Option<u16>,
    /// Answers with this 4xx, and no payment is made.
    refuse: Option<u16>,
    /// Closes the connection without an answer, after the payment is made.
    drop: Option<String>,
}

/// Marks an answer that must not be sent.
#[derive(Debug, Clone, Copy)]
struct HangUp;

type Payments = Arc<Mutex<Vec<Payment>>>;

/// Serves until the process ends.
pub(super) async fn serve(listener: TcpListener) {
    let router = router();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(stream, router.clone()))),
            // Out of descriptors, most likely: some connection has to end first.
            Err(_) => SystemClock::new().sleep(Duration::from_millis(50)).await,
        }
    }
}

fn router() -> Router {
    Router::new()
        .route("/payments", post(pay).get(list))
        .route("/payments/count", get(count))
        .route("/payments/{id}", get(show))
        .route("/openapi.json", get(|| async { ([(header::CONTENT_TYPE, "application/json")], OPENAPI) }))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "there is nothing here") })
        .method_not_allowed_fallback(|| async {
            refused(StatusCode::METHOD_NOT_ALLOWED, "this cannot be done here")
        })
        .with_state(Payments::default())
}

async fn connection(stream: TcpStream, router: Router) {
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let response =
                router.call(request.map(Body::new)).await.unwrap_or_else(|never: Infallible| match never {});
            // An error here makes hyper close the connection and send nothing.
            if response.extensions().get::<HangUp>().is_some() {
                Err("told to hang up")
            } else {
                Ok(response)
            }
        }
    });
    // A connection that breaks is the caller's business.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn pay(
    State(payments): State<Payments>,
    query: Result<Query<Wishes>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response<Body> {
    let (query, body) = match (query, body) {
        (Ok(Query(query)), Ok(body)) => (query, body),
        (Err(wrong), _) => return refused(wrong.status(), &wrong.body_text()),
        (_, Err(wrong)) => return refused(wrong.status(), &wrong.body_text()),
    };
    let wishes = match Wishes::read(query, &headers) {
        Ok(wishes) => wishes,
        Err(wrong) => return refused(StatusCode::BAD_REQUEST, &wrong),
    };
    if let Some(status) = wishes.fail.or(wishes.refuse).and_then(|status| StatusCode::from_u16(status).ok()) {
        return refused(status, "no payment was made, as you wished");
    }
    let order: Order = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(payment) = make(&payments, order) else {
        return refused(StatusCode::INSUFFICIENT_STORAGE, "the demo is full");
    };
    if let Some(slow) = wishes.slow.and_then(|slow| times::parse_duration(&slow).ok()) {
        SystemClock::new().sleep(slow.min(SLOW_MAX)).await;
    }
    let location = format!("/payments/{}", payment.id);
    let mut response = answer(StatusCode::CREATED, &payment);
    if let Ok(location) = location.parse() {
        response.headers_mut().insert(header::LOCATION, location);
    }
    if wishes.drop.is_some() {
        response.extensions_mut().insert(HangUp);
    }
    response
}

fn make(payments: &Payments, order: Order) -> Option<Payment> {
    let mut payments = payments.lock().ok()?;
    if payments.len() >= PAYMENTS_MAX {
        return None;
    }
    let id = format!("pay_{}", payments.len() + 1);
    let payment = Payment { id, amount: order.amount, currency: order.currency };
    payments.push(payment.clone());
    Some(payment)
}

async fn list(State(payments): State<Payments>) -> Response<Body> {
    let all = payments.lock().map(|payments| payments.clone()).unwrap_or_default();
    answer(StatusCode::OK, &all)
}

async fn show(State(payments): State<Payments>, id: Result<Path<String>, PathRejection>) -> Response<Body> {
    let id = match id {
        Ok(Path(id)) => id,
        Err(wrong) => return refused(wrong.status(), &wrong.body_text()),
    };
    let found = payments.lock().ok().and_then(|all| all.iter().find(|payment| payment.id == id).cloned());
    match found {
        Some(payment) => answer(StatusCode::OK, &payment),
        None => refused(StatusCode::NOT_FOUND, "there is no such payment"),
    }
}

async fn count(State(payments): State<Payments>) -> String {
    payments.lock().map_or(0, |payments| payments.len()).to_string()
}

impl Wishes {
    fn read(query: Self, headers: &HeaderMap) -> Result<Self, String> {
        let text =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned);
        let status = |name: &str, allowed: std::ops::Range<u16>, asked: Option<u16>| {
            let asked = match text(name) {
                Some(text) => Some(text.parse().map_err(|_| format!("{name}: {text} is not a status"))?),
                None => asked,
            };
            match asked {
                Some(status) if !allowed.contains(&status) => {
                    Err(format!("{name}: {status} is out of range"))
                }
                asked => Ok(asked),
            }
        };
        let slow = text("demo-slow").or(query.slow);
        if let Some(slow) = &slow {
            times::parse_duration(slow).map_err(|error| format!("demo-slow: {error}"))?;
        }
        Ok(Self {
            slow,
            fail: status("demo-fail", 500..600, query.fail)?,
            refuse: status("demo-refuse", 400..500, query.refuse)?,
            drop: text("demo-drop").or(query.drop),
        })
    }
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    answer(status, &json!({ "error": why }))
}

fn answer(status: StatusCode, body: &impl Serialize) -> Response<Body> {
    (status, axum::Json(body)).into_response()
}
