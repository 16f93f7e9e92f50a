//! Why an operation could be neither run nor answered. Conflicts are replies, not errors.

use std::error::Error;
use std::fmt;

use crate::error::{BoxError, MisuseError, RandomError};
use crate::store::{StoreError, StoreErrorKind};

/// The engine could not do its part. No work was started, unless the kind says otherwise.
#[derive(Debug)]
pub struct EngineError {
    kind: EngineErrorKind,
    source: Option<BoxError>,
    is_taken: bool,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EngineErrorKind {
    /// The store failed, so nothing was started.
    Store(StoreErrorKind),
    /// The recorded value cannot be read as the type asked for. The work was done before and was not run again.
    Value,
    /// The engine is shutting down, or its runtime is.
    Stopping,
    /// The engine was set up wrongly.
    Misuse,
    /// The operating system gave no random bytes.
    Random,
}

impl EngineError {
    const fn new(kind: EngineErrorKind, source: Option<BoxError>) -> Self {
        Self { kind, source, is_taken: false }
    }

    pub(super) const fn stopping() -> Self {
        Self::new(EngineErrorKind::Stopping, None)
    }

    pub(super) fn misuse(source: MisuseError) -> Self {
        Self::new(EngineErrorKind::Misuse, Some(source.into()))
    }

    pub(super) fn value(source: impl Into<BoxError>) -> Self {
        Self::new(EngineErrorKind::Value, Some(source.into()))
    }

    /// The same, after the store had said that there is another attempt.
    pub(super) fn taken(self) -> Self {
        Self { is_taken: true, ..self }
    }

    /// What kind of failure it is.
    pub const fn kind(&self) -> EngineErrorKind {
        self.kind
    }

    /// The store's own error, if it was the store.
    pub fn store_error(&self) -> Option<&StoreError> {
        self.source.as_ref()?.downcast_ref()
    }

    /// Whether the store had told of another attempt under the key before it failed: whoever runs the work all the same
    /// runs it beside that one, or again.
    pub const fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            EngineErrorKind::Store(_) => self.store_error().is_some_and(StoreError::is_retryable),
            EngineErrorKind::Stopping => true,
            EngineErrorKind::Value | EngineErrorKind::Misuse | EngineErrorKind::Random => false,
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(source: StoreError) -> Self {
        Self::new(EngineErrorKind::Store(source.kind()), Some(source.into()))
    }
}

impl From<RandomError> for EngineError {
    fn from(source: RandomError) -> Self {
        Self::new(EngineErrorKind::Random, Some(source.into()))
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            EngineErrorKind::Store(_) => {
                "the operation was not started because its record could not be claimed"
            }
            EngineErrorKind::Value => "the recorded value cannot be read",
            EngineErrorKind::Stopping => "the engine is shutting down",
            EngineErrorKind::Misuse => "the engine is set up wrongly",
            EngineErrorKind::Random => "the operation was not started for want of random bytes",
        })
    }
}

impl Error for EngineError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
