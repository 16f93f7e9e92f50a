//! The claims API of `onlyonce serve` as a store, so that an engine runs over the service unchanged.
//!
//! Every call is one round trip, bounded in time and in bytes. Nothing is repeated here: the engine repeats, and every
//! command may be repeated as it is.

mod answers;
mod builder;
mod failure;
mod items;
mod store;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use onlyonce_core::store::Durability;
use onlyonce_core::{Clock, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

pub use builder::ClaimsClientBuilder;
use failure::Trouble;

/// The most bytes of one answer that are taken into memory.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// A store that lives behind `onlyonce serve`. Cheap to clone.
///
/// Grants are the caller's, not the service's: an engine over it needs `Policy::remote_owners()`, so that they keep
/// their lease when the service restarts.
///
/// ```no_run
/// use std::sync::Arc;
/// use onlyonce_client::ClaimsClient;
/// use onlyonce_core::{Engine, Policy};
///
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// let store = ClaimsClient::builder("http://127.0.0.1:9191").token("secret").connect().await?;
/// let engine = Engine::builder(Arc::new(store)).policy(Policy::default().remote_owners()).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ClaimsClient {
    service: Arc<Service>,
}

#[derive(Debug, Clone)]
struct Service {
    http: reqwest::Client,
    /// Where connections live: the client may be used from other runtimes, and from threads that block theirs.
    home: Handle,
    /// Without the slash at its end.
    url: String,
    token: Option<http::HeaderValue>,
    within: Duration,
    clock: Arc<dyn Clock>,
    durability: Durability,
    request_bytes_max: usize,
    wait_max: Duration,
}

impl ClaimsClient {
    /// A client of the service at `url`: `http://host:port` or, with the feature `tls`, `https://host:port`.
    pub fn builder(url: impl Into<String>) -> ClaimsClientBuilder {
        ClaimsClientBuilder::new(url.into())
    }
}

impl Service {
    /// Sends a command and reads its answer, within the usual time.
    async fn ask<A: DeserializeOwned>(
        self: &Arc<Self>,
        path: &'static str,
        command: &impl Serialize,
        doing: &'static str,
    ) -> Result<A, StoreError> {
        let body = wire::to_json(command);
        self.call(Method::POST, path, Some(body), self.within)
            .await
            .map_err(|trouble| trouble.into_error(doing))
    }

    async fn call<A: DeserializeOwned>(
        self: &Arc<Self>,
        method: Method,
        path: &'static str,
        body: Option<Vec<u8>>,
        within: Duration,
    ) -> Result<A, Trouble> {
        let service = Arc::clone(self);
        // A caller that goes away leaves no long poll behind. The service ends a command that it has begun.
        let exchange = self.home.spawn(async move { service.exchange(method, path, body, within).await });
        let (status, body) =
            AbortOnDropHandle::new(exchange).await.map_err(|stopped| Trouble::stopped(&stopped))??;
        if status != StatusCode::OK {
            return Err(Trouble::of_answer(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| Trouble::unreadable(&error))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
        within: Duration,
    ) -> Result<(StatusCode, Bytes), Trouble> {
        let mut request = self.http.request(method, format!("{}{path}", self.url));
        if let Some(token) = &self.token {
            request = request.header(http::header::AUTHORIZATION, token);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        tokio::select! {
            biased;
            answered = async { read(request.send().await.map_err(|error| Trouble::of_send(&error))?).await } => {
                answered
            }
            () = self.clock.sleep(within) => Err(Trouble::timed_out()),
        }
    }
}

async fn read(mut response: reqwest::Response) -> Result<(StatusCode, Bytes), Trouble> {
    let status = response.status();
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Trouble::cut_off(&error))? {
        if body.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err(Trouble::too_long());
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body.freeze()))
}
