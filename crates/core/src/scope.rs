//! Whose key it is: two principals who send the same key name two different operations.
//!
//! A [`Scope`] and a [`Key`] together give the [`RecordId`] under which the operation is remembered. This file does
//! not decide who the principal is; the doors do, from a verified source.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::HexError;
use crate::hex;
use crate::key::Key;
use crate::secret::Secret;

/// The version of the derivation of record ids. It is the first byte of every id, so that a later derivation can
/// never meet an id of this one.
pub const RECORD_ID_VERSION: u8 = 1;

/// Who asks. Each variant has its own tag in the record id: nobody can name themselves into another one.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Principal {
    /// One tenant by explicit configuration: everyone shares the keys.
    Shared,
    /// No credential was sent. All such callers share one scope; doors count and warn.
    Anonymous,
    /// An identity from a verified source: a subject, an account, or a keyed hash of a credential.
    Named(Box<[u8]>),
}

impl Principal {
    /// A principal known by `identity`.
    pub fn named(identity: impl AsRef<[u8]>) -> Self {
        Self::Named(identity.as_ref().into())
    }

    fn tag(&self) -> u8 {
        match self {
            Self::Shared => 0,
            Self::Anonymous => 1,
            Self::Named(_) => 2,
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An identity may be a mail address or a credential: it is counted, not shown.
        match self {
            Self::Shared => f.write_str("Shared"),
            Self::Anonymous => f.write_str("Anonymous"),
            Self::Named(identity) => write!(f, "Named({} bytes)", identity.len()),
        }
    }
}

/// The space in which a key is unique: a namespace, a principal, and a path where a route asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    namespace: Arc<str>,
    principal: Principal,
    path: Option<Box<str>>,
}

impl Scope {
    /// The scope of `principal` in `namespace`.
    pub fn new(namespace: impl Into<Arc<str>>, principal: Principal) -> Self {
        Self { namespace: namespace.into(), principal, path: None }
    }

    /// Narrows the scope to one path: the same key on another path is another operation.
    #[must_use]
    pub fn on_path(mut self, path: impl Into<Box<str>>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The principal.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What the ids of all records of this namespace and principal end in, whatever their path.
    pub fn tag(&self, secret: &Secret) -> ScopeTag {
        let mut hasher = secret.scope_tag_hasher();
        hasher.field(&[RECORD_ID_VERSION, self.principal.tag()]);
        hasher.field(self.namespace.as_bytes());
        if let Principal::Named(identity) = &self.principal {
            hasher.field(identity);
        }
        let mut tag = [0; 8];
        tag.copy_from_slice(&hasher.finish()[..8]);
        ScopeTag(tag)
    }

    /// This scope's `key`.
    pub fn key(&self, key: Key) -> ScopedKey {
        self.clone().into_key(key)
    }

    /// This scope's `key`, for callers who need the scope no longer.
    pub const fn into_key(self, key: Key) -> ScopedKey {
        ScopedKey { scope: self, key }
    }
}

/// A key together with whose key it is: names one operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScopedKey {
    scope: Scope,
    key: Key,
}

impl ScopedKey {
    /// Whose key it is.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Where the operation is remembered.
    pub fn record_id(&self, secret: &Secret) -> RecordId {
        let mut hasher = secret.record_id_hasher();
        hasher.field(&[RECORD_ID_VERSION, self.scope.principal.tag(), u8::from(self.scope.path.is_some())]);
        hasher.field(self.scope.namespace.as_bytes());
        if let Principal::Named(identity) = &self.scope.principal {
            hasher.field(identity);
        }
        if let Some(path) = &self.scope.path {
            hasher.field(path.as_bytes());
        }
        hasher.field(self.key.as_str().as_bytes());

        let mut id = [RECORD_ID_VERSION; 32];
        id[1..24].copy_from_slice(&hasher.finish()[..23]);
        id[24..].copy_from_slice(&self.scope.tag(secret).0);
        RecordId(id)
    }
}

