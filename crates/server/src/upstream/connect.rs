//! Connections to one upstream, whatever a request says: the configuration decides where requests go, never a client.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::UpstreamUrl;

/// Makes connections to one host and port, or to one unix socket.
#[derive(Clone)]
pub(crate) struct Connector {
    socket: Option<Arc<Path>>,
    host: Arc<str>,
    port: u16,
    within: Duration,
    tls: Option<(TlsConnector, ServerName<'static>)>,
}

impl Connector {
    /// `tls` is needed for `https`.
    pub(crate) fn new(
        url: &UpstreamUrl,
        within: Duration,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Self, String> {
        let host = url.authority.host().trim_start_matches('[').trim_end_matches(']');
        let tls = match tls {
            None => None,
            Some(config) => {
                let name =
                    ServerName::try_from(host.to_owned()).map_err(|_| format!("`{host}` is no TLS name"))?;
                Some((TlsConnector::from(config), name))
            }
        };
        let socket = url.socket.as_deref().map(Into::into);
        Ok(Self { socket, host: host.into(), port: url.port(), within, tls })
    }

    pub(super) async fn connect(self) -> io::Result<Stream> {
        let connecting = async {
            if let Some(socket) = &self.socket {
                return Ok(Stream::Unix(UnixStream::connect(socket).await?));
            }
            // Tries every address of the name.
            let stream = TcpStream::connect((&*self.host, self.port)).await?;
            stream.set_nodelay(true)?;
            match &self.tls {
                None => Ok(Stream::Clear(stream)),
                Some((connector, name)) => {
                    Ok(Stream::Tls(Box::new(connector.connect(name.clone(), stream).await?)))
                }
            }
        };
        tokio::time::timeout(self.within, connecting)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await.map(TokioIo::new) })
    }
}

/// A connection to the upstream.
pub(crate) enum Stream {
    Clear(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

macro_rules! either {
    ($stream:expr, $io:ident => $call:expr) => {
        match $stream {
            Stream::Clear($io) => $call,
            Stream::Unix($io) => $call,
            Stream::Tls($io) => $call,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(&mut *self, io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(&mut *self, io => Pin::new(io).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(&mut *self, io => Pin::new(io).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        either!(self, io => io.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(&mut *self, io => Pin::new(io).poll_shutdown(cx))
    }
}
