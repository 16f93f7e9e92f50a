//! Which path leads where, on one screen.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::{get, post};
use onlyonce_http::ProblemKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keyed::{claim, holder, operator, record};
use super::namespace::Namespaces;
use super::openapi;
use super::refusal::Refusal;
use super::remote::{batches, commands, reads};
use super::tokens::Tokens;
use crate::config::ServeSettings;

/// Bytes are counted in parts of this size: a semaphore counts no further than 32 bits.
const ROOM_UNIT: usize = 1024;

/// What every handler shares. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(Arc<Shared>);

struct Shared {
    settings: Arc<ServeSettings>,
    tokens: Tokens,
    namespaces: Arc<Namespaces>,
    room: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(settings: Arc<ServeSettings>, tokens: Tokens, namespaces: Arc<Namespaces>) -> Self {
        let units = settings.buffered_bytes_max.div_ceil(ROOM_UNIT).min(Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(units));
        Self(Arc::new(Shared { settings, tokens, namespaces, room }))
    }

    pub(crate) fn settings(&self) -> &ServeSettings {
        &self.0.settings
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(crate) fn namespaces(&self) -> &Namespaces {
        &self.0.namespaces
    }

    /// Room for `bytes` of a body; none is needed for the first few of it.
    pub(crate) fn room(&self, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Refusal> {
        let units = u32::try_from(bytes / ROOM_UNIT).unwrap_or(u32::MAX);
        if units == 0 {
            return Ok(None);
        }
        Arc::clone(&self.0.room).try_acquire_many_owned(units).map(Some).map_err(|_| {
            Refusal::for_now(ProblemKind::Overloaded, "too many request bodies are held in memory")
        })
    }
}

pub(crate) fn router(api: Api) -> Router {
    Router::new()
        .route("/openapi.json", get(openapi::document))
        .route("/health/live", get(openapi::live))
        .route("/v1/claims", post(claim::claim).get(record::list))
        .route("/v1/claims/batch", post(claim::claim_batch))
        .route("/v1/claims/{id}", get(record::show))
        .route("/v1/claims/{id}/outcome", get(record::outcome))
        .route("/v1/claims/{id}/wait", get(record::wait))
        .route("/v1/claims/{id}/renew", post(holder::renew))
        .route("/v1/claims/{id}/complete", post(holder::complete))
        .route("/v1/claims/{id}/release", post(holder::release))
        .route("/v1/claims/{id}/abandon", post(holder::abandon))
        .route("/v1/claims/{id}/steps/{name}", post(holder::record_step))
        .route("/v1/claims/{id}/resolve", post(operator::resolve))
        .route("/v1/claims/{id}/erase", post(operator::erase))
        .route("/v1/store", get(reads::about))
        .route("/v1/store/claim", post(batches::store_claim))
        .route("/v1/store/renew", post(batches::store_renew))
        .route("/v1/store/complete", post(batches::store_complete))
        .route("/v1/store/release", post(batches::store_release))
        .route("/v1/store/abandon", post(commands::store_abandon))
        .route("/v1/store/step", post(commands::store_step))
        .route("/v1/store/resolve", post(commands::store_resolve))
        .route("/v1/store/erase", post(commands::store_erase))
        .route("/v1/store/sweep", post(commands::store_sweep))
        .route("/v1/store/secret", post(commands::store_secret))
        .route("/v1/store/import", post(commands::store_import))
        .route("/v1/store/lookup", post(reads::store_lookup))
        .route("/v1/store/list", post(reads::store_list))
        .route("/v1/store/stats", post(reads::store_stats))
        .route("/v1/store/wait", post(reads::store_wait))
        .method_not_allowed_fallback(async || {
            Refusal::new(ProblemKind::MethodNotAllowed, "see Allow for the methods that are")
        })
        .fallback(async || Refusal::new(ProblemKind::NotFound, "there is nothing under this path"))
        .with_state(api)
}

/// Leaves a note in the answer which of these paths it was, for its span.
pub(crate) async fn note_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}
