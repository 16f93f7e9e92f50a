//! The key of the keyed hashes: without it, a stolen store cannot be searched for a known key or body.
//!
//! It is created once, atomically, in the store (see [`Store::secret`](crate::Store::secret)) or read from a file;
//! a process that holds another one refuses to start. This file never prints it.

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

/// Keyed BLAKE3 over length-prefixed fields: `ab`+`c` and `a`+`bc` never hash alike.
#[derive(Clone)]
pub(crate) struct FieldHasher(blake3::Hasher);

impl FieldHasher {
    fn new(key: &[u8; 32]) -> Self {
        Self(blake3::Hasher::new_keyed(key))
    }

    pub(crate) fn field(&mut self, bytes: &[u8]) {
        // INVARIANT: every field is preceded by its length, so the sequence of fields can be read back unambiguously.
        let length = (bytes.len() as u64).to_le_bytes();
        let mut both = [0; 64];
        if let Some(rest) = both[length.len()..].get_mut(..bytes.len()) {
            // Most fields are short, and an update costs more than the copy.
            rest.copy_from_slice(bytes);
            both[..length.len()].copy_from_slice(&length);
            self.0.update(&both[..length.len() + bytes.len()]);
        } else {
            self.0.update(&length);
            self.0.update(bytes);
        }
    }

    pub(crate) fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}
