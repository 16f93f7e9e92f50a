//! Why a consumer did not start, or stopped. What becomes of single messages is no error.

use std::error::Error;
use std::fmt;

use onlyonce_core::{BoxError, EngineError, MisuseError};

use crate::source::SourceError;

/// A consumer cannot start, or cannot go on.
#[derive(Debug)]
pub struct ConsumerError {
    kind: ConsumerErrorKind,
    source: BoxError,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerErrorKind {
    /// It was set up wrongly.
    Misuse,
    /// Records would be forgotten before the source stops delivering again.
    ShortRetention,
    /// The store could not be asked at the start.
    Engine,
    /// The source refuses to go on.
    Source,
}

impl ConsumerError {
    pub(super) fn misuse(reason: &'static str) -> Self {
        Self { kind: ConsumerErrorKind::Misuse, source: MisuseError::new(reason).into() }
    }

    pub(super) fn short_retention(text: String) -> Self {
        Self { kind: ConsumerErrorKind::ShortRetention, source: text.into() }
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> ConsumerErrorKind {
        self.kind
    }
}

impl From<EngineError> for ConsumerError {
    fn from(source: EngineError) -> Self {
        Self { kind: ConsumerErrorKind::Engine, source: source.into() }
    }
}

impl From<SourceError> for ConsumerError {
    fn from(source: SourceError) -> Self {
        Self { kind: ConsumerErrorKind::Source, source: source.into() }
    }
}

impl fmt::Display for ConsumerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ConsumerErrorKind::Misuse => "the consumer is set up wrongly",
            ConsumerErrorKind::ShortRetention => "the consumer would forget messages that may come again",
            ConsumerErrorKind::Engine => "the consumer's store could not be opened",
            ConsumerErrorKind::Source => "the source cannot go on",
        })
    }
}

impl Error for ConsumerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
