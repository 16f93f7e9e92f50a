//! What the parent asks of a worker process, and what the worker tells it: one line of JSON each.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::callers::Level;
use crate::engine::Kind;

/// One engine's part of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Stores the pairs `0..records`. Tells a [`Loaded`].
    Load { kind: Kind, folder: PathBuf, records: u64 },
    /// Opens, counts, measures, closes. Tells an [`Opened`].
    Measure(Measure),
    /// Opens the embedded store and works until it is killed. Tells the number of completed pairs, again and again.
    Write { folder: PathBuf, callers: usize, first: u64 },
    /// Works for a while with records that expire, or that do not. Tells a [`Kept`].
    Retain { folder: PathBuf, callers: usize, window: Duration, expire: bool },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measure {
    pub(crate) kind: Kind,
    pub(crate) folder: PathBuf,
    /// How many completed records must be there when the engine is opened; more, if `at_least`.
    pub(crate) expected: u64,
    pub(crate) at_least: bool,
    /// How many of them are the pairs from 0 on: some of these are looked at.
    pub(crate) loaded: u64,
    pub(crate) callers: Vec<usize>,
    pub(crate) window: Duration,
    /// The number of the first new pair.
    pub(crate) first: u64,
    /// Whether to open it again at the end and look at what was stored.
    pub(crate) reopen: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Loaded {
    pub(crate) took: Duration,
}

/// An engine that was opened, and what it did then.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub(crate) open: Duration,
    /// What the process, or its server, takes right after opening.
    pub(crate) memory_bytes: u64,
    /// What the engine says that it takes then.
    pub(crate) own_bytes: Option<u64>,
    pub(crate) records: u64,
    pub(crate) levels: Vec<Level>,
}

impl Opened {
    pub(crate) fn pairs(&self) -> u64 {
        self.levels.iter().map(|level| level.pairs).sum()
    }
}

/// Throughput beside retention.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) level: Level,
    /// How many records went, with segments and for themselves.
    pub(crate) swept: u64,
    pub(crate) sweeps: u64,
    pub(crate) longest_sweep: Duration,
    /// How much is left on the disk.
    pub(crate) bytes: u64,
}
