//! The service that is protected: a pooled client that sends each request once, and says what is known when no answer
//! comes.
//!
//! It never sends a request twice and never follows a redirect. "Nothing was sent" is said only where that is certain:
//! no connection was made, or its end was seen before the first byte of the request was written. Everything else is
//! unknown.

mod connect;
pub(crate) mod hop;
mod line;
mod pool;
mod refuse;
mod via;

use std::convert::Infallible;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use onlyonce_core::BoxError;
use onlyonce_http::{Body, Dispatch};

use crate::body::{Entire, Pace, Paced};
use crate::config::{ForwardedMode, Settings, UpstreamHost, UpstreamHttp, UpstreamSettings, UpstreamUrl};
use crate::listen::Connection;
use crate::tls::{self, Offer, Trust};
use crate::traces::{Sent, Traces};

use self::pool::{Answer, Failure, Pool};

pub(crate) use connect::Connector;
pub(crate) use refuse::refuse;
pub(crate) use via::{Pseudonym, forward, name_host};

/// A request as the upstream is to see it, and its span where it is traced. Boxed, because futures that carry it are moved.
type Prepared = (Box<Request<Body>>, Option<Box<Sent>>);

/// The protected service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Upstream {
    shared: Arc<Shared>,
    /// Whose requests are sent.
    client: Option<Arc<Connection>>,
}

struct Shared {
    /// Where only HTTP/1 is spoken, which is the usual case and the fast one.
    pool: Option<Pool>,
    /// For HTTP/2, and for connections that switch protocols.
    client: Client<Connector, Body>,
    url: UpstreamUrl,
    /// What is sent as Host unless the client's is kept.
    host: HeaderValue,
    keeps_host: bool,
    forwarded: ForwardedMode,
    pseudonym: Pseudonym,
    within: Duration,
    pause_max: Duration,
    traces: Option<Arc<Traces>>,
}

impl Upstream {
    pub(crate) fn new(
        settings: &Settings,
        pseudonym: Pseudonym,
        traces: Option<Arc<Traces>>,
    ) -> Result<Self, String> {
        let upstream = &settings.upstream;
        let host =
            HeaderValue::try_from(upstream.url.authority.as_str()).map_err(|error| error.to_string())?;
        let trust = Trust::in_ca(upstream.ca.as_deref());
        let connector = connector(&upstream.url, upstream.http, &trust, upstream.connect_within)?;
        let pool = speaks_only_http1(upstream).then(|| Pool::new(connector.clone(), upstream.idle));
        let shared = Shared {
            pool,
            client: client_over(connector, upstream.http, upstream.idle),
            url: upstream.url.clone(),
            host,
            keeps_host: upstream.host == UpstreamHost::Preserve && speaks_only_http1(upstream),
            forwarded: settings.forwarded,
            pseudonym,
            within: upstream.within,
            pause_max: upstream.pause_max,
            traces,
        };
        Ok(Self { shared: Arc::new(shared), client: None })
    }

    /// The same for the requests of one client.
    pub(crate) fn for_client(&self, client: Arc<Connection>) -> Self {
        Self { client: Some(client), ..self.clone() }
    }

    /// Whether this process has seen the request before.
    pub(crate) fn has_seen(&self, request: &Request<impl Sized>) -> bool {
        self.shared.pseudonym.has_seen(request.headers())
    }

    /// Sends a request to switch to `protocol`. The answer still has its upgrade when it is 101.
    pub(crate) async fn send_upgrade(
        &self,
        request: Request<Body>,
        protocol: HeaderValue,
    ) -> Result<Response<Incoming>, Box<Response<Body>>> {
        let shared = &*self.shared;
        let (request, _sent) = shared.prepare(request, self.client.as_deref(), Some(protocol))?;
        match tokio::time::timeout(shared.within, shared.client.request(*request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if is_broken_off(&error) => Err(Box::new(broken_off())),
            Ok(Err(error)) => Err(Box::new(no_answer(sent_nothing(&error), &error))),
            Err(_) => Err(Box::new(timed_out())),
        }
    }

    /// Whether something stands before every path.
    pub(crate) fn has_prefix(&self) -> bool {
        !self.shared.url.prefix.is_empty()
    }

    /// What a client may see of an answer.
    pub(crate) fn answer(&self, response: Response<Incoming>) -> Response<Body> {
        of_our_hop(self.shared.coming(response))
    }
}

impl Shared {
    /// Sends the request, once.
    async fn dispatch(self: Arc<Self>, request: Box<Request<Body>>) -> Result<Response<Body>, Infallible> {
        let Some(pool) = &self.pool else { return Ok(self.dispatch_by_client(request).await) };
        Ok(match pool.send(request, self.within).await {
            Ok(response) => of_our_hop(response.map(|answer| match answer {
                Answer::Whole(bytes) => Body::from(bytes),
                Answer::Coming(body) => self.paced(body),
            })),
            Err(Failure::TimedOut) => timed_out(),
            Err(failure) if failure.is_of_the_request() => broken_off(),
            Err(failure) => no_answer(failure.sent_nothing(), &failure),
        })
    }

