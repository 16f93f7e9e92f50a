//! Asks `auth_url` before every replay, so that a credential that was revoked since gets no stored answer.
//!
//! The question is a GET with the caller's own head. 2xx lets the replay go out; 4xx is given to the caller instead of
//! it; everything else is "cannot tell", and whoever cannot tell must not hand out what is stored.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::Client;
use onlyonce_http::{Body, ReplayCheck};

use crate::body::Entire;
use crate::config::{ForwardedMode, Settings, UpstreamHttp, UpstreamUrl};
use crate::listen::Connection;
use crate::tls::Trust;
use crate::upstream::{Connector, client, forward, hop, name_host, refuse};

const ORIGINAL_METHOD: HeaderName = HeaderName::from_static("x-original-method");
const ORIGINAL_URI: HeaderName = HeaderName::from_static("x-original-uri");
/// What some services of this kind read in place of these two, and of the client's address: theirs comes from a gateway, and
/// there is none.
const OTHERS_OF_GATEWAYS: [&str; 5] =
    ["x-forwarded-method", "x-forwarded-port", "x-forwarded-uri", "x-original-url", "x-real-ip"];

/// The most of a refusal's body that is passed on.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// Asks one URL.
#[derive(Debug)]
pub(crate) struct AuthUrl {
    client: Client<Connector, Body>,
    uri: Uri,
    host: HeaderValue,
    within: Duration,
    forwarded: ForwardedMode,
}

impl AuthUrl {
    pub(crate) fn new(url: &UpstreamUrl, settings: &Settings) -> Result<Self, String> {
        let upstream = &settings.upstream;
        let trust = Trust::in_ca(upstream.ca.as_deref());
        let path = if url.prefix.is_empty() { "/" } else { &url.prefix };
        let uri =
            Uri::builder().scheme(url.scheme.clone()).authority(url.authority.clone()).path_and_query(path);
        Ok(Self {
            client: client(url, UpstreamHttp::Auto, &trust, upstream.connect_within, upstream.idle)?,
            uri: uri.build().map_err(|error| error.to_string())?,
            host: HeaderValue::try_from(url.authority.as_str()).map_err(|error| error.to_string())?,
            within: upstream.within,
            forwarded: settings.forwarded,
        })
    }

    fn question(&self, head: &Parts) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = head.headers.clone();
        let headers = request.headers_mut();
        hop::strip_request(headers);
        headers.remove(CONTENT_LENGTH);
        headers.remove(CONTENT_TYPE);
        // As the upstream is told: nobody names an address of its own to whoever decides by it.
        name_host(headers, &head.uri);
        if self.forwarded == ForwardedMode::Replace {
            for name in OTHERS_OF_GATEWAYS {
                headers.remove(name);
            }
        }
        if let Some(client) = head.extensions.get::<Arc<Connection>>() {
            forward(headers, self.forwarded, client);
        }
        headers.insert(HOST, self.host.clone());
        if let Ok(method) = HeaderValue::try_from(head.method.as_str()) {
            headers.insert(ORIGINAL_METHOD, method);
        }
        let target = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        if let Ok(target) = HeaderValue::try_from(target) {
            headers.insert(ORIGINAL_URI, target);
        }
        request
    }

    async fn ask(&self, head: &Parts) -> Result<(), Response<Body>> {
        let cannot_tell = |why: &str| {
            tracing::warn!(why, "auth_url gave no usable answer: the replay is refused");
            refuse(StatusCode::SERVICE_UNAVAILABLE, "whether this may be replayed cannot be checked now")
        };
        let asking = async {
            let answer = self.client.request(self.question(head)).await.map_err(|error| error.to_string())?;
            if answer.status().is_success() {
                return Ok(Ok(()));
            }
            let (parts, body) = answer.into_parts();
            if !parts.status.is_client_error() {
                return Err(format!("it answered {}", parts.status));
            }
            let body = Entire::of(body, parts.version);
            let body =
                Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
            let mut refusal = Response::new(Body::from(body.to_bytes()));
            *refusal.status_mut() = parts.status;
            for name in [CONTENT_TYPE, WWW_AUTHENTICATE, RETRY_AFTER] {
                for value in parts.headers.get_all(&name) {
                    refusal.headers_mut().append(name.clone(), value.clone());
                }
            }
            Ok(Err(refusal))
        };
        match tokio::time::timeout(self.within, asking).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(why)) => Err(cannot_tell(&why)),
            Err(_) => Err(cannot_tell("it took too long")),
        }
    }
}

impl ReplayCheck for AuthUrl {
    fn check<'a>(
        &'a self,
        head: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Body>>> + Send + 'a>> {
        Box::pin(self.ask(head))
    }
}
