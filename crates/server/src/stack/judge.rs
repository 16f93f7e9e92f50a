//! What a sidecar must not pass on, whatever the rules say. Decided by the head alone.

use http::header::{HOST, HeaderName, VIA};
use http::{Method, Request, Response, StatusCode};
use onlyonce_http::Body;

use crate::listen::Received;
use crate::upstream::{Upstream, refuse};

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The refusal of what must not go further.
pub(super) fn judge(
    request: &Request<Received>,
    upstream: &Upstream,
    fields_max: usize,
) -> Option<Response<Body>> {
    let headers = request.headers();
    // Over HTTP/2 nobody has counted them.
    if headers.len() > fields_max {
        return Some(refuse(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the head has too many fields"));
    }
    if request.method() == Method::CONNECT {
        return Some(refuse(StatusCode::METHOD_NOT_ALLOWED, "a sidecar is no tunnel: CONNECT is not served"));
    }
    // Only CONNECT names nothing but a host, and only OPTIONS the whole server (RFC 9112 §3.2), which a prefix is not.
    match request.uri().path() {
        "" => return Some(refuse(StatusCode::BAD_REQUEST, "the target has no path")),
        "*" if request.method() == Method::OPTIONS && !upstream.has_prefix() => {}
        path if path.starts_with('/') => {}
        _ => return Some(refuse(StatusCode::BAD_REQUEST, "the target is no path")),
    }
    let (mut hosts, authority) = (headers.get_all(HOST).iter(), request.uri().authority());
    if let Some(host) = hosts.next()
        && (hosts.next().is_some()
            || authority.is_some_and(|authority| {
                !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
            }))
    {
        return Some(refuse(StatusCode::BAD_REQUEST, "the request names two hosts"));
    }
    // One look at each name: most heads have neither, and a search for each costs more.
    if !headers.keys().any(|name| *name == VIA || *name == EARLY_DATA) {
        return None;
    }
    if upstream.has_seen(request) {
        return Some(refuse(
            StatusCode::LOOP_DETECTED,
            "this sidecar has seen the request before: check `upstream`",
        ));
    }
    // Early data can be sent again by anyone who sees it (RFC 8470 §5.2); the client repeats it after the handshake. A value that
    // is none, or several, say the same (§5.1).
    if headers.contains_key(EARLY_DATA) && !request.method().is_safe() {
        return Some(refuse(StatusCode::TOO_EARLY, "sent as early data: send it again after the handshake"));
    }
    None
}