    /// The same within a span.
    async fn dispatch_within(
        self: Arc<Self>,
        request: Box<Request<Body>>,
        sent: Box<Sent>,
    ) -> Result<Response<Body>, Infallible> {
        let Ok(response) = self.dispatch(request).await;
        sent.answered(&response);
        Ok(response)
    }

    // Boxed: it is the other way, and every request of the usual one would carry its room.
    fn dispatch_by_client(
        &self,
        request: Box<Request<Body>>,
    ) -> Pin<Box<dyn Future<Output = Response<Body>> + Send + '_>> {
        Box::pin(async move {
            match tokio::time::timeout(self.within, self.client.request(*request)).await {
                Ok(Ok(response)) => of_our_hop(self.coming(response)),
                Ok(Err(error)) if is_broken_off(&error) => broken_off(),
                Ok(Err(error)) => no_answer(sent_nothing(&error), &error),
                Err(_) => timed_out(),
            }
        })
    }

    /// The request as the upstream is to see it, and the span of its dispatch.
    fn prepare(
        &self,
        request: Request<Body>,
        client: Option<&Connection>,
        upgrade: Option<HeaderValue>,
    ) -> Result<Prepared, Box<Response<Body>>> {
        let sent = self
            .traces
            .as_ref()
            .and_then(|traces| traces.sending(&request, self.url.authority.host(), self.url.port()));
        let (mut parts, body) = request.into_parts();
        let version = parts.version;
        // Who switches protocols goes through the client, which takes whole addresses.
        let is_pooled = self.pool.is_some() && upgrade.is_none();
        hop::strip_request(&mut parts.headers);
        // ORDER: after the strip, so that a client cannot name these in `Connection` and have them removed.
        if let Some(protocol) = upgrade {
            parts.headers.insert(http::header::CONNECTION, HeaderValue::from_static("upgrade"));
            parts.headers.insert(http::header::UPGRADE, protocol);
        }
        if let Some(sent) = &sent {
            sent.tell(&mut parts.headers);
        }
        name_host(&mut parts.headers, &parts.uri);
        if let Some(client) = client {
            forward(&mut parts.headers, self.forwarded, client);
        }
        self.pseudonym.sign(&mut parts.headers, version);
        if !self.keeps_host || !parts.headers.contains_key(HOST) {
            parts.headers.insert(HOST, self.host.clone());
        }
        parts.uri = self
            .target(parts.uri.path_and_query(), is_pooled)
            .map_err(|_| Box::new(refuse(http::StatusCode::BAD_REQUEST, "the path is malformed")))?;
        parts.version = Version::HTTP_11;
        // What only this process is to know stays here.
        parts.extensions.clear();
        Ok((Box::new(Request::from_parts(parts, body)), sent))
    }

    fn target(&self, path: Option<&PathAndQuery>, is_pooled: bool) -> Result<Uri, http::Error> {
        let path = match path {
            Some(path) if self.url.prefix.is_empty() => path.clone(),
            Some(path) => PathAndQuery::try_from(format!("{}{path}", self.url.prefix))?,
            None => PathAndQuery::from_static("/"),
        };
        if is_pooled {
            return Ok(path.into());
        }
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.url.scheme.clone());
        parts.authority = Some(self.url.authority.clone());
        parts.path_and_query = Some(path);
        Ok(Uri::from_parts(parts)?)
    }

    /// An answer that hyper reads.
    fn coming(&self, response: Response<Incoming>) -> Response<Body> {
        let version = response.version();
        response.map(|body| self.paced(Entire::of(body, version)))
    }

    fn paced<B>(&self, body: B) -> Body
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        Body::new(Paced::new(body, Pace { pause_max: self.pause_max, within: None }))
    }
}

