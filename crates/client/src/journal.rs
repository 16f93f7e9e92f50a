//! Where a caller writes down which key belongs to which operation, before it sends anything.

mod error;
mod file;
mod line;
mod memory;
mod table;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use onlyonce_core::Key;

pub use error::{JournalError, JournalErrorKind};
pub use file::FileJournal;
pub use memory::MemoryJournal;

/// What a journal returns.
pub type JournalFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, JournalError>> + Send + 'a>>;

/// Keeps the key of every operation that is not over.
///
/// # Contract
/// 1. *One key*: until an operation is forgotten, every call of `key` for it answers the same key.
/// 2. *Before the send*: when `key` answers, the key is on record as durably as the journal promises.
/// 3. *Bounded*: a journal that is full refuses new operations. It never drops one that may still be retried.
pub trait Journal: fmt::Debug + Send + Sync + 'static {
    /// The key of `operation`: the one on record, or else `offered`, which is on record when this returns.
    fn key<'a>(&'a self, operation: &'a str, offered: Key) -> JournalFuture<'a, Key>;

    /// The operation is over and its answer has been made use of: the same name is another operation from now on.
    fn forget<'a>(&'a self, operation: &'a str) -> JournalFuture<'a, ()>;
}

/// How much a journal keeps, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// The most operations that are not over. 100 000: some 20 MB at the very most of what is usual.
    pub operations_max: usize,
    /// After how long an operation that was never forgotten is taken to be over. 30 days: longer than servers remember
    /// keys, because a key that a server can tell to be old protects better than a new one.
    pub keep_for: Duration,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self { operations_max: 100_000, keep_for: Duration::from_hours(30 * 24) }
    }
}
