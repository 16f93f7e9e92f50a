//! The servers of the bench itself, each in a process of its own: what is proxied to, and what is compared.
//!
//! Each prints `listening on ADDRESS`, as `onlyonce proxy` does, and serves until it is ended. Each answers `GET /runs`
//! with how often its handler ran, so that a broken peer cannot look fast.

mod application;
mod forward;
mod idempotent;
mod layered;

use std::io::Read as _;

use axum::Router;
use axum::serve::ListenerExt as _;
use clap::ValueEnum;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::Result;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// What the proxies are in front of: plain hyper.
    Upstream,
    /// A proxy that does nothing but pass on.
    Forward,
    /// An axum handler.
    Bare,
    /// The same behind axum-idempotent.
    Idempotent,
    /// The same behind our layer.
    Layered,
}

/// Serves until the process is ended, or until nobody holds the other end of its input.
pub(crate) fn serve(server: Server, upstream: Option<&str>) -> Result<()> {
    let mut runtime = match server {
        Server::Upstream | Server::Forward => tokio::runtime::Builder::new_current_thread(),
        // One worker, as the sidecar has; the layer spawns its work.
        Server::Bare | Server::Idempotent | Server::Layered => {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            runtime.worker_threads(1);
            runtime
        }
    };
    let upstream = upstream.map(str::to_owned);
    let (ended, mut end) = mpsc::channel(1);
    let served = ended.clone();
    std::thread::spawn(move || {
        // Whoever started us is gone, perhaps without a word: so are we.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = ended.blocking_send(Ok(()));
    });
    runtime.enable_all().build()?.block_on(async move {
        tokio::spawn(async move { served.send(listen(server, upstream).await).await });
        end.recv().await.unwrap_or(Ok(()))
    })
}

async fn listen(server: Server, upstream: Option<String>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    let router: Router = match server {
        Server::Upstream => return application::serve(listener).await,
        Server::Forward => return forward::serve(listener, &upstream.ok_or("no upstream")?).await,
        Server::Bare => application::router(),
        Server::Idempotent => idempotent::around(application::router()),
        Server::Layered => layered::around(application::router()).await?,
    };
    // A small answer does not wait for more to send with it, neither here nor in the other servers.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}
