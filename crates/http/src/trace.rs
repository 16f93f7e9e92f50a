//! Which trace a request belongs to, in the words of W3C Trace Context. Kept with a recorded answer, so that a replay can
//! be linked to the trace of the original.
//!
//! The layer makes no spans: whoever does puts the context of theirs into the extensions of the request, and finds that
//! of the original in [`Answered`](crate::Answered).

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};
use onlyonce_core::hex;

/// The header that carries a context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The header that carries what others add to it.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How long a `traceparent` is, in the only version there is.
const TEXT_LEN: usize = 55;
const SAMPLED: u8 = 1;
/// What version 00 knows of the flags: sampled, and that the trace id is random (level 2).
const KNOWN_FLAGS: u8 = 0b11;

/// The place of a request in a trace. Two random numbers: it says nothing about who asked for what.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
}

impl TraceContext {
    /// How many bytes a context takes.
    pub const LEN: usize = 25;

    /// The span `span_id` of the trace `trace_id`; `None` where either is all zeros, which names nothing.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Option<Self> {
        Self::with_flags(trace_id, span_id, u8::from(is_sampled))
    }

    fn with_flags(trace_id: [u8; 16], span_id: [u8; 8], flags: u8) -> Option<Self> {
        let names_something = trace_id != [0; 16] && span_id != [0; 8];
        names_something.then_some(Self { trace_id, span_id, flags: flags & KNOWN_FLAGS })
    }

    /// What the headers say. Nothing, where `traceparent` is missing, malformed or there twice: a trace then begins anew,
    /// and nothing is guessed.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next().filter(|_| lines.next().is_none())?;
        Self::parse(line.as_bytes())
    }

    /// Reads the value of a `traceparent`. Later versions may say more behind what is known; it is not looked at.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let version = bytes::<1>(text.get(..2)?)?[0];
        let ends_well = match (version, text.get(TEXT_LEN)) {
            (0xff, _) | (0, Some(_)) => false,
            (_, None) => true,
            (_, Some(next)) => *next == b'-',
        };
        let dashes = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
        if !(ends_well && dashes) {
            return None;
        }
        let (trace_id, span_id) = (bytes(text.get(3..35)?)?, bytes(text.get(36..52)?)?);
        Self::with_flags(trace_id, span_id, bytes::<1>(text.get(53..TEXT_LEN)?)?[0])
    }

    /// The trace.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The span in it.
    pub const fn span_id(&self) -> [u8; 8] {
        self.span_id
    }

    /// Whether somebody records it.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// The value of a `traceparent`.
    pub fn header(&self) -> Option<HeaderValue> {
        HeaderValue::try_from(self.to_string()).ok()
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.trace_id);
        bytes[16..24].copy_from_slice(&self.span_id);
        bytes[24] = self.flags;
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let (trace_id, rest) = bytes.split_first_chunk()?;
        let (span_id, flags) = rest.split_first_chunk()?;
        Self::with_flags(*trace_id, *span_id, *flags.first()?)
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span) = (hex::encode(&self.trace_id), hex::encode(&self.span_id));
        write!(f, "00-{trace}-{span}-{:02x}", self.flags)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceContext({self})")
    }
}

/// Bytes from lower-case digits: upper-case ones are malformed here.
fn bytes<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|digits| !digits.bytes().any(|digit| digit.is_ascii_uppercase()))?;
    hex::decode(digits)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0b5902b7-01";

    #[test]
    fn a_context_is_read_and_written_as_it_was() {
        let context = TraceContext::parse(GOOD.as_bytes()).expect("as in the specification");
        assert_eq!(context.to_string(), GOOD);
        assert!(context.is_sampled());
        assert_eq!(context.trace_id()[0], 0x4b);
        assert_eq!(context.span_id()[7], 0xb7);
        assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Some(context));
        let quiet = TraceContext::parse(GOOD.replace("-01", "-00").as_bytes()).expect("not sampled");
        assert!(!quiet.is_sampled());
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for text in
            [GOOD.replacen("00-", "01-", 1), GOOD.replacen("00-", "cc-", 1) + "-what-the-future-brings"]
        {
            assert_eq!(TraceContext::parse(text.as_bytes()), TraceContext::parse(GOOD.as_bytes()), "{text}");
        }
        let flags = TraceContext::parse(GOOD.replace("-01", "-ff").as_bytes()).expect("unknown flags");
        assert!(flags.to_string().ends_with("-03"), "what is not known is not passed on: {flags}");
    }

    #[test]
    fn what_is_malformed_names_nothing() {
        for text in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}0"),
            &format!("{GOOD}-more"),
            &GOOD.replacen("00-", "ff-", 1),
            &GOOD.replacen("00-", "0x-", 1),
            &GOOD.replacen("00-", "cc-", 1).replace("-01", "-01.more"),
            &GOOD.to_uppercase(),
            &GOOD.replace('-', "_"),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0b5902b7", &"0".repeat(16)),
            &GOOD.replace("-01", "-0g"),
            &format!(" {GOOD}"),
        ] {
            assert_eq!(TraceContext::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn two_lines_name_nothing() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert!(TraceContext::of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert_eq!(TraceContext::of(&headers), None);
    }
}
