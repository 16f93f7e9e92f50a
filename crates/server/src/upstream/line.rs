//! One HTTP/1 connection to the upstream, driven by the request that has it.
//!
//! It has no task of its own: sending on it wakes nobody, and what arrives on it wakes the request's own task.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use onlyonce_core::BoxError;
use onlyonce_http::Body;
use tokio::time::Instant;

use super::connect::Stream;
use super::hop;
use crate::http1::{
    Chunks, Decoded, FIELDS_MAX, Framing, HEAD_BYTES_MAX, Incoming, Malformed, Remaining, Sending,
    TOGETHER_MAX, Unsent, fields, is_listed, length, listed, put_fields,
};
use crate::timer::Timer;

/// Why an answer did not come, or not to its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The request's own body broke off.
    Request(BoxError),
    /// The upstream closed the connection.
    Closed,
    Io(io::Error),
    /// The upstream speaks no HTTP/1.
    Malformed(Malformed),
}

impl From<Malformed> for Broken {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(_) => f.write_str("the request's body broke off"),
            Self::Closed => f.write_str("the upstream closed the connection"),
            Self::Io(_) => f.write_str("the connection failed"),
            Self::Malformed(_) => f.write_str("the upstream's answer is no HTTP/1"),
        }
    }
}

impl std::error::Error for Broken {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Request(error) => Some(&**error),
            Self::Closed => None,
            Self::Io(error) => Some(error),
            Self::Malformed(malformed) => Some(malformed),
        }
    }
}

/// How many fields are added to an answer on its way to the client: whether it is a replay, and seldom another.
const ADDED: usize = 2;

/// One connection.
pub(super) struct Line {
    pub(super) io: Stream,
    incoming: Incoming,
    /// A copy of what stood behind the head of the answer, in the head's own memory.
    behind: Bytes,
    sending: Sending<Body>,
    /// Whether another request may follow the one it is at.
    is_kept: bool,
    /// Why the request could not be sent to its end. The answer may be on its way all the same.
    unsent: Option<io::Error>,
    /// How long an answer is waited for. Here, so that one entry in the runtime's timer serves many requests.
    patience: Timer,
}

impl Line {
    pub(super) fn new(io: Stream) -> Self {
        Self {
            io,
            incoming: Incoming::default(),
            behind: Bytes::new(),
            sending: Sending::default(),
            is_kept: true,
            unsent: None,
            patience: Timer::default(),
        }
    }

    /// Whether, while no request is on it, the other side has ended it, or said what nobody asked for.
    pub(super) fn is_stale(&mut self, cx: &mut Context<'_>) -> bool {
        self.incoming.poll_fill(&mut self.io, cx).is_ready()
    }

    /// Whether the next request may have it.
    pub(super) fn is_ready(&self) -> bool {
        self.is_kept && self.sending.is_over() && self.incoming.bytes().is_empty()
    }

    /// Whether it will be, once the rest of the request has left.
    pub(super) fn is_ready_soon(&self) -> bool {
        self.is_kept && self.incoming.bytes().is_empty()
    }

