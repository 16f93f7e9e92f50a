//! Our layer around the application, with full semantics, over any store. The only use of the layer's API here.

use std::sync::Arc;

use axum::Router;
use onlyonce_core::{Engine, MemoryLimits, MemoryStore, Store, SystemClock};
use onlyonce_http::{OnceLayer, Rules};

use super::idempotent::SESSION;
use crate::Result;

/// More than any run stores.
const LIMITS: MemoryLimits = MemoryLimits { records_max: 100_000_000, bytes_max: 16 << 30 };

/// Around `router`, with the records in `store`.
pub async fn around(router: Router, store: Arc<dyn Store>) -> Result<Router> {
    let engine = Engine::builder(store).build().await?;
    // The same caller that axum-idempotent sees: the session.
    let rules = Rules { principal: Some(format!("cookie:{SESSION}").parse()?), ..Rules::default() };
    Ok(router.layer(OnceLayer::new(engine, rules)?))
}

/// The memory store.
pub fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), LIMITS))
}