impl tower::Service<Request<Body>> for Upstream {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        match self.shared.prepare(request, self.client.as_deref(), None) {
            Ok((request, None)) => Box::pin(Arc::clone(&self.shared).dispatch(request)),
            Ok((request, Some(sent))) => Box::pin(Arc::clone(&self.shared).dispatch_within(request, sent)),
            Err(response) => Box::pin(std::future::ready(Ok(*response))),
        }
    }
}

/// What may be seen of an answer on the side of the client.
fn of_our_hop(mut response: Response<Body>) -> Response<Body> {
    hop::strip_response(response.headers_mut());
    // Each hop has its own version.
    *response.version_mut() = Version::HTTP_11;
    response.extensions_mut().clear();
    response
}

/// HTTP/2 names its authority, which is the upstream's; another Host beside it would be malformed.
fn speaks_only_http1(upstream: &UpstreamSettings) -> bool {
    match upstream.http {
        UpstreamHttp::Auto => !upstream.url.is_https(),
        UpstreamHttp::Http1 => true,
        UpstreamHttp::Http2 => false,
    }
}

/// A client of one service.
pub(crate) fn client(
    url: &UpstreamUrl,
    version: UpstreamHttp,
    trust: &Trust,
    connect_within: Duration,
    idle: Duration,
) -> Result<Client<Connector, Body>, String> {
    Ok(client_over(connector(url, version, trust, connect_within)?, version, idle))
}

fn connector(
    url: &UpstreamUrl,
    version: UpstreamHttp,
    trust: &Trust,
    connect_within: Duration,
) -> Result<Connector, String> {
    let offer = match version {
        UpstreamHttp::Auto => Offer::Both,
        UpstreamHttp::Http1 => Offer::Http1,
        UpstreamHttp::Http2 => Offer::Http2,
    };
    let tls = url.is_https().then(|| tls::client(trust, offer)).transpose();
    let tls = tls.map_err(|error| error.to_string())?;
    Connector::new(url, connect_within, tls)
}

fn client_over(connector: Connector, version: UpstreamHttp, idle: Duration) -> Client<Connector, Body> {
    Client::builder(TokioExecutor::new())
        // A request that is sent again may run twice: whether to is decided by the record, never here.
        .retry_canceled_requests(false)
        .http2_only(version == UpstreamHttp::Http2)
        .pool_idle_timeout(idle)
        // Without a timer the pool never drops what is idle.
        .pool_timer(TokioTimer::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(Duration::from_secs(20))
        .build(connector)
}

/// Whether it is certain that no byte of the request left.
fn sent_nothing(error: &Error) -> bool {
    // hyper says "canceled" only of a request that it hands back unwritten (its `TrySendError` has the message then).
    let is_unwritten = |error: &hyper::Error| error.is_canceled();
    error.is_connect() || error.source().and_then(|source| source.downcast_ref()).is_some_and(is_unwritten)
}

/// Whether it was the request's own body that broke off: the client's doing, and nothing to blame the upstream for.
fn is_broken_off(error: &Error) -> bool {
    error.source().and_then(|source| source.downcast_ref::<hyper::Error>()).is_some_and(hyper::Error::is_user)
}

fn timed_out() -> Response<Body> {
    refuse::dispatch(Dispatch::TimedOut, "no answer began in time")
}

fn broken_off() -> Response<Body> {
    let detail = "the request body ended early, paused for too long or was malformed";
    let mut response = refuse(http::StatusCode::BAD_REQUEST, detail);
    // A body with a key was whole before it was sent: there it is something else, and nobody knows what.
    response.extensions_mut().insert(Dispatch::NoAnswer);
    response
}

fn no_answer(sent_nothing: bool, error: &dyn std::error::Error) -> Response<Body> {
    let dispatch = if sent_nothing { Dispatch::NothingSent } else { Dispatch::NoAnswer };
    let text = with_causes(error);
    // The client is not told: addresses behind the sidecar are none of its business.
    tracing::warn!(error = text, %dispatch, "no answer from the upstream");
    refuse::dispatch(dispatch, "see the sidecar's log")
}

/// Why no answer came, and whether it is certain that no byte of the request left.
pub(crate) fn why_no_answer(error: &Error) -> (bool, String) {
    (sent_nothing(error), with_causes(error))
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
