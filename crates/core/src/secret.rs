//! The key of the keyed hashes: without it, a stolen store cannot be searched for a known key or body.
//!
//! It is created once, atomically, in the store (see [`Store::secret`](crate::Store::secret)) or read from a file;
//! a process that holds another one refuses to start. This file never prints it.

use std::cell::Cell;
use std::fmt;

use crate::error::RandomError;

const RECORD_ID_CONTEXT: &str = "onlyonce 2026-11 record id v1";
const SCOPE_TAG_CONTEXT: &str = "onlyonce 2026-11 scope tag v1";
const FINGERPRINT_CONTEXT: &str = "onlyonce 2026-11 fingerprint v1";
const DOWNSTREAM_CONTEXT: &str = "onlyonce 2026-11 downstream key v1";

/// 256 secret bits, and one key derived from them for each use, so that no hash can stand in for another.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    bytes: [u8; 32],
    record_id: [u8; 32],
    scope_tag: [u8; 32],
    fingerprint: [u8; 32],
    downstream: [u8; 32],
}

impl Secret {
    /// Takes `bytes` as the secret. They must come from a random source or a secret file.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self {
            bytes,
            record_id: blake3::derive_key(RECORD_ID_CONTEXT, &bytes),
            scope_tag: blake3::derive_key(SCOPE_TAG_CONTEXT, &bytes),
            fingerprint: blake3::derive_key(FINGERPRINT_CONTEXT, &bytes),
            downstream: blake3::derive_key(DOWNSTREAM_CONTEXT, &bytes),
        }
    }

    /// Makes a new secret from the operating system's random source.
    pub fn random() -> Result<Self, RandomError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(RandomError::new)?;
        Ok(Self::new(bytes))
    }

    /// The secret itself, for a store to keep. Nothing else may look at it.
    pub fn expose(&self) -> &[u8; 32] {
        &self.bytes
    }

    pub(crate) fn record_id_hasher(&self) -> FieldHasher {
        FieldHasher::new(&self.record_id)
    }

    pub(crate) fn scope_tag_hasher(&self) -> FieldHasher {
        FieldHasher::new(&self.scope_tag)
    }

    pub(crate) fn fingerprint_hasher(&self) -> FieldHasher {
        FieldHasher::new(&self.fingerprint)
    }

    pub(crate) fn downstream_hasher(&self) -> FieldHasher {
        FieldHasher::new(&self.downstream)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How many bytes of fields are held before they are hashed.
const HELD_BYTES_MAX: usize = 1024;
/// What the fields of most requests take.
const HELD_BYTES_USUAL: usize = 384;

thread_local! {
    /// The room of the last hasher, for the next one on this thread: three are made for a request, one after the other, and
    /// what was just used is still at hand for the processor.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Keyed BLAKE3 over length-prefixed fields: `ab`+`c` and `a`+`bc` never hash alike.
///
/// Fields are held and hashed in one go where they are few, as they mostly are: a hasher that can go on takes two
/// kilobytes to set up, and each part that is fed to it costs more than the part.
#[derive(Clone)]
pub(crate) struct FieldHasher {
    key: [u8; 32],
    held: Vec<u8>,
    /// What was too much to hold.
    hashed: Option<Box<blake3::Hasher>>,
}

impl FieldHasher {
    fn new(key: &[u8; 32]) -> Self {
        // A thread that ends has none any more.
        let mut held = ROOM.try_with(Cell::take).unwrap_or_default();
        held.clear();
        held.reserve(HELD_BYTES_USUAL);
        Self { key: *key, held, hashed: None }
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        // INVARIANT: every field is preceded by its length, so the sequence of fields can be read back unambiguously.
        self.held.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        if self.held.len() + bytes.len() <= HELD_BYTES_MAX {
            self.held.extend_from_slice(bytes);
        } else {
            self.hash_held().update(bytes);
        }
    }

    fn hash_held(&mut self) -> &mut blake3::Hasher {
        let hashed = self.hashed.get_or_insert_with(|| Box::new(blake3::Hasher::new_keyed(&self.key)));
        hashed.update(&self.held);
        self.held.clear();
        hashed
    }

    pub(crate) fn finish(mut self) -> [u8; 32] {
        let hash = match self.hashed {
            None => blake3::keyed_hash(&self.key, &self.held),
            Some(_) => self.hash_held().finalize(),
        };
        // What was held is at most `HELD_BYTES_MAX` and a length, so its room stays small.
        let _ = ROOM.try_with(|room| room.set(self.held));
        *hash.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_hash_alike_however_many_are_held() {
        let bytes: Vec<u8> = (0..=255).cycle().take(3 * HELD_BYTES_MAX).collect();
        let around = [0, 8, 16].map(|less| HELD_BYTES_MAX - less);
        let sizes = [0, 1, 64, 500].into_iter().chain(around).chain(around.map(|size| size + 1));
        for size in sizes.chain([bytes.len()]) {
            for parts in [vec![size], vec![size, 3], vec![3, size], vec![size, size, 0, size]] {
                let (mut ours, mut theirs) =
                    (FieldHasher::new(&[7; 32]), blake3::Hasher::new_keyed(&[7; 32]));
                for part in &parts {
                    ours.field(&bytes[..*part]);
                    theirs.update(&(*part as u64).to_le_bytes()).update(&bytes[..*part]);
                }
                assert_eq!(ours.finish(), *theirs.finalize().as_bytes(), "{parts:?}");
            }
        }
    }
}
