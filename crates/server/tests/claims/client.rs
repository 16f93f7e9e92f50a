//! A client that says what it means, and nothing more.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Longer than anything that works takes on a loaded machine; what hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// One caller.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client<HttpConnector, Full<Bytes>>,
    base: String,
    token: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The name of the problem.
    pub(crate) fn problem(&self) -> String {
        assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16(), "{json}");
        json["type"].as_str().unwrap().strip_prefix("urn:onlyonce:error:").unwrap().to_owned()
    }
}

impl Caller {
    pub(crate) fn new(address: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build_http();
        Self { client, base: format!("http://{address}"), token: None }
    }

    /// The same over HTTP/2.
    pub(crate) fn over_http2(address: &str) -> Self {
        let client = Client::builder(TokioExecutor::new()).http2_only(true).build_http();
        Self { client, base: format!("http://{address}"), token: None }
    }

    /// The same with a token.
    pub(crate) fn with(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::copy_from_slice(body))).unwrap();
        let asking = async {
            let response = self.client.request(request).await.unwrap();
            let (head, body) = response.into_parts();
            Answer {
                status: head.status,
                headers: head.headers,
                body: body.collect().await.unwrap().to_bytes(),
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("no answer to {path}"))
    }

    /// Posts JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string().as_bytes())
            .await
    }

    /// Posts JSON and expects an answer.
    pub(crate) async fn ask(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{path} {body}: {answer:?}");
        answer.json()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], b"").await
    }
}

/// A new owner.
pub(crate) fn owner() -> String {
    onlyonce_core::hex::encode(onlyonce_core::Owner::random().unwrap().as_bytes())
}
