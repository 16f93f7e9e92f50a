//! What goes wrong in a source itself. Gone is an answer, not an error.

use std::error::Error;
use std::fmt;

use onlyonce_core::BoxError;

/// A source could not do what it was asked.
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    doing: &'static str,
    source: Option<BoxError>,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The broker cannot be reached, or did not answer. Asking again may help.
    Unavailable,
    /// The broker refuses: no such queue, no permission. Asking again does not help until someone changes something.
    Refused,
    /// What was delivered, or what the broker answered, cannot be read.
    Corrupt,
    /// Our caller's bug, or a configuration that cannot work.
    Misuse,
}

impl SourceError {
    /// A failure of `kind` while `doing` something ("fetching messages").
    pub const fn new(kind: SourceErrorKind, doing: &'static str) -> Self {
        Self { kind, doing, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// A stable name for logs, metrics and error pages.
    pub const fn code(&self) -> &'static str {
        match self.kind {
            SourceErrorKind::Unavailable => "source-unavailable",
            SourceErrorKind::Refused => "source-refused",
            SourceErrorKind::Corrupt => "source-corrupt",
            SourceErrorKind::Misuse => "source-misuse",
        }
    }

    /// Whether the same call may succeed later by itself.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.kind, SourceErrorKind::Unavailable)
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            SourceErrorKind::Unavailable => "the broker is unavailable",
            SourceErrorKind::Refused => "the broker refused",
            SourceErrorKind::Corrupt => "what the broker sent cannot be read",
            SourceErrorKind::Misuse => "the source was called or configured wrongly",
        };
        write!(f, "{}: {what}", self.doing)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
