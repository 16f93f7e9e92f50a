//! The servers of the bench itself, each in a process of its own: what is proxied to, and what is compared.

use std::sync::Arc;

use clap::ValueEnum;
use fred::clients::Client;
use fred::interfaces::ClientLike as _;
use fred::types::Builder;
use fred::types::config::Config;
use onlyonce_bench::serve::{self, application, idempotent, layered};
use onlyonce_store_postgres::{Options, PostgresStore};
use onlyonce_store_redis::RedisStore;

use crate::Result;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Server {
    /// What the sidecars are in front of: plain hyper.
    Upstream,
    /// An axum handler behind our layer over Redis.
    LayeredRedis,
    /// The same over Postgres.
    LayeredPostgres,
    /// The same behind axum-idempotent over Redis.
    IdempotentRedis,
}

/// Serves until the process is ended, or until nobody holds the other end of its input.
pub(crate) fn serve(server: Server, url: Option<&str>) -> Result<()> {
    let runtime = match server {
        Server::Upstream => tokio::runtime::Builder::new_current_thread(),
        _ => serve::one_worker(),
    };
    serve::until_input_ends(runtime, listen(server, url.unwrap_or_default().to_owned()))
}

async fn listen(server: Server, url: String) -> Result<()> {
    let bare = application::router();
    let router = match server {
        Server::Upstream => return application::serve(serve::listener()?).await,
        Server::LayeredRedis => {
            let store = RedisStore::connect(&url, onlyonce_store_redis::Options::default()).await?;
            layered::around(bare, Arc::new(store)).await?
        }
        Server::LayeredPostgres => {
            let store = PostgresStore::open(Options::from_url(&url)?).await?;
            layered::around(bare, Arc::new(store)).await?
        }
        Server::IdempotentRedis => {
            // One client, as in the example of its session store.
            let client: Client = Builder::from_config(Config::from_url(&url)?).build()?;
            client.init().await?;
            let store = ruts::store::redis::RedisStore::new(Arc::new(client)).await?;
            idempotent::around(bare, store)
        }
    };
    serve::router(serve::listener()?, router).await
}