    /// Sends the request and waits for the head of its answer. `None` when none has come in time.
    ///
    /// Not `async` itself: the future would carry the request after it was sent.
    pub(super) fn exchange(
        &mut self,
        request: Request<Body>,
        until: Instant,
    ) -> impl Future<Output = Option<Result<Response<Remaining>, Broken>>> {
        let has_content = request.method() != Method::HEAD;
        self.start(request);
        self.patience.set_until(until);
        poll_fn(move |cx| match self.poll_answer(has_content, cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending if self.patience.is_over(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
    }

    /// The next part of an answer's body. Sends what is left of the request meanwhile.
    pub(super) fn poll_body(
        &mut self,
        remaining: &mut Remaining,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            match remaining.decode(&mut self.incoming) {
                Ok(Decoded::Content(content)) => return Poll::Ready(Some(Ok(Frame::data(content)))),
                Ok(Decoded::End(trailers)) => {
                    return Poll::Ready(trailers.map(|fields| Ok(Frame::trailers(fields))));
                }
                Ok(Decoded::Starved) => {}
                Err(malformed) => return Poll::Ready(Some(Err(malformed.into()))),
            }
            if let Err(broken) = self.send(cx) {
                return Poll::Ready(Some(Err(broken)));
            }
            match ready!(self.incoming.poll_fill(&mut self.io, cx)) {
                Ok(0) if matches!(remaining, Remaining::UntilClose) => {
                    *remaining = Remaining::Sized(0);
                    return Poll::Ready(None);
                }
                Ok(0) => return Poll::Ready(Some(Err(Broken::Closed))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(Broken::Io(error)))),
            }
        }
    }

    /// The body of an answer, if all of it came with the head.
    pub(super) fn whole(&mut self, remaining: &mut Remaining) -> Option<Bytes> {
        let behind = std::mem::take(&mut self.behind);
        let Remaining::Sized(length) = *remaining else { return None };
        let length = usize::try_from(length).ok().filter(|length| *length <= self.incoming.bytes().len())?;
        *remaining = Remaining::Sized(0);
        if length > behind.len() {
            return Some(self.incoming.take(length));
        }
        self.incoming.skip(length);
        Some(behind.slice(..length))
    }

    /// Sends the rest of a request whose answer has ended.
    pub(super) fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // The upstream may close instead of reading it.
        if self.send(cx).is_err() || self.is_stale(cx) {
            self.is_kept = false;
            return Poll::Ready(());
        }
        if self.sending.is_over() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn start(&mut self, request: Request<Body>) {
        let (parts, body) = request.into_parts();
        let framing = framing(&parts.headers, &body);
        self.sending.start(body, framing, |head| {
            let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
            // `http://host?query` has a query and no path.
            let slash = if target.starts_with('?') { "/" } else { "" };
            for part in [parts.method.as_str(), " ", slash, target, " HTTP/1.1\r\n"] {
                head.extend_from_slice(part.as_bytes());
            }
            put_fields(&parts.headers, head);
        });
    }

    /// Sends what can be sent now.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        if self.sending.is_over() {
            return Ok(());
        }
        match self.sending.poll(&mut self.io, cx) {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(Unsent::Io(error))) => {
                // Who answers and closes before all was read may have answered well.
                self.sending.abandon();
                self.is_kept = false;
                self.unsent = Some(error);
                Ok(())
            }
            Poll::Ready(Err(Unsent::Body(error))) => Err(Broken::Request(error)),
            Poll::Ready(Err(length @ Unsent::Length)) => Err(Broken::Request(length.to_string().into())),
        }
    }

    fn poll_answer(
        &mut self,
        has_content: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<Remaining>, Broken>> {
        loop {
            self.send(cx)?;
            if let Some(answer) = self.head(has_content)? {
                return Poll::Ready(Ok(answer));
            }
            let ended = match ready!(self.incoming.poll_fill(&mut self.io, cx)) {
                Ok(1..) => continue,
                Ok(0) => None,
                Err(error) => Some(error),
            };
            return Poll::Ready(Err(self.unsent.take().or(ended).map_or(Broken::Closed, Broken::Io)));
        }
    }

    /// The head of the answer, once all of it is here. What is only provisional is passed over.
    fn head(&mut self, has_content: bool) -> Result<Option<Response<Remaining>>, Malformed> {
        while !self.incoming.bytes().is_empty() {
            let bytes = self.incoming.bytes();
            let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
            let mut parsed = httparse::Response::new(&mut []);
            let parser = httparse::ParserConfig::default();
            let count = match parser.parse_response_with_uninit_headers(&mut parsed, bytes, &mut room) {
                Ok(httparse::Status::Complete(count)) => count,
                Ok(httparse::Status::Partial) if bytes.len() <= HEAD_BYTES_MAX => return Ok(None),
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    return Err(Malformed::HeadTooLarge);
                }
                Err(_) => return Err(Malformed::Head),
            };
            let status =
                parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(Malformed::Head)?;
            if status.is_informational() {
                // Nobody asked to switch protocols here.
                if status == StatusCode::SWITCHING_PROTOCOLS {
                    return Err(Malformed::Head);
                }
                self.incoming.skip(count);
                continue;
            }
            let is_http10 = parsed.version == Some(0);
            // A short body is copied together with its head: one piece of memory for both.
            let copy = Bytes::copy_from_slice(&bytes[..bytes.len().min(count + TOGETHER_MAX)]);
            let mut fields = fields(parsed.headers, bytes, &copy, ADDED)?;
            self.incoming.skip(count);
            self.behind = copy.slice(count..);
            self.is_kept &= !is_listed(&fields, &CONNECTION, "close");
            self.is_kept &= !is_http10 || is_listed(&fields, &CONNECTION, "keep-alive");
            let has_content =
                has_content && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
            let remaining =
                if has_content { remaining(&mut fields, is_http10)? } else { Remaining::Sized(0) };
            self.is_kept &= !matches!(remaining, Remaining::UntilClose);
            let mut response = Response::new(remaining);
            *response.status_mut() = status;
            *response.headers_mut() = fields;
            return Ok(Some(response));
        }
        Ok(None)
    }
}

/// How a request's body is framed; `None` for one that has no content, and whose client had no word about it.
fn framing(fields: &HeaderMap, body: &Body) -> Option<Framing> {
    if body.is_end_stream() {
        return fields.contains_key(CONTENT_LENGTH).then_some(Framing::Sized(0));
    }
    Some(match body.size_hint().exact() {
        Some(length) => Framing::Sized(length),
        None => Framing::Chunked(named(fields)),
    })
}

/// The trailers that a head announces.
fn named(fields: &HeaderMap) -> Vec<HeaderName> {
    let names = listed(fields, &TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok());
    names.filter(hop::may_be_trailer).collect()
}

/// How the end of an answer's body is known (RFC 9112 §6.3).
fn remaining(fields: &mut HeaderMap, is_http10: bool) -> Result<Remaining, Malformed> {
    let mut codings = fields.get_all(TRANSFER_ENCODING).iter();
    let coding = match (codings.next(), codings.next()) {
        (None, _) => None,
        (Some(coding), None) if !is_http10 => Some(coding.as_bytes().trim_ascii()),
        _ => return Err(Malformed::Length),
    };
    match coding {
        Some(coding) if coding.eq_ignore_ascii_case(b"chunked") => {
            // Both at once can be read in two ways: who reads on must see only how it was read here.
            fields.remove(CONTENT_LENGTH);
            Ok(Remaining::Chunked(Box::new(Chunks::of_answer(HEAD_BYTES_MAX))))
        }
        // Another coding would be taken off nowhere, and the field that says so goes no further.
        Some(coding) if !coding.eq_ignore_ascii_case(b"identity") => Err(Malformed::Length),
        _ => Ok(length(fields)?.map_or(Remaining::UntilClose, Remaining::Sized)),
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
