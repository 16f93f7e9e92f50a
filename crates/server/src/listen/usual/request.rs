//! Whether what has come is a usual request, and that request. **Pure.**

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{Method, Request, Uri, Version};

use super::Not;
use crate::http1::{FIELDS_MAX, Incoming, TOGETHER_MAX, fields, number, shared};
use crate::listen::Received;

/// The largest body that is served here.
const BODY_MAX: usize = 64 * 1024;

/// How many fields are added to a request on its way to the upstream: the grant's, the client's and ours.
const ADDED: usize = 6;

/// Takes the request that stands at the front of what was read. If it is something else, or not all of it, nothing is
/// taken.
pub(super) fn take(incoming: &mut Incoming) -> Result<Request<Received>, Not> {
    let bytes = incoming.bytes();
    let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(head)) = parsed.parse_with_uninit_headers(bytes, &mut room) else {
        return Err(Not::Usual);
    };
    let length = length(&parsed).ok_or(Not::Usual)?;
    if bytes.len() < head + length {
        return Err(Not::Whole);
    }
    // A short body is copied together with its head: one piece of memory for both.
    let is_together = length <= TOGETHER_MAX;
    let copy = Bytes::copy_from_slice(&bytes[..if is_together { head + length } else { head }]);
    let request = request(&parsed, bytes, &copy).ok_or(Not::Usual)?;
    incoming.skip(head);
    let body = if is_together {
        incoming.skip(length);
        copy.slice(head..)
    } else {
        incoming.take(length)
    };
    Ok(request.map(|()| Received::whole(body)))
}

/// The request that was parsed from `bytes`, of which `copy` is one. `None` for whatever is hyper's: it reads it anew, and
/// says what is wrong with it if something is.
fn request(parsed: &httparse::Request<'_, '_>, bytes: &[u8], copy: &Bytes) -> Option<Request<()>> {
    let target = shared(parsed.path?.as_bytes(), bytes, copy);
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.uri_mut() = Uri::from_maybe_shared(target).ok()?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = fields(parsed.headers, bytes, copy, ADDED).ok()?;
    Some(request)
}

/// How long the body is; `None` for a longer one, and if the head asks for something that is not usual. The wire has seen to
/// it that there is at most one length, and that it is a number.
fn length(parsed: &httparse::Request<'_, '_>) -> Option<usize> {
    let mut length = 0;
    for field in &*parsed.headers {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            14 if is("content-length") => {
                length = usize::try_from(number(field.value.trim_ascii())?).ok()?;
            }
            10 if is("connection") && field.value.trim_ascii().eq_ignore_ascii_case(b"keep-alive") => {}
            10 if is("connection") => return None,
            2 if is("te") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") || is("trailer") => return None,
            14 if is("http2-settings") => return None,
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
    }
    (parsed.version == Some(1) && length <= BODY_MAX).then_some(length)
}
