//! What every engine must do to be compared: claim, complete, and prove afterwards what it stored.

mod log;
mod grouped;
pub(crate) mod onlyonce;
#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod postgres;
#[cfg(feature = "peers")]
mod redis;
#[cfg(feature = "peers")]
mod server;
#[cfg(feature = "peers")]
mod value;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::pair::{Key, Pair};

/// The answer to a command, once it is durable.
pub(crate) type Asked<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// How many records are loaded at once, unless an engine says otherwise.
const LOAD_BATCH: usize = 1000;

/// An open engine. Dropping it closes it, and waits until that is done.
pub(crate) trait Engine: Send + Sync + 'static {
    /// Claims the key of `pair` durably. Answers the fence, or `None` when the key was claimed before.
    fn claim<'a>(&'a self, pair: &'a Pair) -> Asked<'a, Option<u64>>;

    /// Stores the outcome of `pair` durably under its claim. A claim that is not there is an error.
    fn complete<'a>(&'a self, pair: &'a Pair, fence: u64) -> Asked<'a, ()>;

    /// Stores completed records the fastest way there is. They need not be durable before the engine is closed.
    fn load(&self, pairs: Vec<Pair>) -> Asked<'_, ()>;

    /// How many records `load` wants at once.
    fn load_batch(&self) -> usize {
        LOAD_BATCH
    }

    /// How many completed records are stored.
    fn count(&self) -> Asked<'_, u64>;

    /// The stored outcome of `key`.
    fn outcome<'a>(&'a self, key: &'a Key) -> Asked<'a, Option<Bytes>>;

    /// How much memory the engine says that it takes, if it does.
    fn own_memory(&self) -> Option<u64> {
        None
    }

    /// The server process whose memory counts, if it is not this one.
    fn server(&self) -> Option<u32> {
        None
    }
}

/// What an engine is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be filled: nothing need be durable yet.
    Load,
    /// To be measured: every answer is durable.
    Measure,
}

/// The engines, in the order in which tables show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The store of this project.
    Onlyonce,
    /// One thread that appends as many bytes and syncs once a group: the most that is possible.
    Log,
    /// A log-structured merge tree.
    Fjall,
    /// A copy-on-write B-tree.
    Redb,
    /// The same with two-phase commit.
    #[value(name = "redb-2pc")]
    RedbTwoPhase,
    /// `INSERT … ON CONFLICT DO NOTHING`, then `UPDATE`.
    Postgres,
    /// `SET … NX`, then `SET`, with `appendfsync always`.
    Redis,
}

impl Kind {
    /// What is measured unless asked otherwise.
    #[cfg(feature = "peers")]
    pub(crate) const STANDARD: &[Self] =
        &[Self::Onlyonce, Self::Log, Self::Fjall, Self::Redb, Self::Postgres, Self::Redis];
    #[cfg(not(feature = "peers"))]
    pub(crate) const STANDARD: &[Self] = &[Self::Onlyonce, Self::Log];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Onlyonce => "onlyonce",
            Self::Log => "bare log",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::RedbTwoPhase => "redb 2pc",
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
        }
    }

    /// Opens the engine in `folder`, which is there.
    #[cfg_attr(not(feature = "peers"), expect(clippy::unused_async, reason = "only servers are waited for"))]
    pub(crate) async fn open(self, folder: &Path, purpose: Purpose) -> Result<Arc<dyn Engine>> {
        Ok(match self {
            Self::Onlyonce => Arc::new(onlyonce::Onlyonce::open(folder, purpose)?),
            Self::Log => Arc::new(grouped::Grouped::new(log::Log::open(folder, purpose)?)?),
            #[cfg(feature = "peers")]
            Self::Fjall => Arc::new(grouped::Grouped::new(fjall::Fjall::open(folder)?)?),
            #[cfg(feature = "peers")]
            Self::Redb => Arc::new(grouped::Grouped::new(redb::Redb::open(folder, false)?)?),
            #[cfg(feature = "peers")]
            Self::RedbTwoPhase => Arc::new(grouped::Grouped::new(redb::Redb::open(folder, true)?)?),
            #[cfg(feature = "peers")]
            Self::Postgres => Arc::new(postgres::Postgres::open(folder, purpose).await?),
            #[cfg(feature = "peers")]
            Self::Redis => Arc::new(redis::Redis::open(folder, purpose).await?),
            #[cfg(not(feature = "peers"))]
            other => return Err(format!("{} needs the feature `peers`", other.name()).into()),
        })
    }
}
