//! An answer as HTTP/1.1 says it. **Pure**, but for the date.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body::Body;
use onlyonce_core::BoxError;

use crate::clock;
use crate::http1::{Framing, Sending, is_listed, put_field, put_fields};

/// Whether the connection is to end after this answer.
pub(super) fn is_last<B>(answer: &Response<B>) -> bool {
    is_listed(answer.headers(), &CONNECTION, "close")
}

/// Begins to send an answer.
pub(super) fn start<B>(sending: &mut Sending<B>, answer: Response<B>, is_head: bool, is_last: bool)
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = answer.into_parts();
    let (framing, said) = framing(&parts.headers, parts.status, &body, is_head);
    if is_last {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    sending.start(body, framing, |head| {
        head.extend_from_slice(b"HTTP/1.1 ");
        head.extend_from_slice(parts.status.as_str().as_bytes());
        head.extend_from_slice(b" ");
        head.extend_from_slice(parts.status.canonical_reason().unwrap_or_default().as_bytes());
        head.extend_from_slice(b"\r\n");
        put_fields(&parts.headers, head);
        if let Some(length) = said {
            put_field(&CONTENT_LENGTH, &length, head);
        }
        if !parts.headers.contains_key(DATE) {
            clock::put_date(head);
        }
    });
}

/// How the body is framed; for an answer that has none by its nature, what its head says of the length it would have.
fn framing(
    fields: &HeaderMap,
    status: StatusCode,
    body: &impl Body,
    is_head: bool,
) -> (Option<Framing>, Option<HeaderValue>) {
    let length = body.size_hint().exact();
    if status == StatusCode::NO_CONTENT || status.is_informational() {
        return (None, None);
    }
    if is_head || status == StatusCode::NOT_MODIFIED {
        let said = fields.get(CONTENT_LENGTH).cloned();
        let known = || length.filter(|length| is_head && *length > 0).map(HeaderValue::from);
        return (None, said.or_else(known));
    }
    // Trailers are for those who say that they take them, and what says so is hyper's to serve.
    (Some(length.map_or_else(|| Framing::Chunked(Vec::new()), Framing::Sized)), None)
}
