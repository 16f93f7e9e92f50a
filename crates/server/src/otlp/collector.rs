//! A collector, spoken to in OTLP over HTTP with our own client. What it answers decides whether the same is sent again.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Collected, Limited};
use hyper_util::client::legacy::Client;
use onlyonce_http::Body;

use crate::config::{CollectorSettings, ConfigError, UpstreamHttp};
use crate::tls::Trust;
use crate::upstream::{Connector, client, why_no_answer};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How long one export may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(4);
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// One collector.
pub(super) struct Collector {
    client: Client<Connector, Body>,
    uri: Uri,
    headers: HeaderMap,
}

/// Why something was not taken.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// Whether the same may be taken later.
    pub(super) may_pass: bool,
}

impl Collector {
    /// It need not be there yet.
    pub(super) fn new(settings: &CollectorSettings) -> Result<Self, ConfigError> {
        Self::reach(settings).map_err(|problem| ConfigError::field(&settings.field, problem))
    }

    fn reach(settings: &CollectorSettings) -> Result<Self, String> {
        let url = &settings.url;
        let client =
            client(url, UpstreamHttp::Auto, &Trust::in_ca(settings.ca.as_deref()), CONNECT_WITHIN, IDLE)?;
        let uri = Uri::builder().scheme(url.scheme.clone()).authority(url.authority.clone());
        let uri = uri.path_and_query(url.prefix.as_str()).build().map_err(|error| error.to_string())?;
        let mut headers = settings.headers.clone();
        let host = HeaderValue::try_from(url.authority.as_str()).map_err(|error| error.to_string())?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("onlyonce/", env!("CARGO_PKG_VERSION"));
        headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
        Ok(Self { client, uri, headers })
    }

    /// Sends a message that was encoded for it: what it answered to one that it took.
    pub(super) async fn post(&self, message: Bytes) -> Result<Bytes, Trouble> {
        match tokio::time::timeout(ANSWER_WITHIN, self.exchange(message)).await {
            Ok(answer) => answer,
            Err(_) => Err(Trouble { why: "no answer in time".to_owned(), may_pass: true }),
        }
    }

    async fn exchange(&self, message: Bytes) -> Result<Bytes, Trouble> {
        let mut request = Request::new(Body::from(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        request.headers_mut().clone_from(&self.headers);
        let response = self.client.request(request).await.map_err(|error| {
            let (_, why) = why_no_answer(&error);
            Trouble { why, may_pass: true }
        })?;
        let (head, body) = response.into_parts();
        if !head.status.is_success() {
            return Err(Trouble {
                why: format!("it answered {}", head.status),
                may_pass: may_pass(head.status),
            });
        }
        // Read to its end, so that the connection can be used again. What cannot be read was taken all the same.
        let answer = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        Ok(answer.map(Collected::to_bytes).unwrap_or_default())
    }
}

/// The answers that OTLP says are for now and not for good.
const fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}
