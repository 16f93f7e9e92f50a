//! A caller: one request on one connection, and everything that came back.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use onlyonce_core::BoxError;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A request to make.
#[derive(Debug, Clone)]
pub struct Ask {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Ask {
    /// A POST of a small JSON body by a caller with a credential, without a key.
    pub fn post(target: &str) -> Self {
        let ask = Self {
            method: Method::POST,
            target: target.into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
        };
        ask.user("alice").json("{\"amount\":100}")
    }

    /// With another method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = method.parse().unwrap();
        self
    }

    /// With this written form of a key.
    #[must_use]
    pub fn key(self, written: impl AsRef<[u8]>) -> Self {
        self.set("idempotency-key", written)
    }

    /// With the credential of this caller.
    #[must_use]
    pub fn user(self, name: &str) -> Self {
        self.set("authorization", format!("Bearer {name}"))
    }

    /// Without this header.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// With this header, instead of an earlier one of its name.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.remove(name);
        self.add(name, value)
    }

    /// With this header too.
    #[must_use]
    pub fn add(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let value = HeaderValue::from_bytes(value.as_ref()).unwrap();
        self.headers.append(name.parse::<HeaderName>().unwrap(), value);
        self
    }

    /// With this JSON body.
    #[must_use]
    pub fn json(self, text: &str) -> Self {
        self.set("content-type", "application/json").body(Bytes::copy_from_slice(text.as_bytes()))
    }

    /// With this body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Got {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as far as it came.
    pub body: Bytes,
    /// Whether it came to its end.
    pub is_whole: bool,
}

impl Got {
    /// Which execution of the application this is the answer of.
    #[track_caller]
    pub fn effect(&self) -> u64 {
        self.document()["effect"].as_u64().unwrap_or_else(|| panic!("no effect in {self:?}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn document(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The name of the problem type; empty when it is no problem.
    pub fn problem(&self) -> String {
        let document = serde_json::from_slice::<serde_json::Value>(&self.body).unwrap_or_default();
        let full = document["type"].as_str().unwrap_or_default();
        full.rsplit([':', '/']).next().unwrap_or_default().to_owned()
    }

    /// One header as text; empty when there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap_or("not ASCII"))
    }

    /// Whether it is marked as a replay.
    pub fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == "true"
    }
}

/// An answer of which only the head has come.
pub(super) struct Begun {
    head: http::response::Parts,
    body: Incoming,
    _connection: Connection,
}

impl Begun {
    pub(super) async fn all(mut self) -> Got {
        let (bytes, is_whole) = self.read(usize::MAX).await;
        Got { status: self.head.status.as_u16(), headers: self.head.headers, body: bytes, is_whole }
    }

    /// Reads about so many bytes and hangs up.
    pub(super) async fn up_to(mut self, bytes: usize) -> Got {
        let (bytes, is_whole) = self.read(bytes).await;
        Got { status: self.head.status.as_u16(), headers: self.head.headers, body: bytes, is_whole }
    }

    async fn read(&mut self, up_to: usize) -> (Bytes, bool) {
        let mut bytes = Vec::new();
        while bytes.len() < up_to {
            match self.body.frame().await {
                None => return (bytes.into(), true),
                Some(Err(_)) => return (bytes.into(), false),
                Some(Ok(frame)) => bytes.extend(frame.into_data().unwrap_or_default()),
            }
        }
        (bytes.into(), false)
    }
}

/// Makes the request on a connection of its own. Dropping the future, or what it returns, hangs up.
pub(super) async fn send(address: SocketAddr, ask: Ask) -> Result<Begun, BoxError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = Connection(tokio::spawn(async move {
        let _ = connection.await;
    }));
    let mut request = Request::new(Full::new(ask.body));
    *request.method_mut() = ask.method;
    *request.uri_mut() = ask.target.parse()?;
    *request.headers_mut() = ask.headers;
    if !request.headers().contains_key("host") {
        request.headers_mut().insert("host", HeaderValue::from_str(&address.to_string())?);
    }
    let (head, body) = sender.send_request(request).await?.into_parts();
    Ok(Begun { head, body, _connection: connection })
}

struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}
