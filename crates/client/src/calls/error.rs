//! Why a call was not made, or not made again.

use std::error::Error;
use std::fmt;

use onlyonce_core::key::derive::DeriveError;

use crate::journal::JournalError;

/// A failure of the middleware itself; what the network says is `reqwest`'s own error.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The key could not be put on record. Nothing was sent.
    Journal(JournalError),
    /// No key could be made. Nothing was sent.
    Key(DeriveError),
    /// The request has a body that can be sent only once. Nothing was sent.
    BodyNotRepeatable,
    /// The request names an operation and brings a key of its own. Nothing was sent.
    TwoKeys,
    /// The key cannot be written without quotes. Nothing was sent.
    NotBare,
    /// The server did not answer in time. It may have done what it was asked.
    TimedOut,
    /// There is no chance to be had for the wait before the next attempt.
    Chance(getrandom::Error),
}

impl CallError {
    pub(super) fn of_middleware(self) -> reqwest_middleware::Error {
        reqwest_middleware::Error::middleware(self)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Journal(_) => "the key of the operation could not be put on record",
            Self::Key(_) => "no key could be made for the operation",
            Self::BodyNotRepeatable => "the body of the request can be sent only once",
            Self::TwoKeys => "the request names an operation and brings a key of its own",
            Self::NotBare => "the key of the operation cannot be written in the form asked for",
            Self::TimedOut => "the server did not answer in time",
            Self::Chance(_) => "there is no random source",
        })
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Journal(source) => Some(source),
            Self::Key(source) => Some(source),
            Self::Chance(source) => Some(source),
            Self::BodyNotRepeatable | Self::TwoKeys | Self::NotBare | Self::TimedOut => None,
        }
    }
}
