//! An answer as it is kept: status, headers in their order and number, body, trailers. The only place that knows its
//! bytes.
//!
//! ```text
//! version 1 · status (2, big-endian) · count, (name, value)* · count, (name, value)* of trailers · body · CRC-32C (4)
//! ```
//!
//! Lengths and counts are LEB128. What cannot be read, or would not be a header, is an error and never half an answer.
//!
//! Beside it goes the head of the outcome, which is left when the answer is gone: version 1 and the status, or version 2,
//! the status and the trace in which the answer was made.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use onlyonce_core::record::codec::CodecError;
use onlyonce_core::record::codec::wire::{Reader, Writer};
use onlyonce_core::{MisuseError, Outcome, Tombstone};

use crate::body::Body;
use crate::header::ONLYONCE_REDACTED;
use crate::trace::TraceContext;

/// Marks outcomes that this crate wrote, so that bytes of another door are never read as an answer.
pub const CONTENT_VERSION: u16 = 2;

const VERSION: u8 = 1;
/// Heads that name a trace. Whoever does not know them still replays what was kept, and has no status for what was not.
const TRACED: u8 = 2;
const CHECKSUM_LEN: usize = 4;
/// No answer has more header lines: hyper reads at most a hundred by default.
const LINES_MAX: u64 = 4096;
const LINE_BYTES_MAX: usize = 1 << 20;
const BODY_BYTES_MAX: usize = 1 << 31;

/// The lowest status there is, and how many there are.
const STATUS_MIN: u16 = 100;
const STATUSES: usize = 900;

/// The heads of all statuses: none need be made for an answer, nor kept with it.
static HEADS: [[u8; 3]; STATUSES] = {
    let mut heads = [[VERSION; 3]; STATUSES];
    let mut status = STATUS_MIN;
    while ((status - STATUS_MIN) as usize) < STATUSES {
        let [high, low] = status.to_be_bytes();
        heads[(status - STATUS_MIN) as usize] = [VERSION, high, low];
        status += 1;
    }
    heads
};

/// What a retry is told even when the rest is gone: the version, the status, and the trace of the original.
pub fn head(status: StatusCode, trace: Option<TraceContext>) -> Bytes {
    // A trace that nobody records is none to be linked to.
    match trace.filter(TraceContext::is_sampled) {
        // `http` has no status below 100 or above 999.
        None => Bytes::from_static(&HEADS[usize::from(status.as_u16() - STATUS_MIN)]),
        Some(trace) => {
            let [high, low] = status.as_u16().to_be_bytes();
            [[TRACED, high, low].as_slice(), &trace.to_bytes()].concat().into()
        }
    }
}

/// The outcome of an answer that is not kept, as a retry will hear of it.
pub fn not_kept(status: StatusCode, why: Tombstone) -> Result<Outcome, MisuseError> {
    Outcome::tombstone(CONTENT_VERSION, why).with_head(head(status, None))
}

/// The status in a head, if it is one of ours.
pub fn status_in(head: &[u8]) -> Option<StatusCode> {
    match *head {
        [VERSION, high, low] | [TRACED, high, low, ..] => {
            StatusCode::from_u16(u16::from_be_bytes([high, low])).ok()
        }
        _ => None,
    }
}

/// The trace in which an answer was made, if it was traced. What cannot be read is no trace: nothing is decided by it.
pub fn trace_of(outcome: &Outcome) -> Option<TraceContext> {
    match outcome.head().as_ref() {
        [TRACED, _, _, trace @ ..] if outcome.content_version() == CONTENT_VERSION => {
            TraceContext::from_bytes(trace)
        }
        _ => None,
    }
}

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its trailers.
    pub trailers: Option<HeaderMap>,
    /// Its body.
    pub body: Bytes,
    /// Whether something was taken out of it before it was kept.
    pub is_redacted: bool,
}

impl Snapshot {
    /// Writes what may be replayed of an answer.
    pub fn encode(&self, keep_cookies: bool) -> Vec<u8> {
        let marks = if self.is_redacted { &[MARK_REDACTED][..] } else { &[] };
        write(self.status, (&self.headers, marks), self.trailers.as_ref(), &self.body, keep_cookies)
    }

