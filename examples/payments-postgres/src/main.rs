//! A payments API in which a payment and the record that it was made are one transaction: both are there or neither.
//!
//! `DATABASE_URL=postgres://… cargo run -p payments-postgres`, then twice
//! `curl -i localhost:3000/payments -H 'Idempotency-Key: order-7' -d '{"amount": 100}'`: the second answer is the first.
//!
//! There is nothing to recover after a crash, at whatever point: what did not commit never happened, and what did is
//! replayed. `tests/killed.rs` kills this program at every point and counts the payments.

use std::env;
use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use deadpool_postgres::Pool;
use onlyonce_core::fingerprint::{Fingerprint, Rules};
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, CompleteAnswer, Terms, Token};
use onlyonce_core::{Body, Key, Outcome, Owner, Principal, Scope, Secret, Store as _};
use onlyonce_store_postgres::{Options, PostgresStore, migrate};
use serde_json::{Value, json};
use tokio_postgres::NoTls;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS payments
    (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key text NOT NULL, amount bigint NOT NULL)";
const PAY: &str = "INSERT INTO payments (key, amount) VALUES ($1, $2) RETURNING id";

struct Payments {
    pool: Pool,
    store: PostgresStore,
    secret: Secret,
    terms: Arc<Terms>,
}

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "a program says where it listens")]
async fn main() -> Result<(), Failure> {
    let url = env::var("DATABASE_URL").map_err(|_| "DATABASE_URL is not set")?;
    let options = Options::from_url(&url)?;
    migrate(&options).await?;
    let store = PostgresStore::open(options).await?;
    // The first process makes the secret of the keyed hashes; every later one gets the same.
    let secret = store.secret(&Secret::random()?).await?;
    let pool = Pool::builder(deadpool_postgres::Manager::new(url.parse()?, NoTls)).max_size(16).build()?;
    pool.get().await?.batch_execute(TABLE).await?;
    let payments = Payments { pool, store, secret, terms: Arc::new(Terms::default()) };

    let router = Router::new().route("/payments", post(pay)).with_state(Arc::new(payments));
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

async fn pay(State(payments): State<Arc<Payments>>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(Key::parse);
    let amount = serde_json::from_slice::<Value>(&body).ok().and_then(|body| body["amount"].as_i64());
    let (Some(Ok(key)), Some(amount)) = (key, amount) else {
        return (StatusCode::BAD_REQUEST, "an Idempotency-Key and an amount are needed\n").into_response();
    };
    match payments.pay_once(key, amount, &body).await {
        Ok(response) => response,
        // Nothing was committed, or nobody knows: the same request again finds out.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "try again with the same key\n").into_response(),
    }
}

impl Payments {
    /// One transaction: the claim, the payment, the answer.
    async fn pay_once(&self, key: Key, amount: i64, body: &[u8]) -> Result<Response, Failure> {
        let text = key.as_str().to_owned();
        // A real service takes the principal from its authentication: two customers may use the same key.
        let id = Scope::new("payments", Principal::Shared).into_key(key).record_id(&self.secret);
        let fingerprint = Fingerprint::builder(&self.secret, Rules::standard()).field("body", body).finish();
        let claim = Claim { id, fingerprint, owner: Owner::random()?, terms: Arc::clone(&self.terms) };

        let mut client = self.pool.get().await?;
        let mut transaction = client.transaction().await?;
        let grant = match self.store.claim_in(&mut *transaction, &claim).await? {
            ClaimAnswer::Granted(grant) => grant,
            ClaimAnswer::Replay(replay) => return Ok(answer(&replay.outcome, true)),
            ClaimAnswer::Mismatch { .. } => return Ok(StatusCode::UNPROCESSABLE_ENTITY.into_response()),
            // Without in-flight records of other doors there is nothing else.
            _ => return Ok(StatusCode::CONFLICT.into_response()),
        };
        let pay = transaction.prepare_cached(PAY).await?;
        let payment: i64 = transaction.query_one(&pay, &[&text, &amount]).await?.get(0);
        let outcome = Outcome::kept(1, json!({"payment": payment, "amount": amount}).to_string());
        let token = Token { id, owner: claim.owner, fence: grant.fence };
        let complete = Complete { token, outcome: outcome.clone(), retention: None };
        if self.store.complete_in(&mut *transaction, &complete).await? != CompleteAnswer::Completed {
            return Ok(StatusCode::CONFLICT.into_response());
        }
        // ORDER: committed before the first byte of the answer leaves.
        transaction.commit().await?;
        Ok(answer(&outcome, false))
    }
}

fn answer(outcome: &Outcome, replayed: bool) -> Response {
    let body = if let Body::Kept(bytes) = outcome.body() { bytes.clone() } else { Bytes::new() };
    let mut response = (StatusCode::CREATED, body).into_response();
    let mark = HeaderValue::from_static(if replayed { "true" } else { "false" });
    response.headers_mut().insert("idempotency-replayed", mark);
    response
}
