//! Whether work is taken, and figures for Prometheus.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use onlyonce_core::RecordId;
use onlyonce_http::{Body, ProblemKind};
use serde_json::json;

use super::Admin;
use super::router::shown;
use crate::refusal::Refusal;

/// How long the store may take to show that it is there.
const READY_WITHIN: Duration = Duration::from_secs(2);

impl Admin {
    pub(super) async fn ready(&self) -> Result<Response<Body>, Refusal> {
        let unready = |detail: String| Refusal::new(ProblemKind::StoreUnavailable, detail);
        if self.stopping.is_cancelled() {
            return Err(unready("stopping: no new work is taken".to_owned()));
        }
        // Any id will do: a store that can say that there is no such record can be asked for others.
        let id = RecordId::from_bytes([0; 32]);
        for place in self.operator.places() {
            match tokio::time::timeout(READY_WITHIN, place.store.lookup(&id)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(unready(format!("the store fails: {}", error.code()))),
                Err(_) => return Err(unready("the store does not answer".to_owned())),
            }
        }
        Ok(shown(StatusCode::OK, &json!({ "status": "ready" })))
    }

    pub(super) async fn figures(&self) -> Response<Body> {
        self.census.take().await;
        let mut response = Response::new(Body::from(self.census.metrics().render()));
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, text);
        response
    }
}