    /// The outcome that is replayed as this answer.
    pub fn to_outcome(&self, keep_cookies: bool) -> Result<Outcome, MisuseError> {
        Outcome::kept(CONTENT_VERSION, self.encode(keep_cookies)).with_head(head(self.status, None))
    }

    /// Reads an answer back.
    pub fn decode(bytes: &Bytes) -> Result<Self, CodecError> {
        let len = bytes.len().checked_sub(CHECKSUM_LEN).ok_or(CodecError::Damaged("too short"))?;
        if bytes[len..] != crc32c::crc32c(&bytes[..len]).to_le_bytes() {
            return Err(CodecError::Damaged("checksum"));
        }
        let mut reader = Reader::new(bytes.slice(..len));
        match reader.byte()? {
            VERSION => {}
            version => return Err(CodecError::Version(version)),
        }
        let status = StatusCode::from_u16(u16::from_be_bytes(reader.array()?))
            .map_err(|_| CodecError::Damaged("status"))?;
        let mut headers = decode_lines(&mut reader)?;
        let is_redacted = headers.remove(ONLYONCE_REDACTED).is_some();
        let trailers = decode_lines(&mut reader)?;
        let body = reader.bytes(BODY_BYTES_MAX)?;
        reader.end()?;
        let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
        Ok(Self { status, headers, trailers, body, is_redacted })
    }

    /// The answer, to be sent.
    pub fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::whole(self.body, self.trailers));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if self.is_redacted {
            let (name, value) = MARK_REDACTED;
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// Says of an answer on record that something was taken out of it. No application's own: those are not kept.
const MARK_REDACTED: (HeaderName, HeaderValue) = (ONLYONCE_REDACTED, HeaderValue::from_static("true"));

/// Writes what may be replayed of an answer that is still needed.
pub(crate) fn encode(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
    body: &Bytes,
    keep_cookies: bool,
) -> Vec<u8> {
    write(status, (headers, &[]), trailers, body, keep_cookies)
}

/// The same, with marks of our own among the headers.
fn write(
    status: StatusCode,
    (headers, marks): (&HeaderMap, &[(HeaderName, HeaderValue)]),
    trailers: Option<&HeaderMap>,
    body: &Bytes,
    keep_cookies: bool,
) -> Vec<u8> {
    let headers = Lines::of(headers, marks, keep_cookies);
    let trailers = trailers.map_or_else(Lines::default, |trailers| Lines::of(trailers, &[], keep_cookies));
    // To the byte: what is left over would be kept for as long as the record.
    let lines_len = headers.written_len() + trailers.written_len();
    let mut writer = Writer::with_capacity(3 + lines_len + bytes_len(body) + CHECKSUM_LEN);
    writer.byte(VERSION);
    writer.raw(&status.as_u16().to_be_bytes());
    headers.write(&mut writer);
    trailers.write(&mut writer);
    writer.bytes(body);
    let checksum = crc32c::crc32c(writer.written());
    writer.raw(&checksum.to_le_bytes());
    writer.finish()
}

/// The header lines that are kept. Those of one name stay in their order, which is all that means something
/// (RFC 9110 §5.3).
#[derive(Default)]
struct Lines<'h>(Vec<(&'h HeaderName, &'h HeaderValue)>);

impl<'h> Lines<'h> {
    fn of(headers: &'h HeaderMap, marks: &'h [(HeaderName, HeaderValue)], keep_cookies: bool) -> Self {
        let named = named_in_connection(headers);
        let kept = |name: &HeaderName| {
            is_kept(name, keep_cookies)
                && !named.iter().any(|other| name.as_str().eq_ignore_ascii_case(other))
        };
        let mut lines = Vec::with_capacity(headers.len() + marks.len());
        lines.extend(headers.iter().filter(|(name, _)| kept(name)));
        lines.extend(marks.iter().map(|(name, value)| (name, value)));
        Self(lines)
    }

    fn written_len(&self) -> usize {
        let line_len = |(name, value): &(&HeaderName, &HeaderValue)| {
            bytes_len(name.as_str().as_bytes()) + bytes_len(value.as_bytes())
        };
        number_len(self.0.len()) + self.0.iter().map(line_len).sum::<usize>()
    }

    fn write(&self, writer: &mut Writer) {
        writer.number(self.0.len() as u64);
        for (name, value) in &self.0 {
            writer.bytes(name.as_str().as_bytes());
            writer.bytes(value.as_bytes());
        }
    }
}

/// How many bytes [`Writer::bytes`] writes.
fn bytes_len(bytes: &[u8]) -> usize {
    number_len(bytes.len()) + bytes.len()
}

/// How many bytes [`Writer::number`] writes: one for each seven bits.
const fn number_len(number: usize) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

fn decode_lines(reader: &mut Reader) -> Result<HeaderMap, CodecError> {
    let count = reader.number()?;
    if count > LINES_MAX {
        return Err(CodecError::Damaged("header count"));
    }
    let mut headers = HeaderMap::with_capacity(usize::try_from(count).unwrap_or(0).min(64));
    for _ in 0..count {
        // What was stored is not trusted: a poisoned record must not split a response.
        let name = HeaderName::from_bytes(&reader.bytes(LINE_BYTES_MAX)?)
            .map_err(|_| CodecError::Damaged("header name"))?;
        let value = HeaderValue::from_maybe_shared(reader.bytes(LINE_BYTES_MAX)?)
            .map_err(|_| CodecError::Damaged("header value"))?;
        headers.try_append(name, value).map_err(|_| CodecError::Damaged("header count"))?;
    }
    Ok(headers)
}

/// The fields that `Connection` declares to be for this hop only.
fn named_in_connection(headers: &HeaderMap) -> Vec<&str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(str::trim)
        .collect()
}

