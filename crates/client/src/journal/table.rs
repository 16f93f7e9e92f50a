//! The operations that are not over, in memory: what every journal looks keys up in. Pure: time is an argument.

use std::collections::HashMap;

use onlyonce_core::{Key, Timestamp};

use super::{JournalError, JournalErrorKind, JournalLimits};

/// An operation that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) at: Timestamp,
}

#[derive(Debug)]
pub(super) struct Table {
    entries: HashMap<String, Entry>,
    limits: JournalLimits,
}

impl Table {
    pub(super) fn new(limits: JournalLimits) -> Self {
        Self { entries: HashMap::new(), limits }
    }

    /// The key on record, unless it has been there for too long.
    pub(super) fn get(&self, operation: &str, now: Timestamp) -> Option<&Key> {
        self.entries.get(operation).filter(|entry| self.is_kept(entry, now)).map(|entry| &entry.key)
    }

    /// Whether one more may be put in. What is too old makes room.
    pub(super) fn make_room(&mut self, now: Timestamp) -> Result<(), JournalError> {
        if self.entries.len() < self.limits.operations_max {
            return Ok(());
        }
        self.drop_old(now);
        if self.entries.len() < self.limits.operations_max {
            return Ok(());
        }
        Err(JournalError::new(JournalErrorKind::Full))
    }

    pub(super) fn drop_old(&mut self, now: Timestamp) {
        let keep_for = self.limits.keep_for;
        self.entries.retain(|_, entry| now < entry.at + keep_for);
    }

    pub(super) fn put(&mut self, operation: String, entry: Entry) {
        self.entries.insert(operation, entry);
    }

    pub(super) fn remove(&mut self, operation: &str) -> bool {
        self.entries.remove(operation).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.entries.iter()
    }

    fn is_kept(&self, entry: &Entry, now: Timestamp) -> bool {
        now < entry.at + self.limits.keep_for
    }
}
