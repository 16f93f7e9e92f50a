//! Asks the admin side of a running process, for `onlyonce records`.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use onlyonce_http::Body;
use serde_json::Value;

use crate::config::{ConfigError, UpstreamHttp, UpstreamUrl};
use crate::operator::Asked;
use crate::tls::Trust;
use crate::upstream::{Connector, client, why_no_answer};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Longer than the process gives its store.
const ANSWER_WITHIN: Duration = Duration::from_mins(5);
const IDLE: Duration = Duration::from_secs(4);
/// The largest answer: a record with the largest body there is, as text that escapes every byte.
const ANSWER_BYTES_MAX: usize = 512 << 20;

/// The admin side of a process elsewhere.
pub struct AdminClient {
    client: Client<Connector, Body>,
    url: UpstreamUrl,
    authorization: Option<HeaderValue>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum CallError {
    /// The process cannot be reached, or broke off.
    Unreachable(String),
    /// It refused, and said why (RFC 9457).
    Refused(Value),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => f.write_str(why),
            Self::Refused(problem) => f.write_str(problem["detail"].as_str().unwrap_or("it refused")),
        }
    }
}

impl std::error::Error for CallError {}

impl AdminClient {
    /// The process whose admin side is at `url`: `http://HOST:PORT`, `https://…` or `unix:PATH`. `trust` is for `https`.
    pub fn new(url: &str, token: Option<&str>, trust: &Trust) -> Result<Self, ConfigError> {
        let url = UpstreamUrl::parse("--admin", url)?;
        if !url.is_https() && *trust != Trust::default() {
            let problem = "certificates are for https://: without it nothing would be verified";
            return Err(ConfigError::field("--admin", problem));
        }
        let client = client(&url, UpstreamHttp::Http1, trust, CONNECT_WITHIN, IDLE)
            .map_err(|problem| ConfigError::field("--admin", problem))?;
        let authorization = token.map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                ConfigError::field("--token", "has bytes that no Authorization field can carry")
            })?;
            value.set_sensitive(true);
            Ok(value)
        });
        Ok(Self { client, url, authorization: authorization.transpose()? })
    }

    /// Asks, and waits for the answer.
    pub async fn ask(&self, asked: &Asked) -> Result<Value, CallError> {
        let (method, path, body) = asked.request();
        let asking = async {
            let response = self.send(method, &path, body, None).await?;
            let broken = |error: onlyonce_core::BoxError| {
                CallError::Unreachable(format!("the answer broke off: {error}"))
            };
            let status = response.status();
            let bytes =
                Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(broken)?;
            read(status.is_success(), &bytes.to_bytes())
        };
        match tokio::time::timeout(ANSWER_WITHIN, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(CallError::Unreachable(format!("no answer within {ANSWER_WITHIN:?}"))),
        }
    }

    /// Begins to listen to events: after the one that `last` names, or from now on unless `backlog` is asked for.
    pub async fn events(&self, backlog: bool, last: Option<&str>) -> Result<EventStream, CallError> {
        let path = if backlog || last.is_some() { "/api/events" } else { "/api/events?from=now" };
        let response = self.send(Method::GET, path, None, last).await?;
        if response.status().is_success() {
            return Ok(EventStream { body: response.into_body(), text: Vec::new() });
        }
        let limited = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = limited.map_err(|error| CallError::Unreachable(error.to_string()))?.to_bytes();
        Err(read(false, &bytes).err().unwrap_or(CallError::Refused(Value::Null)))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        last: Option<&str>,
    ) -> Result<Response<Incoming>, CallError> {
        let target = format!("{}://{}{}{path}", self.url.scheme, self.url.authority, self.url.prefix);
        let wrong = |error: &dyn fmt::Display| CallError::Unreachable(format!("{}: {error}", self.url));
        let uri: Uri = target.parse().map_err(|error: http::uri::InvalidUri| wrong(&error))?;
        let mut builder = Request::builder().method(method).uri(uri);
        if let Some(authorization) = &self.authorization {
            builder = builder.header(AUTHORIZATION, authorization);
        }
        if let Some(last) = last {
            builder = builder.header("last-event-id", last);
        }
        if body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = builder.body(body).map_err(|error| wrong(&error))?;
        self.client.request(request).await.map_err(|error| wrong(&why_no_answer(&error).1))
    }
}

fn read(is_success: bool, bytes: &[u8]) -> Result<Value, CallError> {
    match serde_json::from_slice(bytes) {
        Ok(value) if is_success => Ok(value),
        Ok(problem) => Err(CallError::Refused(problem)),
        Err(_) => Err(CallError::Unreachable("what answers there is no admin side of onlyonce".to_owned())),
    }
}

/// Events as they come.
pub struct EventStream {
    body: Incoming,
    text: Vec<u8>,
}

/// One of them.
#[derive(Debug, Clone)]
pub struct ServerEvent {
    /// Where to go on from after it.
    pub id: Option<String>,
    /// Its name: `lost` when some were missed.
    pub name: String,
    /// What it says.
    pub value: Value,
}

/// The longest event: each is a few hundred bytes.
const EVENT_BYTES_MAX: usize = 64 * 1024;

impl EventStream {
    /// The next event; `None` when the process ends the stream.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>, CallError> {
        loop {
            if let Some(end) = self.text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..end + 2).collect();
                match parsed(&event) {
                    Some(event) => return Ok(Some(event)),
                    None => continue,
                }
            }
            if self.text.len() > EVENT_BYTES_MAX {
                return Err(CallError::Unreachable("what comes there are no events".to_owned()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(part) = frame.into_data() {
                        let part: Bytes = part;
                        self.text.extend_from_slice(&part);
                    }
                }
                Some(Err(error)) => {
                    return Err(CallError::Unreachable(format!("the events broke off: {error}")));
                }
            }
        }
    }
}

fn parsed(event: &[u8]) -> Option<ServerEvent> {
    let text = std::str::from_utf8(event).ok()?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let value = serde_json::from_str(field("data")?).ok()?;
    Some(ServerEvent { id: field("id").map(str::to_owned), name: field("event")?.to_owned(), value })
}
