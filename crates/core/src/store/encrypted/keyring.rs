//! The keys of the encryption: one to write with, older ones to read what they wrote.

use std::fmt;

use super::cipher::Cipher;
use crate::error::{MisuseError, RandomError};

/// The longest name of a key: it stands before everything that is encrypted with it.
const ID_CHARS_MAX: usize = 16;
/// The most keys: each rotation leaves one behind until what it wrote has expired.
const KEYS_MAX: usize = 64;

/// The name of a key: 1 to 16 of `a`–`z`, `0`–`9`, `-`, `_` and `.`. It is stored and shown, the key never.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyId(Box<str>);

impl KeyId {
    /// Takes `name` if it is one.
    pub fn new(name: &str) -> Result<Self, MisuseError> {
        let fits = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > ID_CHARS_MAX || !name.bytes().all(fits) {
            return Err(MisuseError::new("the name of a key is 1 to 16 of a-z, 0-9, `-`, `_` and `.`"));
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The bytes of a new key, from the operating system's random source.
pub fn random_key() -> Result<[u8; 32], RandomError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(RandomError::new)?;
    Ok(bytes)
}

/// Keys by name. The first is written with.
pub struct Keyring {
    first: (KeyId, Cipher),
    older: Vec<(KeyId, Cipher)>,
    accepts_plain: bool,
}

impl Keyring {
    /// Takes `keys`, each 256 bits from a random source. The first is written with, all of them read.
    pub fn new(keys: impl IntoIterator<Item = (KeyId, [u8; 32])>) -> Result<Self, MisuseError> {
        let mut keys = keys.into_iter().map(|(id, bytes)| (id, Cipher::new(&bytes)));
        let first = keys.next().ok_or(MisuseError::new("there is no key to encrypt with"))?;
        let ring = Self { first, older: keys.collect(), accepts_plain: false };
        if ring.older.len() >= KEYS_MAX {
            return Err(MisuseError::new("there are more than 64 keys"));
        }
        let is_taken = |(at, id): (usize, &KeyId)| ring.ids().take(at).any(|other| other == id);
        if ring.ids().enumerate().any(is_taken) {
            return Err(MisuseError::new("two keys have the same name"));
        }
        Ok(ring)
    }

    /// Also reads what is not encrypted: for as long as records from before may still be there.
    #[must_use]
    pub const fn accepting_plain(mut self, accepts: bool) -> Self {
        self.accepts_plain = accepts;
        self
    }

    /// Whether it reads what is not encrypted.
    pub const fn accepts_plain(&self) -> bool {
        self.accepts_plain
    }

    /// The name of the key that is written with.
    pub const fn first(&self) -> &KeyId {
        &self.first.0
    }

    /// The names of all keys, the one that is written with first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.all().map(|(id, _)| id)
    }

    /// The key that is written with.
    pub(super) const fn writes(&self) -> (&KeyId, &Cipher) {
        (&self.first.0, &self.first.1)
    }

    /// The key that something was written with.
    pub(super) fn named(&self, name: &[u8]) -> Option<&Cipher> {
        self.all().find(|(id, _)| id.as_str().as_bytes() == name).map(|(_, cipher)| cipher)
    }

    fn all(&self) -> impl Iterator<Item = &(KeyId, Cipher)> {
        std::iter::once(&self.first).chain(&self.older)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.ids().map(KeyId::as_str).collect();
        f.debug_struct("Keyring").field("keys", &ids).field("accepts_plain", &self.accepts_plain).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> (KeyId, [u8; 32]) {
        (KeyId::new(name).unwrap(), [7; 32])
    }

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "2026-11", "k_1.b", "0123456789abcdef"] {
            assert_eq!(KeyId::new(good).unwrap().to_string(), good);
        }
        for bad in ["", "K1", "a b", "é", "0123456789abcdefg", "a\n"] {
            assert!(KeyId::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_ring_has_keys_and_each_once() {
        assert!(Keyring::new([]).is_err());
        assert!(Keyring::new([key("a"), key("b"), key("a")]).is_err());
        assert!(Keyring::new((0..65).map(|n| key(&format!("k{n}")))).is_err());
        let ring = Keyring::new([key("b"), key("a")]).unwrap();
        assert_eq!(ring.ids().map(KeyId::as_str).collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(format!("{ring:?}"), r#"Keyring { keys: ["b", "a"], accepts_plain: false }"#);
    }
}
