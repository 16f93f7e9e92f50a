//! What goes wrong in a store itself. Busy, Replay, Mismatch, Held and Fenced are answers, not errors.

use std::error::Error;
use std::fmt;

use crate::error::BoxError;
use crate::record::codec::CodecError;

/// A store could not do what it was asked. Says whether to try again, and whether it may have been done all the same.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    doing: &'static str,
    outcome_unknown: bool,
    source: Option<BoxError>,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store cannot be reached, or refuses everyone.
    Unavailable,
    /// The store did not answer in time.
    TimedOut,
    /// The store is at its bound and takes no new record. What is granted can still be completed.
    Full,
    /// What is stored cannot be read. The key is refused until someone looks.
    Corrupt,
    /// What is stored, or asked for, is of a newer version.
    Unsupported,
    /// Our caller's bug, never caused by what a request carries.
    Misuse,
}

impl StoreErrorKind {
    /// A stable name for logs, metrics and error pages.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unavailable => "store-unavailable",
            Self::TimedOut => "store-timed-out",
            Self::Full => "store-full",
            Self::Corrupt => "record-corrupt",
            Self::Unsupported => "record-unsupported",
            Self::Misuse => "store-misuse",
        }
    }
}

impl StoreError {
    /// A failure of `kind` while `doing` something ("claiming a record").
    pub const fn new(kind: StoreErrorKind, doing: &'static str) -> Self {
        // A call that ran out of time may have arrived; every other failure says otherwise if it knows otherwise.
        let outcome_unknown = matches!(kind, StoreErrorKind::TimedOut);
        Self { kind, doing, outcome_unknown, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says that the command may have been applied.
    #[must_use]
    pub const fn with_unknown_outcome(mut self) -> Self {
        self.outcome_unknown = true;
        self
    }

    /// The failure of reading bytes back.
    pub fn undecodable(source: CodecError, doing: &'static str) -> Self {
        let kind = match source {
            CodecError::Version(_) => StoreErrorKind::Unsupported,
            CodecError::Damaged(_) => StoreErrorKind::Corrupt,
        };
        Self::new(kind, doing).because(source)
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// A stable name for logs, metrics and error pages.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Whether the same command may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable | StoreErrorKind::TimedOut | StoreErrorKind::Full)
    }

    /// Whether it is the record itself that cannot be read: it is there, and asking again does not help.
    pub const fn is_unreadable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Corrupt | StoreErrorKind::Unsupported)
    }

    /// Whether the command may have been applied although it failed.
    pub const fn outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::TimedOut => "the store did not answer in time",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::Corrupt => "the stored record cannot be read",
            StoreErrorKind::Unsupported => "the stored record is of an unsupported version",
            StoreErrorKind::Misuse => "the store was called wrongly",
        };
        write!(f, "{}: {what}", self.doing)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
