//! What a call is meant to do, as its caller names it: the same name is the same operation, and gets the same key.

use std::error::Error;
use std::fmt;

use onlyonce_core::Key;
use onlyonce_core::key::derive::{Derivation, DeriveError, Form};

/// The longest name of an operation, in bytes.
pub const OPERATION_BYTES_MAX: usize = 1024;

/// One logical operation, however often its request is sent. Goes with a request as an extension.
///
/// ```
/// use onlyonce_client::Operation;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A random key, on record before the first send; the same name gets it again after a restart.
/// let charge = Operation::named("order-7/charge")?;
///
/// // A call made on behalf of a call: the same key whenever the outer one is handled again. Nothing is recorded.
/// let incoming = onlyonce_core::Key::new("order-7")?;
/// let mail = Operation::derived(&incoming, "mail")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Operation(pub(crate) Source);

/// Where the key comes from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The journal.
    Journal(String),
    /// The caller.
    Key(Key),
}

impl Operation {
    /// The operation that the journal keeps a key for under `name`: 1 to 1024 bytes, chosen so that a retry chooses
    /// the same (`order-7/charge`, never a time or a random number).
    pub fn named(name: impl Into<String>) -> Result<Self, OperationError> {
        let name = name.into();
        if name.is_empty() || name.len() > OPERATION_BYTES_MAX {
            return Err(OperationError(None));
        }
        Ok(Self(Source::Journal(name)))
    }

    /// The operation with this key, which the caller computes or keeps by itself.
    pub const fn with_key(key: Key) -> Self {
        Self(Source::Key(key))
    }

    /// The call `name` made while the operation `parent` is handled.
    ///
    /// Its key follows from the two, so that handling `parent` again makes the same call, in every process.
    pub fn derived(parent: &Key, name: &str) -> Result<Self, OperationError> {
        let derivation =
            Derivation::new(parent.as_str(), name).map_err(|error| OperationError(Some(error)))?;
        Ok(Self::with_key(derivation.with_form(Form::LengthPrefixed).key()))
    }
}

impl fmt::Debug for Operation {
    /// Never shows the name: it names orders and people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::Journal(_) => "Operation(named)",
            Source::Key(_) => "Operation(with key)",
        })
    }
}

/// An operation that cannot be named so.
#[derive(Debug)]
pub struct OperationError(Option<DeriveError>);

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "no key can be derived for the operation"
        } else {
            "an operation has a name of 1 to 1024 bytes"
        })
    }
}

impl Error for OperationError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.as_ref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_keys_depend_on_both_names_and_nothing_else() {
        let (a, b) = (Key::new("a").unwrap(), Key::new("b").unwrap());
        assert_eq!(Operation::derived(&a, "mail").unwrap(), Operation::derived(&a, "mail").unwrap());
        assert_ne!(Operation::derived(&a, "mail").unwrap(), Operation::derived(&b, "mail").unwrap());
        assert_ne!(Operation::derived(&a, "mail").unwrap(), Operation::derived(&a, "charge").unwrap());
        assert!(Operation::derived(&a, "").is_err());
    }

    #[test]
    fn names_are_bounded_and_not_shown() {
        assert!(Operation::named("").is_err());
        assert!(Operation::named("x".repeat(OPERATION_BYTES_MAX + 1)).is_err());
        let operation = Operation::named("x".repeat(OPERATION_BYTES_MAX)).unwrap();
        assert!(!format!("{operation:?}").contains('x'));
    }
}
