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
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Refusal::Field)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        // A name that begins with a blank is a folded line, one that ends with it hides a header from some parsers.
        if name.is_empty() || !name.iter().copied().all(is_token) {
            return Err(Refusal::Field);
        }
        // All of them, without an early end: that is done for many bytes at a time.
        if value.iter().fold(false, |is_bad, byte| is_bad | !is_field_byte(*byte)) {
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
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, parts.next()) else {
        return Err(Refusal::RequestLine);
    };
    let is_method = !method.is_empty() && method.iter().copied().all(is_token);
    let is_target = !target.is_empty() && target.iter().all(u8::is_ascii_graphic);
    // A tunnel would carry anything past us.
    if !is_method || !is_target || method == b"CONNECT" {
        return Err(Refusal::RequestLine);
    }
    match version {
        b"HTTP/1.1" => Ok(FirstLine::Http11),
        b"HTTP/1.0" => Ok(FirstLine::Http10),
        _ => Err(Refusal::RequestLine),
    }
}

fn trim(value: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| *byte != b' ' && *byte != b'\t';
    let start = value.iter().position(is_text).unwrap_or(value.len());
    let end = value.iter().rposition(is_text).map_or(start, |at| at + 1);
    &value[start..end]
}

/// Looked up: names are most of what there is to check in a head.
fn is_token(byte: u8) -> bool {
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
    IS_TOKEN[usize::from(byte)]
}

const fn is_field_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
