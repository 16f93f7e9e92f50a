//! The head of an HTTP/1 request, line by line, as strictly as RFC 9112 allows a server to be. **Pure.**
//!
//! Two parsers that read one head differently are how requests are smuggled. hyper is lenient in places (it takes a
//! bare LF for a line's end, Content-Length beside Transfer-Encoding, a length given twice), so a head comes here
//! first, and whatever can be read in two ways never reaches hyper or the upstream.

use super::framing::Refusal;
use crate::http1::number;

/// What is known of a head whose lines have been read so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Head {
    first_line: FirstLine,
    fields: usize,
    hosts: usize,
    length: Option<u64>,
    chunked: bool,
}

/// What is known of the request line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum FirstLine {
    #[default]
    Awaited,
    /// Still awaited, after an empty line.
    AwaitedAgain,
    Http10,
    Http11,
}

/// How the bytes after a head are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Sized(u64),
    Chunked,
}

impl Head {
    /// Takes the next line, without its CRLF. `Some` once the head is complete.
    pub(super) fn line(&mut self, line: &[u8], fields_max: usize) -> Result<Option<Content>, Refusal> {
        if matches!(self.first_line, FirstLine::Awaited | FirstLine::AwaitedAgain) {
            // Some clients end a body with one CRLF too many; RFC 9112 §2.2 wants at least one to be ignored.
            self.first_line = match self.first_line {
                FirstLine::Awaited if line.is_empty() => FirstLine::AwaitedAgain,
                _ => request_line(line)?,
            };
            return Ok(None);
        }
        if line.is_empty() {
            return self.finish().map(Some);
        }
        self.fields += 1;
        if self.fields > fields_max {
            return Err(Refusal::TooLarge);
        }
        self.field(line)?;
        Ok(None)
    }

    fn field(&mut self, line: &[u8]) -> Result<(), Refusal> {
        let colon = memchr::memchr(b':', line).ok_or(Refusal::Field)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // A name that begins with a blank is a folded line, one that ends with it hides a header from some parsers.
        if !is_token(name) || !are_field_bytes(value) {
            return Err(Refusal::Field);
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.hosts += 1,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = number(trim(value)).ok_or(Refusal::Length)?;
                if self.length.replace(length).is_some() {
                    return Err(Refusal::Length);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                let is_first = !std::mem::replace(&mut self.chunked, true);
                if !is_first
                    || self.first_line == FirstLine::Http10
                    || !trim(value).eq_ignore_ascii_case(b"chunked")
                {
                    return Err(Refusal::Encoding);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&self) -> Result<Content, Refusal> {
        if self.hosts > 1 || (self.hosts == 0 && self.first_line == FirstLine::Http11) {
            return Err(Refusal::Host);
        }
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Refusal::Encoding),
            (true, None) => Ok(Content::Chunked),
            (false, length) => Ok(Content::Sized(length.unwrap_or(0))),
        }
    }
}

/// `METHOD SP target SP HTTP/1.x`, with single blanks.
fn request_line(line: &[u8]) -> Result<FirstLine, Refusal> {
    let (rest, version) = match line {
        [rest @ .., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'] => (rest, FirstLine::Http11),
        [rest @ .., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'] => (rest, FirstLine::Http10),
        _ => return Err(Refusal::RequestLine),
    };
    let end = rest.iter().position(|byte| *byte == b' ').ok_or(Refusal::RequestLine)?;
    let (method, target) = (&rest[..end], &rest[end + 1..]);
    // No blank, so that there is no third part.
    let is_target = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    // A tunnel would carry anything past us.
    if !is_token(method) || !is_target || method == b"CONNECT" {
        return Err(Refusal::RequestLine);
    }
    Ok(version)
}

fn trim(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| *byte != b' ' && *byte != b'\t';
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(start, |at| at + 1);
    &value[start..end]
}

/// Whether it is a name. Looked up, and to the end in any case: names are most of what there is to check in a head.
fn is_token(name: &[u8]) -> bool {
    static IS_TOKEN: [bool; 256] = {
        let mut is_token = [false; 256];
        let mut byte: u8 = 0;
        while byte < 128 {
            is_token[byte as usize] = byte.is_ascii_alphanumeric()
                || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~');
            byte += 1;
        }
        is_token
    };
    !name.is_empty() && name.iter().fold(true, |is, byte| is & IS_TOKEN[usize::from(*byte)])
}

/// Whether all may stand in a value: no control character but the tab. Eight at a time.
fn are_field_bytes(value: &[u8]) -> bool {
    let (words, rest) = value.as_chunks::<8>();
    let has_bad = |word: &[u8; 8]| bad_field_bytes(u64::from_ne_bytes(*word)) != 0;
    if words.iter().any(has_bad) {
        return false;
    }
    match value.last_chunk::<8>() {
        // Some of it for the second time, which is faster than one by one.
        Some(last) => !has_bad(last),
        None => rest.iter().all(|byte| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f)),
    }
}

/// The highest bit of each byte of `word` that may not stand in a value.
const fn bad_field_bytes(word: u64) -> u64 {
    const EACH: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHEST: u64 = 0x80 * EACH;
    const REST: u64 = 0x7f * EACH;
    // The highest bit of each byte that is not zero: no sum of two such halves reaches into the next byte.
    const fn not_zero(word: u64) -> u64 {
        ((word & REST).wrapping_add(REST) | word) & HIGHEST
    }
    let is_control = !((word & REST).wrapping_add((0x80 - 0x20) * EACH) | word) & HIGHEST;
    let is_delete = !not_zero(word ^ REST) & HIGHEST;
    (is_control & not_zero(word ^ (0x09 * EACH))) | is_delete
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_may_stand_in_a_value_or_not_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            let may_stand = byte == b'\t' || (byte >= b' ' && byte != 0x7f);
            for len in 1..=20 {
                for at in 0..len {
                    for around in [b'a', 0xff, b'\t', b' '] {
                        let mut value = vec![around; len];
                        value[at] = byte;
                        assert_eq!(are_field_bytes(&value), may_stand, "{byte} at {at} of {len}");
                    }
                }
            }
        }
        assert!(are_field_bytes(b""));
    }
}
