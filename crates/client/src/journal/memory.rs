//! A journal that lives as long as the process: keys survive retries, not a crash of the caller.

use std::sync::{Arc, Mutex, PoisonError};

use onlyonce_core::{Clock, Key, SystemClock};

use super::table::{Entry, Table};
use super::{Journal, JournalError, JournalFuture, JournalLimits};

/// Keeps keys in memory. After a restart the same operation gets another key: for callers whose own callers retry.
#[derive(Debug)]
pub struct MemoryJournal {
    table: Mutex<Table>,
    clock: Arc<dyn Clock>,
}

impl MemoryJournal {
    /// An empty journal.
    pub fn new(limits: JournalLimits, clock: Arc<dyn Clock>) -> Self {
        Self { table: Mutex::new(Table::new(limits)), clock }
    }

    fn key_now(&self, operation: &str, offered: Key) -> Result<Key, JournalError> {
        let now = self.clock.now();
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = table.get(operation, now) {
            return Ok(key.clone());
        }
        table.make_room(now)?;
        table.put(operation.to_owned(), Entry { key: offered.clone(), at: now });
        Ok(offered)
    }
}

impl Default for MemoryJournal {
    fn default() -> Self {
        Self::new(JournalLimits::default(), Arc::new(SystemClock::new()))
    }
}

impl Journal for MemoryJournal {
    fn key<'a>(&'a self, operation: &'a str, offered: Key) -> JournalFuture<'a, Key> {
        Box::pin(async move { self.key_now(operation, offered) })
    }

    fn forget<'a>(&'a self, operation: &'a str) -> JournalFuture<'a, ()> {
        Box::pin(async move {
            self.table.lock().unwrap_or_else(PoisonError::into_inner).remove(operation);
            Ok(())
        })
    }
}
