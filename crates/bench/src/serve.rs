//! Servers of the programs themselves, each in a process of its own: what is proxied to, and what is compared.
//!
//! Each prints `listening on ADDRESS`, as `onlyonce proxy` does, and serves until it is ended. Each answers `GET /runs`
//! with how often its handler ran, so that a broken peer cannot look fast.
#![allow(clippy::print_stdout, reason = "whoever started it reads the address there")]

pub mod application;
pub mod bare;
pub mod idempotent;
pub mod layered;

use std::future::Future;
use std::io::Read as _;
use std::net::Ipv4Addr;

use axum::Router;
use axum::serve::ListenerExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use crate::Result;

/// A runtime with one worker, as the sidecar has in a measurement.
pub fn one_worker() -> Builder {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1);
    runtime
}

/// Serves until the process is ended, or until nobody holds the other end of its input.
pub fn until_input_ends(
    mut runtime: Builder,
    serving: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<()> {
    let (ended, mut end) = mpsc::channel(1);
    let served = ended.clone();
    std::thread::spawn(move || {
        // Whoever started us is gone, perhaps without a word: so are we.
        let _ = std::io::stdin().read(&mut [0]);
        let _ = ended.blocking_send(Ok(()));
    });
    runtime.enable_all().build()?.block_on(async move {
        tokio::spawn(async move { served.send(serving.await).await });
        end.recv().await.unwrap_or(Ok(()))
    })
}

/// Listens on a free port and says on which.
pub fn listener() -> Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    // All connections of a proxy at once: one that finds no place stands still for a second, and with it what is measured.
    let listener = socket.listen(4096)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(listener)
}

/// Serves a router of axum.
pub async fn router(listener: TcpListener, router: Router) -> Result<()> {
    // A small answer does not wait for more to send with it, neither here nor in the other servers.
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    Ok(axum::serve(listener, router).await?)
}
