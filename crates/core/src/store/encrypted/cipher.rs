//! Encrypted bytes and what they look like. The only place that knows the cipher.
//!
//! ```text
//! EE 4F 45 · version 1 · length and name of the key · ciphertext · tag (16)
//! ```
//!
//! What stands before the ciphertext is authenticated with it, and so is where it belongs: see [`Part`].

use std::error::Error;
use std::fmt;

use aes_gcm_siv::{AeadInOut as _, Aes256GcmSiv, Key, KeyInit as _, Nonce, Tag};
use bytes::Bytes;

use super::Keyring;
use crate::outcome::Outcome;
use crate::record::{CompletedBy, Fence, StepName};
use crate::scope::RecordId;
use crate::store::{StoreError, StoreErrorKind};

/// What begins everything that is encrypted. No door writes bytes that begin so.
const MAGIC: [u8; 3] = [0xee, b'O', b'E'];
const VERSION: u8 = 1;
const TAG_LEN: usize = 16;
const NONCE_LEN: usize = 12;

const CIPHER_CONTEXT: &str = "onlyonce 2026-11 record encryption v1";
const NONCE_CONTEXT: &str = "onlyonce 2026-11 record nonce v1";

/// One key, ready for use.
#[derive(Clone)]
pub(super) struct Cipher {
    aead: Aes256GcmSiv,
    nonces: [u8; 32],
}

/// Which fence an outcome was made under. That of a seal is written before there is one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Under {
    Fence(Fence),
    Seal,
}

impl Under {
    /// The outcome of a record that was completed `by` someone under `fence`.
    pub(super) const fn of(by: CompletedBy, fence: Fence) -> Self {
        match by {
            CompletedBy::Seal => Self::Seal,
            CompletedBy::Execution | CompletedBy::Resolve => Self::Fence(fence),
        }
    }
}

/// Where bytes belong. Anywhere else they are damage.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part<'a> {
    /// The body of an outcome, beside the rest of it.
    Body(Under, &'a Outcome),
    /// The value of a step.
    Step(&'a StepName),
}

impl Part<'_> {
    /// INVARIANT: only what comes last has no length of its own, so that no two parts are written alike.
    fn write(self, to: &mut Vec<u8>) {
        match self {
            Self::Body(under, outcome) => {
                match under {
                    Under::Fence(fence) => {
                        to.push(0);
                        to.extend_from_slice(&fence.get().to_le_bytes());
                    }
                    Under::Seal => to.push(1),
                }
                to.extend_from_slice(&outcome.content_version().to_le_bytes());
                to.extend_from_slice(outcome.head());
            }
            Self::Step(name) => {
                to.push(2);
                to.extend_from_slice(name.as_str().as_bytes());
            }
        }
    }
}

impl Cipher {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let of_cipher = blake3::derive_key(CIPHER_CONTEXT, key);
        Self {
            aead: Aes256GcmSiv::new(&Key::<Aes256GcmSiv>::from(of_cipher)),
            nonces: blake3::derive_key(NONCE_CONTEXT, key),
        }
    }

    /// Two parts have two nonces; the same part has the same one, however often it is written.
    fn nonce(&self, associated: &[u8]) -> Nonce {
        let hash = blake3::keyed_hash(&self.nonces, associated);
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&hash.as_bytes()[..NONCE_LEN]);
        nonce.into()
    }
}

/// Whether `bytes` claim to be encrypted.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Encrypts `plain` under the first of `keys`.
pub(super) fn seal(keys: &Keyring, id: &RecordId, part: Part<'_>, plain: &[u8]) -> Bytes {
    let (name, cipher) = keys.writes();
    let name = name.as_str().as_bytes();
    let header_len = MAGIC.len() + 2 + name.len();
    let mut sealed = Vec::with_capacity(header_len + plain.len() + TAG_LEN);
    sealed.extend_from_slice(&MAGIC);
    // Names have at most 16 characters.
    sealed.extend_from_slice(&[VERSION, name.len().to_le_bytes()[0]]);
    sealed.extend_from_slice(name);
    let associated = associated(&sealed, id, part);
    sealed.extend_from_slice(plain);
    let nonce = cipher.nonce(&associated);
    let buffer = &mut sealed[header_len..];
    let Ok(tag) = cipher.aead.encrypt_inout_detached(&nonce, &associated, buffer.into()) else {
        unreachable!("only 64 GiB are too much for the cipher");
    };
    sealed.extend_from_slice(&tag);
    sealed.into()
}

/// What was encrypted, if it was for this part of this record and under one of `keys`.
pub(super) fn open(
    keys: &Keyring,
    id: &RecordId,
    part: Part<'_>,
    stored: &Bytes,
) -> Result<Bytes, StoreError> {
    if !is_sealed(stored) {
        return if keys.accepts_plain() { Ok(stored.clone()) } else { Err(Unreadable::Plain.into()) };
    }
    let (header_len, name) = header(stored)?;
    let Some(cipher) = keys.named(name) else {
        return Err(Unreadable::Key(String::from_utf8_lossy(name).into_owned()).into());
    };
    let tag_at = stored.len().checked_sub(TAG_LEN).filter(|at| *at >= header_len);
    let tag_at = tag_at.ok_or(Unreadable::Changed)?;
    let mut tag = [0; TAG_LEN];
    tag.copy_from_slice(&stored[tag_at..]);
    let associated = associated(&stored[..header_len], id, part);
    let mut plain = stored[header_len..tag_at].to_vec();
    let nonce = cipher.nonce(&associated);
    let buffer = plain.as_mut_slice();
    let opened = cipher.aead.decrypt_inout_detached(&nonce, &associated, buffer.into(), &Tag::from(tag));
    opened.map_err(|_| Unreadable::Changed)?;
    Ok(plain.into())
}

/// How long the header is, and the name of the key.
fn header(stored: &[u8]) -> Result<(usize, &[u8]), Unreadable> {
    let after_magic = &stored[MAGIC.len()..];
    let (&version, rest) = after_magic.split_first().ok_or(Unreadable::Changed)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (&len, rest) = rest.split_first().ok_or(Unreadable::Changed)?;
    let name = rest.get(..usize::from(len)).ok_or(Unreadable::Changed)?;
    Ok((MAGIC.len() + 2 + name.len(), name))
}

/// What is authenticated beside the ciphertext: its header, the id, and the part.
fn associated(header: &[u8], id: &RecordId, part: Part<'_>) -> Vec<u8> {
    let mut associated = Vec::with_capacity(header.len() + 128);
    associated.extend_from_slice(header);
    associated.extend_from_slice(id.as_bytes());
    part.write(&mut associated);
    associated
}

/// Why stored bytes cannot be read.
#[derive(Debug)]
enum Unreadable {
    Plain,
    Key(String),
    Version(u8),
    Changed,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str(
                "it is not encrypted; store.accept_plain = true reads records from before encryption",
            ),
            Self::Key(name) => {
                write!(
                    f,
                    "it is encrypted with the key `{}`, which is not in the key file",
                    name.escape_debug()
                )
            }
            Self::Version(version) => {
                write!(f, "its encryption has format {version}, this program reads {VERSION}")
            }
            Self::Changed => f.write_str(
                "it was changed, belongs to another record, or its key is not the one of that name",
            ),
        }
    }
}

impl Error for Unreadable {}

impl From<Unreadable> for StoreError {
    fn from(why: Unreadable) -> Self {
        let kind = match why {
            Unreadable::Version(_) => StoreErrorKind::Unsupported,
            _ => StoreErrorKind::Corrupt,
        };
        Self::new(kind, "decrypting a record").because(why)
    }
}
