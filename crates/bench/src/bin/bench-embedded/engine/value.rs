//! What engines that know no records store under a key, and what a committer remembers of what is in flight.
//!
//! That is kept in memory, so that a completion is checked without reading, as the embedded store does.

use std::collections::HashMap;

use bytes::Bytes;

use crate::Result;
use crate::pair::{FINGERPRINT, Key, OUTCOME_BYTES, OWNER_BYTES, Pair};

/// A claimed record: fingerprint and owner. A completed one has the outcome behind them.
pub(super) const CLAIMED_BYTES: usize = FINGERPRINT.len() + OWNER_BYTES;
pub(super) const COMPLETED_BYTES: usize = CLAIMED_BYTES + OUTCOME_BYTES;

pub(super) fn claimed_value(pair: &Pair) -> [u8; CLAIMED_BYTES] {
    let mut value = [0; CLAIMED_BYTES];
    value[..FINGERPRINT.len()].copy_from_slice(&FINGERPRINT);
    value[FINGERPRINT.len()..].copy_from_slice(&pair.owner);
    value
}

pub(super) fn completed_value(pair: &Pair) -> [u8; COMPLETED_BYTES] {
    let mut value = [0; COMPLETED_BYTES];
    value[..CLAIMED_BYTES].copy_from_slice(&claimed_value(pair));
    value[CLAIMED_BYTES..].copy_from_slice(&pair.outcome);
    value
}

/// The outcome in a stored value, if it is a completed one.
pub(super) fn outcome_in(value: &[u8]) -> Option<Bytes> {
    (value.len() == COMPLETED_BYTES).then(|| Bytes::copy_from_slice(&value[CLAIMED_BYTES..]))
}

/// Who owns what is in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    owners: HashMap<Key, [u8; OWNER_BYTES]>,
    /// Completed in the group that is being decided. A claim of one of them must not be granted before it can be read.
    done: Vec<Key>,
}

impl InFlight {
    /// Whether a claim is granted. `held` looks for a record that is not in flight.
    pub(super) fn claim(&mut self, pair: &Pair, held: impl FnOnce() -> Result<bool>) -> Result<bool> {
        if self.owners.contains_key(&pair.key) || held()? {
            return Ok(false);
        }
        self.owners.insert(pair.key, pair.owner);
        Ok(true)
    }

    /// Whether a completion is accepted.
    pub(super) fn complete(&mut self, pair: &Pair) -> bool {
        let owned = self.owners.get(&pair.key) == Some(&pair.owner);
        if owned {
            self.done.push(pair.key);
        }
        owned
    }

    /// The group is durable.
    pub(super) fn committed(&mut self) {
        for key in self.done.drain(..) {
            self.owners.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_completed_in_a_group_is_not_granted_in_the_same_group() {
        let mut in_flight = InFlight::default();
        let (pair, other) = (Pair::new(1), Pair { owner: [0; OWNER_BYTES], ..Pair::new(1) });
        assert!(in_flight.claim(&pair, || Ok(false)).unwrap());
        assert!(!in_flight.complete(&other));
        assert!(in_flight.complete(&pair));
        assert!(!in_flight.claim(&other, || Ok(false)).unwrap());
        in_flight.committed();
        assert!(!in_flight.claim(&other, || Ok(true)).unwrap());
    }

    #[test]
    fn only_a_completed_value_has_an_outcome() {
        let pair = Pair::new(3);
        assert_eq!(outcome_in(&completed_value(&pair)), Some(pair.outcome.clone()));
        assert_eq!(outcome_in(&claimed_value(&pair)), None);
    }
}
