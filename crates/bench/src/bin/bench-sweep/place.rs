//! The stores: each on a server or in a folder of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use onlyonce_bench::{facts, machine};
use onlyonce_core::Store;
use onlyonce_core::record::StateKind;
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_store_postgres::PostgresStore;
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::Result;

/// As its manual advises for a server of this size, and ours: what is shipped is for a small machine, and checkpoints for
/// every gibibyte of log are what everybody would wait for, as are new files for the log where old ones are not kept.
const SETTINGS: [&str; 3] = ["shared_buffers=2GB", "max_wal_size=16GB", "min_wal_size=4GB"];

/// Which store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// The embedded store.
    File,
    /// Redis, every answered write on the disk.
    Redis,
    /// `PostgreSQL`.
    Postgres,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::File, Self::Redis, Self::Postgres];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::File => "file:",
            Self::Redis => "redis://",
            Self::Postgres => "postgres://",
        }
    }

    /// What the records are that expire. Of Redis those that it does not remove by itself: keys of completed records go with
    /// their own expiry, unknown ones only with a sweep.
    pub(crate) const fn expires(self) -> StateKind {
        match self {
            Self::File | Self::Postgres => StateKind::Completed,
            Self::Redis => StateKind::Unknown,
        }
    }
}

/// Where a store is.
#[derive(Debug)]
pub(crate) enum Place {
    File,
    Redis(RedisServer),
    Postgres(PostgresServer),
}

impl Place {
    pub(crate) fn start(kind: Kind) -> Result<Self> {
        // A rewrite of the file of commands forks the server: it would come in one turn and not in the other.
        let options = RedisOptions::default().with("auto-aof-rewrite-percentage", "0");
        Ok(match kind {
            Kind::File => Self::File,
            Kind::Redis => Self::Redis(RedisServer::start(options)?),
            Kind::Postgres => Self::Postgres(PostgresServer::start(&SETTINGS)?),
        })
    }

    /// Opens the store; an embedded one in `folder`.
    pub(crate) async fn open(&self, folder: &Path) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Self::File => Arc::new(EmbeddedStore::open(folder, onlyonce_store_embedded::Options::default())?),
            Self::Redis(server) => {
                // A thousand records at a time, each of them synced, may take a while on a slow disk.
                let timeout = Duration::from_secs(30);
                let options = onlyonce_store_redis::Options { timeout, ..Default::default() };
                Arc::new(RedisStore::connect(&server.url(), options).await?)
            }
            Self::Postgres(server) => {
                let options = onlyonce_store_postgres::Options::from_url(&server.url())?;
                onlyonce_store_postgres::migrate(&options).await?;
                Arc::new(PostgresStore::open(options).await?)
            }
        })
    }

    /// The server's URL, if it is a `PostgreSQL`.
    pub(crate) fn postgres(&self) -> Option<String> {
        match self {
            Self::Postgres(server) => Some(server.url()),
            Self::File | Self::Redis(_) => None,
        }
    }

    /// Does away with what the filling left to do: it would be done in the turns that come first.
    pub(crate) fn settle(&self) -> Result<()> {
        if let Self::Postgres(server) = self {
            for chore in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
                facts::ask_postgres(&server.url(), chore)?;
            }
        }
        Ok(())
    }

    /// Where a server keeps its files.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Postgres(server) => Some(server.folder()),
            Self::Redis(server) => Some(server.folder()),
            Self::File => None,
        }
    }

    /// What it is and how it keeps what it is told.
    pub(crate) fn facts(&self) -> Result<String> {
        match self {
            Self::Postgres(server) => facts::postgres(&server.url()),
            Self::Redis(server) => facts::redis(server),
            Self::File => Ok("The embedded store syncs every answer".to_owned()),
        }
    }

    /// Every process of ours.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut processes = machine::own_children();
        if let Self::Postgres(server) = self {
            processes.extend(server.id().filter(|id| !processes.contains(id)));
        }
        processes
    }
}
