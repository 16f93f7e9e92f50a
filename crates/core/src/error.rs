//! The small errors that more than one part of the core raises. Larger ones live beside what raises them.

use std::error::Error;
use std::fmt;

/// An error whose type nobody needs to know.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The operating system gave no random bytes. Nothing may run: an owner that can be guessed is no owner.
#[derive(Debug)]
pub struct RandomError(BoxError);

impl RandomError {
    pub(crate) fn new(source: impl Into<BoxError>) -> Self {
        Self(source.into())
    }
}

impl fmt::Display for RandomError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operating system gave no random bytes")
    }
}

impl Error for RandomError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

/// A text is not the 64 hexadecimal digits of a record id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HexError;

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record id is 64 hexadecimal digits")
    }
}

impl Error for HexError {}

/// A value the calling code chose is out of its range. Never caused by what a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MisuseError(&'static str);

impl MisuseError {
    /// Also for stores and doors that have values of their own to refuse.
    pub const fn new(reason: &'static str) -> Self {
        Self(reason)
    }
}

impl fmt::Display for MisuseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for MisuseError {}
