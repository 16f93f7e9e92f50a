//! What goes wrong in a journal. Nothing is sent then: a key that is not on record protects nothing.

use std::error::Error;
use std::fmt;

use onlyonce_core::BoxError;

/// A journal could not do what it was asked.
#[derive(Debug)]
pub struct JournalError {
    kind: JournalErrorKind,
    source: Option<BoxError>,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JournalErrorKind {
    /// Another process, or another journal of this one, has the file.
    InUse,
    /// The file cannot be read or written.
    Failed,
    /// What is written cannot be read, and is not merely the torn end of the last write.
    Damaged,
    /// As many operations as it may keep are not over yet.
    Full,
}

impl JournalError {
    pub(super) const fn new(kind: JournalErrorKind) -> Self {
        Self { kind, source: None }
    }

    pub(super) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> JournalErrorKind {
        self.kind
    }
}

impl From<std::io::Error> for JournalError {
    fn from(source: std::io::Error) -> Self {
        Self::new(JournalErrorKind::Failed).because(source)
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            JournalErrorKind::InUse => "another journal has the file",
            JournalErrorKind::Failed => "the journal cannot be read or written",
            JournalErrorKind::Damaged => "the journal is damaged",
            JournalErrorKind::Full => "the journal keeps as many operations as it may",
        })
    }
}

impl Error for JournalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