/// Whether a field belongs to the answer, and not to the connection, the moment or the caller's session.
pub fn is_kept(name: &HeaderName, keep_cookies: bool) -> bool {
    let name = name.as_str();
    if name == "set-cookie" {
        return keep_cookies;
    }
    !(is_of_the_hop(name) || is_of_the_session(name) || is_of_the_moment(name) || is_ours(name))
}

fn is_of_the_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "content-length"
            | "via"
            | "alt-svc"
    )
}

fn is_of_the_session(name: &str) -> bool {
    matches!(
        name,
        "www-authenticate"
            | "proxy-authenticate"
            | "authorization"
            | "proxy-authorization"
            | "authentication-info"
            | "proxy-authentication-info"
    )
}

/// When it was, and the names under which the request itself is numbered: a replay is another one.
fn is_of_the_moment(name: &str) -> bool {
    name.starts_with("x-b3-")
        || matches!(
            name,
            "date"
                | "age"
                | "server-timing"
                | "traceparent"
                | "tracestate"
                | "b3"
                | "x-request-id"
                | "request-id"
                | "x-correlation-id"
                | "x-trace-id"
                | "x-amzn-trace-id"
                | "x-amzn-requestid"
                | "x-amz-request-id"
                | "x-cloud-trace-context"
                | "cf-ray"
                | "uber-trace-id"
        )
}

/// Marks that only the layer which answers may set.
fn is_ours(name: &str) -> bool {
    name.starts_with("onlyonce-") || matches!(name, "idempotency-replayed" | "idempotent-replayed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_takes_no_byte_more_than_it_has() {
        let line = |name: &'static str, len: usize| {
            (HeaderName::from_static(name), HeaderValue::try_from("x".repeat(len)).unwrap())
        };
        let some = HeaderMap::from_iter([line("content-type", 16), line("etag", 127), line("link", 128)]);
        let mut long = HeaderMap::new();
        for (name, value) in (0..200).map(|number| line("x-many", number * 100)) {
            long.append(name, value);
        }
        for headers in [&HeaderMap::new(), &some, &long] {
            for trailers in [None, Some(&some)] {
                for len in [0, 1, 127, 128, 16_383, 16_384, 100_000] {
                    let body = Bytes::from(vec![b'x'; len]);
                    let written = encode(StatusCode::OK, headers, trailers, &body, false);
                    assert_eq!(written.capacity(), written.len(), "{len} bytes, {} lines", headers.len());
                    let read = Snapshot::decode(&written.into()).unwrap();
                    assert_eq!((&read.headers, read.trailers.as_ref()), (headers, trailers));
                    assert_eq!(read.body, body);
                }
            }
        }
    }

    #[test]
    fn every_status_has_a_head_that_says_it() {
        for status in (100..1000).map(|status| StatusCode::from_u16(status).unwrap()) {
            assert_eq!(status_in(&head(status, None)), Some(status));
        }
    }
}
