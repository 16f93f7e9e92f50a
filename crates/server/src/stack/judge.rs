//! What a sidecar must not pass on, whatever the rules say. Decided by the head alone.

use http::header::{HOST, HeaderName, VIA};
use http::{Method, Request, Response, StatusCode};
use onlyonce_http::Body;

use crate::listen::Received;
use crate::upstream::{Upstream, refuse};

const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The refusal of what must not go further.
pub(super) fn judge(request: &Request<Received>, upstream: &Upstream) -> Option<Response<Body>> {
    let headers = request.headers();
    if request.method() == Method::CONNECT {
        return Some(refuse(StatusCode::METHOD_NOT_ALLOWED, "a sidecar is no tunnel: CONNECT is not served"));
    }
    if let (Some(authority), Some(host)) = (request.uri().authority(), headers.get(HOST))
        && !authority.as_str().as_bytes().eq_ignore_ascii_case(host.as_bytes())
    {
        return Some(refuse(StatusCode::BAD_REQUEST, "the target and Host name two different hosts"));
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
    // Early data can be sent again by anyone who sees it (RFC 8470 §5.2); the client repeats it after the handshake.
    if headers.get(EARLY_DATA).is_some_and(|value| value == "1") && !request.method().is_safe() {
        return Some(refuse(StatusCode::TOO_EARLY, "sent as early data: send it again after the handshake"));
    }
    None
}
