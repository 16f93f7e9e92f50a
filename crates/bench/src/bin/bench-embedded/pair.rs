//! What one claim and its completion are about: made from a number, so that a stored record can be checked later.

use bytes::Bytes;
use onlyonce_core::scope::RECORD_ID_VERSION;

pub(crate) const KEY_BYTES: usize = 32;
pub(crate) const OWNER_BYTES: usize = 16;
pub(crate) const FINGERPRINT_BYTES: usize = 32;
pub(crate) const OUTCOME_BYTES: usize = 200;

/// All requests look the same; no engine profits from it.
pub(crate) const FINGERPRINT: [u8; FINGERPRINT_BYTES] = [0xa5; FINGERPRINT_BYTES];

/// Every pair has so many words of its own in the random sequence.
const WORDS: u64 = 32;

pub(crate) type Key = [u8; KEY_BYTES];

/// The key, owner and outcome of one operation. They look random, so that no engine can compress them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) key: Key,
    pub(crate) owner: [u8; OWNER_BYTES],
    pub(crate) outcome: Bytes,
}

impl Pair {
    /// The pair `number`. No two have a key in common.
    pub(crate) fn new(number: u64) -> Self {
        let mut bytes = [0; KEY_BYTES + OWNER_BYTES + OUTCOME_BYTES];
        for (word, chunk) in (number.wrapping_mul(WORDS)..).zip(bytes.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&mixed(word).to_le_bytes());
        }
        let (key, rest) = bytes.split_first_chunk().expect("the key is the first part");
        let (owner, outcome) = rest.split_first_chunk().expect("the owner is the second part");
        let mut pair = Self { key: *key, owner: *owner, outcome: Bytes::copy_from_slice(outcome) };
        pair.key[0] = RECORD_ID_VERSION;
        pair
    }
}

/// splitmix64: a few instructions a word, and different for different numbers.
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_pair_can_be_made_again_and_no_two_share_a_key() {
        assert_eq!(Pair::new(7), Pair::new(7));
        let keys: HashSet<_> = (0..10_000).map(|number| Pair::new(number).key).collect();
        assert_eq!(keys.len(), 10_000);
    }
}
