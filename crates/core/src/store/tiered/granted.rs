//! The grants that went through this process, until they end: a completion does not say what was claimed.

use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::scope::RecordId;
use crate::store::ById;
use crate::store::tier::Granted;
use crate::transition::Token;

/// The most grants that are remembered. One that is not costs a later replay the way to the authority, no more.
const GRANTS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct GrantedHere(Mutex<ById<Granted>>);

impl GrantedHere {
    pub(super) fn keep(&self, id: &RecordId, granted: Granted) {
        let mut by_id = self.by_id();
        // The grants of owners that end elsewhere, or nowhere, must not keep all others out for ever.
        if by_id.len() >= GRANTS_MAX {
            by_id.clear();
        }
        by_id.insert(*id, granted);
    }

    pub(super) fn get(&self, token: &Token) -> Option<Granted> {
        self.by_id().get(&token.id).filter(|granted| is_of(granted, token)).cloned()
    }

    /// Forgets it, and gives it back.
    pub(super) fn end(&self, token: &Token) -> Option<Granted> {
        match self.by_id().entry(token.id) {
            Entry::Occupied(granted) if is_of(granted.get(), token) => Some(granted.remove()),
            _ => None,
        }
    }

    fn by_id(&self) -> MutexGuard<'_, ById<Granted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of(granted: &Granted, token: &Token) -> bool {
    granted.fence == token.fence && granted.owner == token.owner
}
