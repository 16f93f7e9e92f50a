//! Bytes to the endpoint and back, on a connection of its own for each request. Sends exactly what it is given, also
//! what no client library would send; reads strictly, and never more than a bound.

mod reading;
mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::answer::Answer;
use super::target::Target;

pub(crate) use tls::Trust;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No connection could be made.
    Unreachable(String),
    /// The connection ended before a whole answer had come.
    Closed,
    /// Nothing, or not all of it, came in time.
    TimedOut(Duration),
    /// What came is not HTTP/1.1.
    Malformed(&'static str),
    /// The answer has more bytes than are read.
    TooLarge,
    /// As many requests as were announced have been sent.
    Spent,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Closed => write!(f, "the connection was closed without a whole answer"),
            Self::TimedOut(limit) => write!(f, "no answer within {limit:?}"),
            Self::Malformed(what) => write!(f, "the answer is not HTTP/1.1: {what}"),
            Self::TooLarge => write!(f, "the answer has more than {} bytes", reading::ANSWER_BYTES_MAX),
            Self::Spent => write!(f, "all requests that were announced have been sent"),
        }
    }
}

/// An answer, or why there is none.
pub(crate) type Reply = Result<Answer, Silence>;

/// What came back: the bytes, and what they say.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) bytes: Vec<u8>,
    pub(crate) reply: Reply,
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// An open connection that has carried nothing yet, or a part of one request.
pub(crate) struct Connection {
    stream: Box<dyn Duplex>,
    limit: Duration,
}

/// How to reach one endpoint.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) target: Target,
    addresses: Vec<SocketAddr>,
    trust: Option<Trust>,
    limit: Duration,
}

impl Wire {
    /// Looks the name up. `trust` is asked only for https.
    pub(crate) async fn new(target: Target, trust: Option<&Trust>, limit: Duration) -> io::Result<Self> {
        let addresses = target.addresses().await?;
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        let trust = if target.tls { trust.cloned() } else { None };
        Ok(Self { target, addresses, trust, limit })
    }

    /// Is every address of it this machine?
    pub(crate) fn is_loopback(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection, Silence> {
        match timeout(self.limit, self.open()).await {
            Ok(Ok(stream)) => Ok(Connection { stream, limit: self.limit }),
            Ok(Err(error)) => Err(Silence::Unreachable(error.to_string())),
            Err(_) => Err(Silence::TimedOut(self.limit)),
        }
    }

    async fn open(&self) -> io::Result<Box<dyn Duplex>> {
        let stream = TcpStream::connect(&self.addresses[..]).await?;
        stream.set_nodelay(true)?;
        match &self.trust {
            Some(trust) => Ok(Box::new(trust.connect(&self.target.host, stream).await?)),
            None => Ok(Box::new(stream)),
        }
    }

    /// Sends `bytes` on a new connection and reads the answer.
    pub(crate) async fn exchange(&self, bytes: &[u8]) -> Received {
        match self.connect().await {
            Ok(connection) => connection.exchange(bytes).await,
            Err(silence) => Received { bytes: Vec::new(), reply: Err(silence) },
        }
    }
}

impl Connection {
    /// Sends a part of a request. A peer that no longer reads may still have answered, so that is no error here.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let sending = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _: Result<io::Result<()>, _> = timeout(self.limit, sending).await;
    }

    /// Sends the rest and reads the answer.
    pub(crate) async fn exchange(mut self, bytes: &[u8]) -> Received {
        self.send(bytes).await;
        let mut received = Vec::new();
        let reading = reading::answer(&mut self.stream, &mut received);
        let reply = match timeout(self.limit, reading).await {
            Ok(reply) => reply,
            Err(_) => Err(Silence::TimedOut(self.limit)),
        };
        Received { bytes: received, reply }
    }
}