/// The part of a record id that all keys of one namespace and principal share, so that one principal's records can
/// be listed and erased without knowing their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScopeTag([u8; 8]);

impl ScopeTag {
    /// The tag in a record's id.
    pub fn of(id: &RecordId) -> Self {
        let mut tag = [0; 8];
        tag.copy_from_slice(&id.0[24..]);
        Self(tag)
    }

    /// The bytes, for a store on another machine.
    pub const fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

/// The name of a record in a store: a version byte, 184 bits of a keyed hash of scope and key, and a [`ScopeTag`].
///
/// It says nothing about the key to whoever does not hold the [`Secret`], so it may appear in logs and links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId([u8; 32]);

impl RecordId {
    /// Takes bytes that a store kept.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store to keep.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Eight hexadecimal digits of the id, which is what logs show instead of a key.
    pub fn short(&self) -> String {
        hex::encode(&self.0[1..5])
    }

    /// Whether the id belongs to the scope of `tag`.
    pub fn is_in(&self, tag: ScopeTag) -> bool {
        self.0[24..] == tag.0
    }

    /// Whether the id begins with the hexadecimal `digits`, as [`RecordId::short`] or the whole text writes them.
    pub fn begins_with(&self, digits: &str) -> bool {
        let text = self.to_string();
        text.starts_with(digits) || text[2..].starts_with(digits)
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordId({})", self.short())
    }
}

impl FromStr for RecordId {
    type Err = HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        hex::decode(text).and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(HexError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(scope: &Scope, key: &str) -> RecordId {
        scope.key(Key::new(key).unwrap()).record_id(&Secret::new([7; 32]))
    }

    #[test]
    fn the_derivation_does_not_drift() {
        // A changed derivation would look old records up in the wrong place and run their work again.
        let scope = Scope::new("payments", Principal::named("alice")).on_path("/v1/payments");
        assert_eq!(
            id(&scope, "order-7").to_string(),
            "011012fcb160d30c2914e8cae91d61ba4532fe6ae09b97d9762bca9032d5cdeb",
        );
    }

    #[test]
    fn i10_every_part_of_the_scope_separates() {
        let base = Scope::new("n", Principal::named("p"));
        let others = [
            Scope::new("n", Principal::named("q")),
            Scope::new("m", Principal::named("p")),
            Scope::new("n", Principal::Shared),
            Scope::new("n", Principal::Anonymous),
            Scope::new("n", Principal::named("")),
            Scope::new("n", Principal::named("Anonymous")),
            base.clone().on_path("/a"),
            base.clone().on_path(""),
            Scope::new("np", Principal::named("")),
        ];
        for (at, other) in others.iter().enumerate() {
            assert_ne!(id(&base, "k"), id(other, "k"), "{other:?}");
            for later in &others[at + 1..] {
                assert_ne!(id(other, "k"), id(later, "k"), "{other:?} and {later:?}");
            }
        }
        assert_ne!(
            base.key(Key::new("k").unwrap()).record_id(&Secret::new([8; 32])),
            id(&base, "k"),
            "another secret finds nothing",
        );
    }

    #[test]
    fn text_form_round_trips_and_refuses_the_rest() {
        let id = id(&Scope::new("n", Principal::Shared), "k");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.short(), id.to_string()[2..10]);
        for bad in ["", "01", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<RecordId>(), Err(HexError), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn i10_shifting_a_field_boundary_changes_the_id(
            text in "[a-c]{2,12}", left in 0usize..12, right in 0usize..12,
        ) {
            let at = |cut: usize| { let cut = cut.min(text.len() - 1); (&text[..cut], &text[cut..]) };
            let ((a, b), (c, d)) = (at(left), at(right));
            let one = id(&Scope::new("n", Principal::named(a)), b);
            let two = id(&Scope::new("n", Principal::named(c)), d);
            proptest::prop_assert_eq!(one == two, a == c);
        }
    }
}
