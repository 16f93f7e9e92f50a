//! Why no key could be made. What the caller sent is never repeated: it may be hostile, secret or both.

use std::error::Error;
use std::fmt;

use super::{INTEGER_DIGITS_MAX, PARAMS_DEPTH_MAX, WINDOW_MAX};
use crate::error::RandomError;
use crate::fingerprint::canonical::CanonicalError;

/// Why no key could be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeriveError {
    /// A field that names something is empty.
    Empty {
        /// Which one.
        field: &'static str,
    },
    /// A field is too long.
    TooLong {
        /// Which one.
        field: &'static str,
        /// How long it is, in bytes.
        bytes: usize,
        /// How long it may be, in bytes.
        bytes_max: usize,
    },
    /// The params are not JSON.
    ParamsMalformed {
        /// What the parser said, and where.
        reason: String,
    },
    /// The params are JSON but not an object.
    ParamsNotObject,
    /// The params are nested deeper than [`PARAMS_DEPTH_MAX`].
    ParamsTooDeep,
    /// A value in the params has no one meaning.
    ParamsRefused {
        /// What is wrong with it.
        reason: ParamsRefusal,
        /// The line of the value or name, from 1.
        line: usize,
        /// The column at which it starts, from 1, in bytes.
        column: usize,
    },
    /// A body has no canonical form.
    Body(CanonicalError),
    /// The window is zero, longer than [`WINDOW_MAX`], or not whole milliseconds.
    Window,
    /// The time lies in the first window after 1970-01-01: the clock that told it was never set.
    TooEarly,
    /// The time lies beyond the year 10889, the last that a version 7 UUID can carry.
    TooLate,
    /// There is no randomness to make a key from.
    Random(RandomError),
}

/// What makes a value in the params unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParamsRefusal {
    /// An object names a member twice: parsers disagree on which one counts.
    DuplicateMember,
    /// A text holds half of a surrogate pair, which UTF-8 cannot hold.
    LoneSurrogate,
    /// A number is beyond the largest double.
    Infinite,
    /// An integer has more than [`INTEGER_DIGITS_MAX`] digits.
    IntegerTooLong,
}

impl fmt::Display for DeriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty { field } => write!(f, "the {field} is empty"),
            Self::TooLong { field, bytes, bytes_max } => {
                write!(f, "{bytes} bytes of {field}, at most {bytes_max} are read")
            }
            Self::ParamsMalformed { reason } => write!(f, "the params are not JSON: {reason}"),
            Self::ParamsNotObject => write!(f, "the params are not a JSON object"),
            Self::ParamsTooDeep => write!(f, "the params are nested deeper than {PARAMS_DEPTH_MAX} levels"),
            Self::ParamsRefused { reason, line, column } => {
                write!(f, "the params cannot be used: {reason}, at line {line} column {column}")
            }
            Self::Body(_) => write!(f, "the body has no canonical form"),
            Self::Window => write!(
                f,
                "the window must be whole milliseconds, more than none and at most {} days",
                WINDOW_MAX.as_secs() / 86_400
            ),
            Self::TooEarly => {
                write!(f, "the time lies in the first window after 1970: was the clock ever set")
            }
            Self::TooLate => write!(f, "the time is beyond what a version 7 UUID can carry"),
            Self::Random(_) => write!(f, "no random key could be made"),
        }
    }
}

impl fmt::Display for ParamsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateMember => write!(f, "an object names a member twice"),
            Self::LoneSurrogate => write!(f, "a text holds half of a surrogate pair"),
            Self::Infinite => write!(f, "a number is too large for a double"),
            Self::IntegerTooLong => write!(f, "an integer has more than {INTEGER_DIGITS_MAX} digits"),
        }
    }
}

impl Error for DeriveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Body(source) => Some(source),
            Self::Random(source) => Some(source),
            _ => None,
        }
    }
}
