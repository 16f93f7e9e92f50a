//! HTTP/1 as the sidecar itself speaks it: what a head says, how a body is framed, and how both are written.
//!
//! hyper serves every case there is, and pays for it with a channel for each body and a queue for each connection. Most
//! requests of a sidecar need neither. What is here knows nothing of sockets that are shared, of upgrades and of HTTP/2.

mod chunk;
mod fields;
mod incoming;
mod sending;

use std::fmt;

pub(crate) use chunk::Chunks;
pub(crate) use fields::{fields, is_listed, length, listed, number, put_field, put_fields, shared};
pub(crate) use incoming::{Decoded, Incoming, Remaining};
pub(crate) use sending::{Framing, Sending, Unsent};

/// The most fields of a head from the upstream.
pub(crate) const FIELDS_MAX: usize = 100;

/// The most bytes of a head from the upstream, and of the trailers.
pub(crate) const HEAD_BYTES_MAX: usize = 400 * 1024;

/// Up to here a body that came with its head shares its memory.
pub(crate) const TOGETHER_MAX: usize = 4 * 1024;

/// What makes bytes no HTTP/1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Malformed {
    /// The first line or a field.
    Head,
    /// There is more of it than is read.
    HeadTooLarge,
    /// Content-Length is not one number, or Transfer-Encoding stands where it must not.
    Length,
    Chunk,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "malformed head",
            Self::HeadTooLarge => "the head is too large",
            Self::Length => "malformed Content-Length or Transfer-Encoding",
            Self::Chunk => "malformed chunk",
        })
    }
}

impl std::error::Error for Malformed {}
