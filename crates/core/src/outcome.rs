//! What a grant produced: opaque bytes with a content version, or a tombstone that says why they were not kept.
//!
//! Stores keep outcomes and never look inside. The door that writes an outcome is the one that reads it.

use std::fmt;

use bytes::Bytes;

use crate::error::MisuseError;

/// The most bytes of [`Outcome::head`]: a status and a class fit, a message does not.
pub const HEAD_BYTES_MAX: usize = 64;

/// The result of an operation, as it will be replayed.
///
/// The *head* is the little that a retry may still be told when the body is gone (an HTTP status, say). It survives
/// erasure, so it must hold nothing about a person.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    content_version: u16,
    head: Bytes,
    body: Body,
}

/// The part of an outcome that may be dropped.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// The bytes, as the door wrote them.
    Kept(Bytes),
    /// Nothing, and why.
    Tombstone(Tombstone),
}

/// Why a body was not kept. The work is done all the same: it does not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Tombstone {
    /// The answer was larger than may be stored.
    TooLarge,
    /// The application asked for it not to be kept.
    Discarded,
    /// It was erased on request.
    Erased,
    /// Nobody knows whether the work happened, and the policy said to close the record.
    Indeterminate,
}

impl Outcome {
    /// An outcome whose bytes are kept. `content_version` is the door's own version of what the bytes mean.
    pub fn kept(content_version: u16, body: impl Into<Bytes>) -> Self {
        Self { content_version, head: Bytes::new(), body: Body::Kept(body.into()) }
    }

    /// An outcome whose bytes are not kept.
    pub const fn tombstone(content_version: u16, why: Tombstone) -> Self {
        Self { content_version, head: Bytes::new(), body: Body::Tombstone(why) }
    }

    /// Adds what a retry may be told even when the body is gone.
    pub fn with_head(mut self, head: impl Into<Bytes>) -> Result<Self, MisuseError> {
        self.head = head.into();
        if self.head.len() > HEAD_BYTES_MAX {
            return Err(MisuseError::new("the head of an outcome is longer than 64 bytes"));
        }
        Ok(self)
    }

    /// The door's version of what the bytes mean.
    pub const fn content_version(&self) -> u16 {
        self.content_version
    }

    /// What survives erasure.
    pub const fn head(&self) -> &Bytes {
        &self.head
    }

    /// The bytes, or why there are none.
    pub const fn body(&self) -> &Body {
        &self.body
    }

    /// The same outcome with its body gone. Also a tombstone says so then: nothing may be kept beside it any more.
    #[must_use]
    pub fn erased(&self) -> Self {
        Self {
            content_version: self.content_version,
            head: self.head.clone(),
            body: Body::Tombstone(Tombstone::Erased),
        }
    }

    /// The same outcome with other bytes in its body.
    #[must_use]
    pub(crate) fn with_bytes(&self, bytes: Bytes) -> Self {
        Self { content_version: self.content_version, head: self.head.clone(), body: Body::Kept(bytes) }
    }

    /// Whether the body was erased on request.
    pub const fn is_erased(&self) -> bool {
        matches!(self.body, Body::Tombstone(Tombstone::Erased))
    }

    /// How many bytes the outcome carries.
    pub fn len(&self) -> usize {
        self.head.len() + if let Body::Kept(bytes) = &self.body { bytes.len() } else { 0 }
    }

    /// Whether it carries no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Body {
    /// The bytes, if they are kept.
    pub const fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Kept(bytes) => Some(bytes),
            Self::Tombstone(_) => None,
        }
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies hold card numbers and addresses: their length is shown, never their bytes.
        match &self.body {
            Body::Kept(bytes) => write!(f, "Outcome(v{}, {} bytes)", self.content_version, bytes.len()),
            Body::Tombstone(why) => write!(f, "Outcome(v{}, {why:?})", self.content_version),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            Self::Tombstone(why) => write!(f, "Tombstone({why:?})"),
        }
    }
}
