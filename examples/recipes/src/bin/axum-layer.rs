//! An axum service with the layer: `POST /payments` happens once for each caller and key, without a sidecar.
//!
//! `cargo run -p recipes --bin axum-layer`, then twice
//! `curl -i localhost:3000/payments -H 'Authorization: Bearer me' -H 'Idempotency-Key: order-7' -d 100`.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use onlyonce_core::Engine;
use onlyonce_http::{OnceLayer, Rules};
use onlyonce_store_embedded::{EmbeddedStore, Options};

static PAYMENTS: AtomicU64 = AtomicU64::new(0);

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says where it listens")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = env::var_os("FOLDER").unwrap_or_else(|| "onlyonce-data".into());
    let store = Arc::new(EmbeddedStore::open(folder.as_ref(), Options::default())?);
    let engine = Engine::builder(store).build().await?;
    // Keys belong to whoever shows the credential: two callers with the same key never meet.
    let rules = Rules { required: Some(true), retention: Some("72h".parse()?), ..Rules::default() };
    let once = OnceLayer::new(engine.clone(), rules)?;

    let router = Router::new()
        .route("/payments", post(pay))
        .layer(once)
        // What is added after a layer is not behind it; reading needs no protection.
        .route("/payments", get(count));
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, router).with_graceful_shutdown(stop).await?;
    // Executions are detached from their connections: give them time to be recorded.
    engine.drain(Duration::from_secs(30)).await;
    Ok(())
}

/// The effect. It knows nothing of keys.
async fn pay(amount: String) -> impl IntoResponse {
    let number = PAYMENTS.fetch_add(1, Ordering::SeqCst) + 1;
    (StatusCode::CREATED, format!("payment {number} of {amount}\n"))
}

async fn count() -> String {
    PAYMENTS.load(Ordering::SeqCst).to_string()
}
