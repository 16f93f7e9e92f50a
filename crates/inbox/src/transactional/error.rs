//! Why a message was not handled in a transaction. Duplicate, busy and parked are answers, not errors.

use std::error::Error;
use std::fmt;

use onlyonce_core::{BoxError, MisuseError, RandomError, StoreError};

/// A message was not handled. Roll the transaction back.
#[derive(Debug)]
pub struct InboxError {
    kind: InboxErrorKind,
    source: Option<BoxError>,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InboxErrorKind {
    /// The handler failed. What it did was rolled back, and the message may be tried again.
    Handler {
        /// Which attempt it was, 1 for the first.
        attempt: u32,
        /// Whether it was as many as there may be: dead-letter it.
        last: bool,
    },
    /// The grant was lost to another attempt while this one ran: what it did was rolled back.
    Fenced,
    /// The store, or the transaction, failed. If the effect was begun, it is gone with the transaction.
    Store,
    /// What was asked for cannot work.
    Misuse,
}

impl InboxError {
    pub(super) fn handler(source: impl Into<BoxError>, attempt: u32, last: bool) -> Self {
        Self { kind: InboxErrorKind::Handler { attempt, last }, source: Some(source.into()) }
    }

    pub(super) const fn fenced() -> Self {
        Self { kind: InboxErrorKind::Fenced, source: None }
    }

    pub(crate) fn database(source: impl Into<BoxError>) -> Self {
        Self { kind: InboxErrorKind::Store, source: Some(source.into()) }
    }

    pub(crate) fn misuse(reason: &'static str) -> Self {
        Self { kind: InboxErrorKind::Misuse, source: Some(MisuseError::new(reason).into()) }
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> InboxErrorKind {
        self.kind
    }
}

impl From<StoreError> for InboxError {
    fn from(source: StoreError) -> Self {
        Self::database(source)
    }
}

impl From<RandomError> for InboxError {
    fn from(source: RandomError) -> Self {
        Self::database(source)
    }
}

impl fmt::Display for InboxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            InboxErrorKind::Handler { attempt, .. } => write!(f, "the handler failed in attempt {attempt}"),
            InboxErrorKind::Fenced => f.write_str("another attempt has taken over"),
            InboxErrorKind::Store => f.write_str("the message could not be claimed or marked"),
            InboxErrorKind::Misuse => f.write_str("the inbox was used wrongly"),
        }
    }
}

impl Error for InboxError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Checks a name that becomes part of statements.
pub(crate) fn schema_name(text: &str) -> Result<String, InboxError> {
    let is_name = !text.is_empty()
        && text.len() <= 63
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if is_name {
        return Ok(text.to_owned());
    }
    Err(InboxError::misuse("a schema is named by lower-case letters, digits and underscores"))
}
