//! The digest that says whether two requests are the same request.
//!
//! A fingerprint is made by [`FingerprintBuilder`] under some [`Rules`] (which fields count, how a body is read).
//! The record keeps the rules next to the digest, so that old records are compared by their own rules after a
//! configuration change. Stores only compare fingerprints; they never compute one.

pub mod canonical;

use std::fmt;

use bytes::Bytes;

use crate::error::MisuseError;
use crate::secret::{FieldHasher, Secret};

/// The version of the digest itself (hash and field layout).
pub const FINGERPRINT_VERSION: u8 = 1;

/// The most bytes a description of rules may take: it is stored in every record.
pub const RULES_BYTES_MAX: usize = 1024;

/// Which parts of a request count, as written by the door that reads requests. Opaque here.
///
/// Empty rules are the door's defaults, so that the usual record pays nothing for them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Rules {
    version: u8,
    text: Bytes,
}

impl Rules {
    /// The rules described by `text`, under the current version of the digest.
    pub fn new(text: impl Into<Bytes>) -> Result<Self, MisuseError> {
        Self::with_version(FINGERPRINT_VERSION, text)
    }

    /// The door's defaults.
    pub const fn standard() -> Self {
        Self { version: FINGERPRINT_VERSION, text: Bytes::new() }
    }

    pub(crate) fn with_version(version: u8, text: impl Into<Bytes>) -> Result<Self, MisuseError> {
        let text = text.into();
        if text.len() > RULES_BYTES_MAX {
            return Err(MisuseError::new("fingerprint rules are longer than 1024 bytes"));
        }
        Ok(Self { version, text })
    }

    /// The version of the digest.
    pub const fn version(&self) -> u8 {
        self.version
    }

    /// The description, as the door wrote it.
    pub const fn text(&self) -> &Bytes {
        &self.text
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::standard()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}:{}", self.version, self.text.escape_ascii())
    }
}

/// What a request looked like, as a keyed digest, and the rules by which it was looked at.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    rules: Rules,
    digest: [u8; 32],
}

impl Fingerprint {
    /// Starts a fingerprint under `rules`.
    pub fn builder(secret: &Secret, rules: Rules) -> FingerprintBuilder {
        let mut hasher = secret.fingerprint_hasher();
        hasher.field(&[rules.version]);
        hasher.field(&rules.text);
        FingerprintBuilder { rules, hasher }
    }

    /// Takes parts that a store kept.
    pub const fn from_parts(rules: Rules, digest: [u8; 32]) -> Self {
        Self { rules, digest }
    }

    /// The rules it was made by.
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The digest.
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}, {:?})", crate::hex::encode(&self.digest[..4]), self.rules)
    }
}

/// Collects the fields of a request. Names and values are length-prefixed: no field can run into the next.
#[must_use = "a fingerprint is made by `finish`"]
pub struct FingerprintBuilder {
    rules: Rules,
    hasher: FieldHasher,
}

impl FingerprintBuilder {
    /// Adds a field. Order counts.
    pub fn field(mut self, name: &str, value: &[u8]) -> Self {
        self.add(name, value);
        self
    }

    /// Adds a field, for those who add one here and one there.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        self.hasher.field(name.as_bytes());
        self.hasher.field(value);
    }

    /// The fingerprint of the fields so far.
    pub fn finish(self) -> Fingerprint {
        Fingerprint { digest: self.hasher.finish(), rules: self.rules }
    }
}

/// A request that can be looked at by more than one set of rules.
///
/// [`Fingerprint`] implements it for callers whose rules never change.
pub trait Fingerprinted: Send + Sync {
    /// The fingerprint under the rules in force now.
    fn fingerprint(&self) -> Fingerprint;

    /// The fingerprint under the `rules` of an older record, or `None` when those rules are not understood; the
    /// request is then treated as a different one.
    fn fingerprint_by(&self, rules: &Rules) -> Option<Fingerprint>;
}

impl Fingerprinted for Fingerprint {
    fn fingerprint(&self) -> Fingerprint {
        self.clone()
    }

    fn fingerprint_by(&self, rules: &Rules) -> Option<Fingerprint> {
        (self.rules == *rules).then(|| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, &str)]) -> Fingerprint {
        let start = Fingerprint::builder(&Secret::new([7; 32]), Rules::standard());
        fields.iter().fold(start, |builder, (name, value)| builder.field(name, value.as_bytes())).finish()
    }

    #[test]
    fn the_digest_does_not_drift() {
        let digest = crate::hex::encode(of(&[("method", "POST"), ("body", "{}")]).digest());
        assert_eq!(digest, "80422cf583d5efd81459178440082d48bdbc1e09473e3e3b03011689347f47eb");
    }

    #[test]
    fn fields_do_not_run_into_each_other() {
        assert_ne!(of(&[("a", "bc")]), of(&[("ab", "c")]));
        assert_ne!(of(&[("a", "b"), ("c", "d")]), of(&[("a", "bcd")]));
        assert_ne!(of(&[]), of(&[("", "")]));
    }

    #[test]
    fn other_rules_are_another_fingerprint() {
        let secret = Secret::new([7; 32]);
        let rules = Rules::new("body=json").unwrap();
        let plain = Fingerprint::builder(&secret, Rules::standard()).finish();
        let json = Fingerprint::builder(&secret, rules.clone()).finish();
        assert_ne!(plain.digest(), json.digest());
        assert_eq!(plain.fingerprint_by(&rules), None);
        assert_eq!(json.fingerprint_by(&rules), Some(json));
        assert!(Rules::new(vec![b'x'; 1025]).is_err());
    }
}
