//! Messages that were alone in a transaction that lost its connection: handled alone from then on, and counted.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More at a time than this is no message's fault.
const SUSPECTS_MAX: usize = 1000;

/// How often each was caught. Forgotten with the process: what it kills is counted by the broker.
#[derive(Debug, Default)]
pub(super) struct Suspects(Mutex<HashMap<String, u32>>);

impl Suspects {
    fn all(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.all().contains_key(name)
    }

    /// Counts one more, and says how many there are.
    pub(super) fn accuse(&self, name: &str) -> u32 {
        let mut all = self.all();
        if all.len() >= SUSPECTS_MAX && !all.contains_key(name) {
            all.clear();
        }
        let count = all.entry(name.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// It was handled, or is handled no more.
    pub(super) fn acquit(&self, name: &str) {
        let mut all = self.all();
        if !all.is_empty() {
            all.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_are_counted_acquitted_and_bounded() {
        let suspects = Suspects::default();
        assert_eq!((suspects.accuse("a"), suspects.accuse("a"), suspects.accuse("b")), (1, 2, 1));
        suspects.acquit("a");
        assert_eq!((suspects.contains("a"), suspects.contains("b")), (false, true));
        for number in 0..3 * SUSPECTS_MAX {
            suspects.accuse(&number.to_string());
        }
        assert!(suspects.all().len() <= SUSPECTS_MAX);
    }
}
