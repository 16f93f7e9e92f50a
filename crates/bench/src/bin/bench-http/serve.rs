//! The servers of the bench itself, each in a process of its own: what is proxied to, and what is compared.

mod forward;

use clap::ValueEnum;
use onlyonce_bench::serve::{self, application, bare, idempotent, layered};
use tokio::runtime::Builder;

use crate::Result;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// What the proxies are in front of: plain hyper.
    Upstream,
    /// The same on a bare socket.
    BareUpstream,
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
    let runtime = match server {
        Server::Upstream | Server::BareUpstream | Server::Forward => Builder::new_current_thread(),
        // The layer spawns its work.
        Server::Bare | Server::Idempotent | Server::Layered => serve::one_worker(),
    };
    serve::until_input_ends(runtime, listen(server, upstream.map(str::to_owned)))
}

async fn listen(server: Server, upstream: Option<String>) -> Result<()> {
    let listener = serve::listener()?;
    let router = match server {
        Server::Upstream => return application::serve(listener).await,
        Server::BareUpstream => return bare::serve(listener).await,
        Server::Forward => return forward::serve(listener, &upstream.ok_or("no upstream")?).await,
        Server::Bare => application::router(),
        Server::Idempotent => idempotent::around(application::router(), idempotent::memory()),
        Server::Layered => layered::around(application::router(), layered::memory()).await?,
    };
    serve::router(listener, router).await
}
