//! One connection to the service, kept alive.

use std::net::SocketAddr;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::Result;

/// A caller on a connection of its own.
#[derive(Debug)]
pub(crate) struct Caller {
    address: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
}

impl Caller {
    /// Connects.
    pub(crate) async fn to(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // It ends with the sender, or with an error that the sender tells.
        tokio::spawn(connection);
        Ok(Self { address, sender })
    }

    /// Sends `body` with POST and answers the status and what came back.
    pub(crate) async fn post(&mut self, path: &str, body: String) -> Result<(u16, Value)> {
        self.send(Method::POST, path, Bytes::from(body)).await
    }

    /// Asks with GET.
    pub(crate) async fn get(&mut self, path: &str) -> Result<(u16, Value)> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<(u16, Value)> {
        let request = Request::builder().method(method).uri(path).header("host", self.address.to_string());
        let request = request.header("content-type", "application/json").body(Full::new(body))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }
}

/// An error unless an answer has this status and says `answer`.
pub(crate) fn expect((status, body): (u16, Value), answer: &str) -> Result<Value> {
    if status == 200 && body["answer"] == answer {
        Ok(body)
    } else {
        Err(format!("{answer} expected, not {status}: {body}").into())
    }
}
