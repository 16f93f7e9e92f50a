//! A bare proxy: hyper on both sides, connections kept, nothing looked at. What a Rust proxy costs before it does anything.

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme, Uri};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use crate::Result;

type Upstream = Client<HttpConnector, Incoming>;

pub(super) async fn serve(listener: TcpListener, upstream: &str) -> Result<()> {
    let authority: Authority = upstream.parse()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Upstream =
        Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (client, authority) = (client.clone(), authority.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| forward(&client, &authority, request));
            // A client that goes away is no error of ours.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn forward(
    client: &Upstream,
    authority: &Authority,
    mut request: Request<Incoming>,
) -> std::result::Result<Response<Incoming>, Error> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority.clone());
    // What hyper has parsed it takes again; anything else goes to the upstream's root.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().remove(HOST);
    client.request(request).await
}
