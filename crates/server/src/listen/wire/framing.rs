//! Where one request ends and the next begins, on the bytes of a connection. **Pure.**
//!
//! Follows heads ([`Head`]) and bodies so that every head is seen before hyper sees it. It never changes a byte: it
//! says how many may be passed on, or why none may.

use std::fmt;

use super::head::{Content, Head};
use crate::http1::Chunks;

/// What an HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How large a head may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeadLimits {
    /// Bytes of the request line and all fields.
    pub(crate) bytes_max: usize,
    /// Fields.
    pub(crate) fields_max: usize,
}

/// Why a request is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The first line is not `METHOD target HTTP/1.x`.
    RequestLine,
    /// A line ends in something other than CRLF.
    LineEnd,
    /// A field is malformed, or folded.
    Field,
    /// Content-Length is not one number.
    Length,
    /// Transfer-Encoding is not `chunked` alone, or stands where it must not.
    Encoding,
    /// There is not exactly one Host.
    Host,
    /// The head has too many bytes or fields.
    TooLarge,
    /// A chunked body is malformed.
    Chunk,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RequestLine => "malformed request line",
            Self::LineEnd => "a line does not end in CRLF",
            Self::Field => "malformed header field",
            Self::Length => "Content-Length is not one number",
            Self::Encoding => "Transfer-Encoding that can be read in two ways",
            Self::Host => "not exactly one Host",
            Self::TooLarge => "the head is too large",
            Self::Chunk => "malformed chunk",
        })
    }
}

/// What follows on a connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    limits: HeadLimits,
    /// Only the first bytes of a connection can make it an HTTP/2 one.
    is_first: bool,
}

#[derive(Debug)]
enum State {
    /// A head, of which `read` bytes were lines that are in `head` already.
    Head {
        head: Head,
        read: usize,
    },
    Sized(u64),
    Chunked(Chunks),
    /// Not HTTP/1 (any more): everything passes.
    Through,
}

/// What may be done with the bytes that were looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// So many from the front may be passed on.
    pub(crate) pass: usize,
    /// The rest is refused; otherwise it is part of a head that is to be shown again with what follows it.
    pub(crate) refusal: Option<Refusal>,
}

impl Framing {
    pub(crate) fn new(limits: HeadLimits) -> Self {
        Self { state: State::head(), limits, is_first: true }
    }

    /// Lets everything pass from now on: the connection has switched to another protocol.
    pub(crate) fn pass_through(&mut self) {
        self.state = State::Through;
    }

    /// Whether the next byte begins a request.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.state, State::Head { read: 0, .. })
    }

    /// Whether no request is looked for any more.
    pub(crate) fn is_through(&self) -> bool {
        matches!(self.state, State::Through)
    }

    /// Looks at what came: bytes of a head that were not passed on before come first.
    pub(crate) fn inspect(&mut self, bytes: &[u8]) -> Verdict {
        let mut pass = 0;
        while pass < bytes.len() {
            let rest = &bytes[pass..];
            let step = match &mut self.state {
                State::Through => return Verdict { pass: bytes.len(), refusal: None },
                State::Sized(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= taken as u64;
                    Ok(Some((taken, (*left == 0).then(State::head))))
                }
                State::Chunked(chunks) => {
                    let taken = chunks.take(rest).map_err(|_| Refusal::Chunk);
                    taken.map(|(taken, ended)| Some((taken, ended.then(State::head))))
                }
                State::Head { .. } => self.head(rest),
            };
            match step {
                Ok(Some((taken, next))) => {
                    pass += taken;
                    if let Some(next) = next {
                        self.state = next;
                    }
                }
                Ok(None) => break,
                Err(refusal) => return Verdict { pass, refusal: Some(refusal) },
            }
        }
        Verdict { pass, refusal: None }
    }

    /// The length of the head that `bytes` begin with and what follows it; `None` while it is incomplete.
    fn head(&mut self, bytes: &[u8]) -> Result<Option<(usize, Option<State>)>, Refusal> {
        if self.is_first && bytes.starts_with(&PREFACE[..PREFACE.len().min(bytes.len())]) {
            let is_whole = bytes.len() >= PREFACE.len();
            return Ok(is_whole.then_some((PREFACE.len(), Some(State::Through))));
        }
        self.is_first = false;
        let State::Head { head, read } = &mut self.state else { return Ok(None) };
        while let Some(end) = memchr::memchr(b'\n', &bytes[*read..]) {
            let line = &bytes[*read..*read + end];
            let Some((b'\r', line)) = line.split_last() else { return Err(Refusal::LineEnd) };
            *read += end + 1;
            if *read > self.limits.bytes_max {
                return Err(Refusal::TooLarge);
            }
            let content = head.line(line, self.limits.fields_max).map_err(|refusal| {
                // No line may have a CR in it, where it would end the line for some parsers: say that it was this.
                if memchr::memchr(b'\r', line).is_some() { Refusal::LineEnd } else { refusal }
            })?;
            if let Some(content) = content {
                let next = match content {
                    Content::Sized(0) => State::head(),
                    Content::Sized(length) => State::Sized(length),
                    Content::Chunked => State::Chunked(Chunks::of_request(self.limits.bytes_max)),
                };
                return Ok(Some((*read, Some(next))));
            }
        }
        if bytes.len() > self.limits.bytes_max { Err(Refusal::TooLarge) } else { Ok(None) }
    }
}

impl State {
    fn head() -> Self {
        Self::Head { head: Head::default(), read: 0 }
    }
}

#[cfg(test)]
#[path = "framing_tests.rs"]
mod tests;
