//! The application that all requests end in: counts, and answers 201 with a small JSON. As plain hyper and in axum.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// With its head about 200 bytes.
pub(super) const ANSWER: &str =
    r#"{"id":"pay_7Qd2xkJ9","amount":1999,"currency":"EUR","status":"succeeded","order":"A-1042"}"#;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Plain hyper.
pub async fn serve(listener: TcpListener) -> Result<()> {
    accept(listener, |stream, runs| async move {
        let service = service_fn(|request| answer(request, &runs));
        // A client that goes away is no error of ours.
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    })
    .await
}

/// Hands each connection to `converse`, on a task of its own, with the count of all runs.
pub(super) async fn accept<F>(
    listener: TcpListener,
    converse: impl Fn(TcpStream, Arc<AtomicU64>) -> F,
) -> Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runs = Arc::new(AtomicU64::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(converse(stream, Arc::clone(&runs)));
    }
}

async fn answer(
    request: Request<Incoming>,
    runs: &AtomicU64,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::GET {
        return Ok(Response::new(Full::from(runs.load(Ordering::Relaxed).to_string())));
    }
    let mut response = Response::new(Full::from(ANSWER));
    if request.into_body().collect().await.is_ok() {
        runs.fetch_add(1, Ordering::Relaxed);
        *response.status_mut() = StatusCode::CREATED;
    } else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    Ok(response)
}

/// In axum.
pub fn router() -> Router {
    async fn pay(State(runs): State<Arc<AtomicU64>>, _body: Bytes) -> impl IntoResponse {
        runs.fetch_add(1, Ordering::Relaxed);
        (StatusCode::CREATED, [(header::CONTENT_TYPE, JSON)], ANSWER)
    }
    async fn count(State(runs): State<Arc<AtomicU64>>) -> String {
        runs.load(Ordering::Relaxed).to_string()
    }
    Router::new().route("/payments", post(pay)).route("/runs", get(count)).with_state(Arc::default())
}
