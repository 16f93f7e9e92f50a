//! Whether what has come is a usual request, and that request. **Pure.**

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::{Method, Request, Uri, Version};

use crate::http1::{FIELDS_MAX, Incoming, fields};
use crate::listen::Received;

/// The largest body that is served here.
const BODY_MAX: usize = 64 * 1024;

/// Takes the request that stands at the front of what was read. `None` if it is something else, or not all of it:
/// nothing is taken then.
pub(super) fn take(incoming: &mut Incoming) -> Option<Request<Received>> {
    let (request, head, length) = usual(incoming.bytes())?;
    incoming.skip(head);
    Some(request.map(|()| Received::whole(incoming.take(length))))
}

/// The request at the front of `bytes`, the length of its head and that of its body. `None` for whatever is hyper's: it
/// reads it anew, and says what is wrong with it if something is.
fn usual(bytes: &[u8]) -> Option<(Request<()>, usize, usize)> {
    let mut room = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut []);
    let Ok(httparse::Status::Complete(head)) = parsed.parse_with_uninit_headers(bytes, &mut room) else {
        return None;
    };
    let length = length(parsed.headers)?;
    if parsed.version != Some(1) || length > BODY_MAX || bytes.len() < head + length {
        return None;
    }
    let copy = Bytes::copy_from_slice(&bytes[..head]);
    let target = parsed.path?;
    let start = target.as_ptr().addr() - bytes.as_ptr().addr();
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
    *request.uri_mut() = Uri::from_maybe_shared(copy.slice(start..start + target.len())).ok()?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = fields(parsed.headers, bytes, &copy).ok()?;
    Some((request, head, length))
}

/// How long the body is; `None` if a field asks for something that is not usual. The wire has seen to it that there is at
/// most one length, and that it is a number.
fn length(fields: &[httparse::Header<'_>]) -> Option<usize> {
    let mut length = 0;
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        match field.name.len() {
            14 if is("content-length") => {
                length = std::str::from_utf8(field.value).ok()?.trim().parse().ok()?;
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
    Some(length)
}
