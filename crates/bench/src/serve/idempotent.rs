//! axum-idempotent around the application, as its own page shows it, over any of its session stores.
//!
//! It stores nothing for a caller without a session, so requests bring one; it takes no claim.

use std::sync::Arc;

use axum::Router;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use ruts::store::SessionStore;
use ruts::store::moka::MokaStore;
use ruts::{CookieOptions, SessionLayer};
use tower_cookies::CookieManagerLayer;

/// The cookie that names the session.
pub const SESSION: &str = "session";
/// More than any run makes: one that was dropped would run again.
const SESSIONS_MAX: u64 = 100_000_000;
/// As long as our own layer keeps an answer.
const KEPT_SECONDS: i64 = 24 * 60 * 60;

/// Around `router`, with what it remembers in `store`.
pub fn around<S: SessionStore>(router: Router, store: S) -> Router {
    let options = IdempotentOptions::default()
        .use_idempotency_key_header(Some("Idempotency-Key"), false)
        .expire_after(KEPT_SECONDS);
    router
        .layer(IdempotentLayer::<S>::new(options))
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(CookieOptions::build().name(SESSION)))
        .layer(CookieManagerLayer::new())
}

/// Its memory store.
pub fn memory() -> MokaStore {
    MokaStore::builder().max_capacity(SESSIONS_MAX).build()
}
