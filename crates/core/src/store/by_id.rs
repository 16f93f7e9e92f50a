//! Maps by record id.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::scope::RecordId;

/// Ids are keyed hashes already: eight of their bytes are as good as hashing them again, and nobody can choose them.
#[derive(Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(chunk) = bytes.get(8..16) {
            self.0 = chunk.iter().fold(0, |hash, byte| hash << 8 | u64::from(*byte));
        }
    }

    /// The length of the array, which is always the same.
    fn write_usize(&mut self, _: usize) {}
}

/// A map by record id.
pub type ById<T> = HashMap<RecordId, T, BuildHasherDefault<IdHasher>>;
/// A set of record ids.
pub type Ids = HashSet<RecordId, BuildHasherDefault<IdHasher>>;
