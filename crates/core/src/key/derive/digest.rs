//! Turns bytes into a key: SHA-256, of which the first 32 hexadecimal digits are kept.
//!
//! 128 bits keep accidental collisions out of reach and fit wherever a UUID fits. They are no secret and no
//! signature: whoever knows the fields can compute the key.

use sha2::{Digest, Sha256};

use super::Key;

/// The key of `bytes`.
pub(super) fn key_of(bytes: &[u8]) -> Key {
    Key::from_digest(&Sha256::digest(bytes).into())
}

/// Hashes fields so that none can run into the next: each is preceded by its length, 8 bytes big-endian.
pub(super) struct FieldDigest(Sha256);

impl FieldDigest {
    /// Starts with a tag, so that a digest made for one purpose never equals one made for another.
    pub(super) fn new(tag: &str) -> Self {
        Self(Sha256::new()).field(tag.as_bytes())
    }

    pub(super) fn field(mut self, bytes: &[u8]) -> Self {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
        self
    }

    pub(super) fn key(self) -> Key {
        Key::from_digest(&self.0.finalize().into())
    }
}
