//! Why a store does not open, and what a failed call means for the command in it.

use std::error::Error;
use std::fmt;

use onlyonce_core::{BoxError, StoreError, StoreErrorKind};
use tokio_postgres::error::SqlState;

/// The store cannot be opened or migrated. The text says what to do.
#[derive(Debug)]
pub struct OpenError {
    kind: OpenErrorKind,
    problem: String,
    source: Option<BoxError>,
}

/// What kind of refusal it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpenErrorKind {
    /// The URL or a certificate cannot be used.
    Settings,
    /// The server cannot be reached, or does not let us in.
    Unavailable,
    /// The server cannot keep what would be promised: it does not sync, or it is a standby.
    Unsafe,
    /// The schema is missing, or of another version.
    Schema,
}

impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind, problem: impl Into<String>) -> Self {
        Self { kind, problem: problem.into(), source: None }
    }

    pub(crate) fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of refusal it is.
    pub const fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    /// The same as the failure of a command that was never sent.
    pub(crate) fn into_store_error(self, doing: &'static str) -> StoreError {
        let kind = match self.kind {
            OpenErrorKind::Schema => StoreErrorKind::Unsupported,
            _ => StoreErrorKind::Unavailable,
        };
        StoreError::new(kind, doing).because(self)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// Why a call brought no rows.
#[derive(Debug)]
pub(crate) enum CallError {
    /// It was never sent: there is no connection.
    Unsent(OpenError),
    /// The server answered that it did not do it, or the connection broke before it answered.
    Failed(tokio_postgres::Error),
    /// Nothing came back in time.
    TimedOut,
}

impl CallError {
    /// Whether the server undid the call for the sake of others: it may be sent again as it is.
    pub(crate) fn is_undone_for_others(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
            // A day's partition went away between the look and the insert.
            SqlState::CHECK_VIOLATION,
            SqlState::UNDEFINED_TABLE,
            // The functions were replaced under a prepared statement.
            SqlState::FEATURE_NOT_SUPPORTED,
        ]
        .iter()
        .any(|state| error.code() == Some(state))
    }

    /// Whether another transaction held one of the rows for longer than the call waits.
    pub(crate) fn is_held_up(&self) -> bool {
        matches!(self, Self::Failed(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
    }

    /// Whether the connection may still be used.
    pub(crate) fn leaves_connection(&self) -> bool {
        let Self::Failed(error) = self else { return false };
        !error.is_closed() && !is_fatal(error) && error.code() != Some(&SqlState::FEATURE_NOT_SUPPORTED)
    }

    /// The failure of one command in the call.
    pub(crate) fn of(&self, doing: &'static str) -> StoreError {
        match self {
            Self::Unsent(error) => OpenError::new(error.kind, chain(error)).into_store_error(doing),
            Self::TimedOut => StoreError::new(StoreErrorKind::TimedOut, doing),
            Self::Failed(error) => {
                let kind = match error.code() {
                    Some(state) if is_of_schema(state) => StoreErrorKind::Unsupported,
                    _ => StoreErrorKind::Unavailable,
                };
                let failure = StoreError::new(kind, doing).because(chain(error));
                // An error that the server reports was rolled back. One that ends the session may come after the
                // commit, and a broken connection says nothing.
                let known = error.as_db_error().is_some() && !is_fatal(error);
                if known { failure } else { failure.with_unknown_outcome() }
            }
        }
    }
}

/// Whether the server ends the session with this error.
fn is_fatal(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::Severity;
    error.as_db_error().is_some_and(|error| {
        matches!(error.parsed_severity(), None | Some(Severity::Fatal | Severity::Panic))
    })
}

fn is_of_schema(state: &SqlState) -> bool {
    [SqlState::UNDEFINED_FUNCTION, SqlState::INVALID_SCHEMA_NAME, SqlState::UNDEFINED_COLUMN].contains(state)
}

/// An error and what it rests on in one line: one failure is told to every command of a batch.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
