//! A receiver of webhooks: first the signature is verified, then the provider's own id is the key. A delivery that comes again
//! is answered as the first one was, and does nothing.
//!
//! Signed as Standard Webhooks says (`webhook-id`, `webhook-timestamp`, `webhook-signature: v1,BASE64`).
//! `WEBHOOK_SECRET=… cargo run -p recipes --bin webhook`

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use onlyonce_core::Engine;
use onlyonce_http::{OnceLayer, Rules};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use sha2::Sha256;

const BODY_BYTES_MAX: usize = 1 << 20;
static PAID: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says where it listens")]
async fn main() -> Result<(), Box<dyn Error>> {
    let secret: Arc<str> = env::var("WEBHOOK_SECRET").map_err(|_| "WEBHOOK_SECRET is not set")?.into();
    let folder = env::var_os("FOLDER").unwrap_or_else(|| "onlyonce-data".into());
    let store = Arc::new(EmbeddedStore::open(folder.as_ref(), Options::default())?);
    let engine = Engine::builder(store).build().await?;
    let rules = Rules {
        // The provider makes the id once for each event and keeps it over all deliveries.
        key: Some("header:webhook-id".parse()?),
        required: Some(true),
        // There is one caller: the provider. It was verified before this is asked.
        principal: Some("shared".parse()?),
        // Longer than the provider delivers again.
        retention: Some("168h".parse()?),
        ..Rules::default()
    };
    let router = Router::new()
        .route("/webhooks", post(receive))
        .layer(OnceLayer::new(engine, rules)?)
        // ORDER: the last layer is the first to see a request. Verified, then deduplicated: otherwise anybody could use
        // up the id of an event that is still to come.
        .layer(middleware::from_fn_with_state(secret, verify))
        .route("/paid", get(|| async { PAID.load(Ordering::SeqCst).to_string() }));
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

/// Lets through what the provider has signed. A real receiver also refuses a timestamp that is minutes old.
async fn verify(State(secret): State<Arc<str>>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if is_signed(&secret, &head.headers, &body) {
        next.run(Request::from_parts(head, Body::from(body))).await
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

fn is_signed(secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
    let field = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let (Some(id), Some(at), Some(signature)) =
        (field("webhook-id"), field("webhook-timestamp"), field("webhook-signature"))
    else {
        return false;
    };
    let Some(Ok(signature)) = signature.strip_prefix("v1,").map(|text| STANDARD.decode(text)) else {
        return false;
    };
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(body);
    // In constant time.
    mac.verify_slice(&signature).is_ok()
}

/// The effect.
async fn receive(event: String) -> String {
    let number = PAID.fetch_add(1, Ordering::SeqCst) + 1;
    format!("event {number} of {} bytes\n", event.len())
}
