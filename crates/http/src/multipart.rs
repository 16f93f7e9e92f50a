//! Multipart bodies part by part: the same parts behind a new boundary are the same request.
//!
//! Only a body that every parser reads alike is taken apart: no preamble, no epilogue, CRLF throughout, the last boundary
//! in place. Everything else is compared byte by byte, which never makes two requests one.

use bytes::Bytes;
use http::header::HeaderValue;
use onlyonce_core::FingerprintBuilder;

use crate::fingerprint::raw;

/// The most parts that are told apart; bodies with more are compared byte by byte.
const PARTS_MAX: usize = 1000;

/// One part: its header lines as they are, and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part<'a> {
    /// The lines before the empty line, without the last line break.
    pub head: &'a [u8],
    /// What follows the empty line.
    pub body: &'a [u8],
}

pub(crate) fn look(seen: &mut FingerprintBuilder, content_type: Option<&HeaderValue>, body: &Bytes) {
    let read = content_type.and_then(|kind| kind.to_str().ok()).and_then(|kind| {
        let (media_type, boundary) = boundary(kind)?;
        Some((media_type, parts(body, &boundary)?))
    });
    let Some((media_type, parts)) = read else { return raw(seen, content_type, body) };
    seen.add("multipart", media_type.as_bytes());
    for part in parts {
        seen.add("head", part.head);
        seen.add("part", part.body);
    }
}

/// The media type in lower case and the boundary of a multipart content type. Other parameters would be ambiguous.
pub fn boundary(content_type: &str) -> Option<(String, String)> {
    let (media_type, parameter) = content_type.split_once(';')?;
    let media_type = media_type.trim().to_ascii_lowercase();
    let (name, value) = parameter.trim().split_once('=')?;
    if !media_type.starts_with("multipart/") || !name.eq_ignore_ascii_case("boundary") {
        return None;
    }
    let value = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let is_boundary = (1..=70).contains(&value.len()) && value.bytes().all(is_plain) && !value.ends_with(' ');
    is_boundary.then(|| (media_type, value.to_owned()))
}

/// The parts of `body`, or `None` when it is not exactly parts between boundaries.
pub fn parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<Part<'a>>> {
    let delimiter = format!("\r\n--{boundary}");
    let delimiter = delimiter.as_bytes();
    // The first delimiter has no line break of its own before it.
    let mut rest = body.strip_prefix(&delimiter[2..])?;
    let mut parts = Vec::new();
    loop {
        if let Some(end) = rest.strip_prefix(b"--") {
            let is_whole = (end.is_empty() || end == b"\r\n") && !parts.is_empty();
            return is_whole.then_some(parts);
        }
        rest = rest.strip_prefix(b"\r\n")?;
        let at = find(rest, delimiter)?;
        parts.push(part(&rest[..at])?);
        rest = &rest[at + delimiter.len()..];
        if parts.len() > PARTS_MAX {
            return None;
        }
    }
}

fn part(text: &[u8]) -> Option<Part<'_>> {
    if let Some(body) = text.strip_prefix(b"\r\n") {
        return Some(Part { head: b"", body });
    }
    let at = find(text, b"\r\n\r\n")?;
    Some(Part { head: &text[..at], body: &text[at + 4..] })
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    // Every delimiter starts with a line break, so jumping from one to the next skips nothing.
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|byte| *byte == wanted[0]) {
        if text[from + at..].starts_with(wanted) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
