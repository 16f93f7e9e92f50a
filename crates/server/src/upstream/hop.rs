//! Header fields that belong to one hop and go no further (RFC 9110 §7.6.1).

use http::HeaderMap;
use http::header::{CONNECTION, EXPECT, HeaderName, TE, TRAILER, UPGRADE};

/// Fields of a hop whether or not `Connection` names them.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "http2-settings",
    "transfer-encoding",
    "upgrade",
];

/// What we add is not a client's to strike out by naming it in `Connection`.
const OURS: &str = "onlyonce-";

/// Removes what was meant for us from a request.
pub(crate) fn strip_request(headers: &mut HeaderMap) {
    if !headers.keys().any(|name| is_of_the_hop(name) || *name == EXPECT) {
        return;
    }
    let takes_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    strip(headers);
    // hyper has told the client to go on by itself.
    headers.remove(EXPECT);
    headers.remove(TE);
    if takes_trailers {
        headers.insert(TE, http::HeaderValue::from_static("trailers"));
    }
}

/// Removes what was meant for us from an answer.
pub(crate) fn strip_response(headers: &mut HeaderMap) {
    if headers.keys().any(is_of_the_hop) {
        strip(headers);
        headers.remove(TE);
    }
}

/// Whether there is anything to strip. Most heads have nothing, and one look at each of their names costs less than a
/// search for each of ours.
fn is_of_the_hop(name: &HeaderName) -> bool {
    *name == TE || HOP_BY_HOP.contains(&name.as_str())
}

/// What is no trailer, whoever announces it (RFC 9110 §6.5.1): an application that takes trailers for fields of the head
/// would take these from a client after all that looks at the head has looked.
const NEVER_TRAILERS: [&str; 17] = [
    "authorization",
    "cache-control",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "early-data",
    "expect",
    "forwarded",
    "host",
    "idempotency-key",
    "max-forwards",
    "set-cookie",
    "trailer",
    "via",
    "x-real-ip",
];

/// How the names of what only a gateway may write begin, and of what only we may.
const NEVER_BEGIN_TRAILERS: [&str; 3] = ["x-forwarded-", "x-original-", OURS];

/// Whether a client may send it as a trailer: neither a field of the hop, nor one of the head alone.
pub(crate) fn may_be_trailer(name: &HeaderName) -> bool {
    let text = name.as_str();
    !NEVER_TRAILERS.contains(&text)
        && !NEVER_BEGIN_TRAILERS.iter().any(|beginning| text.starts_with(beginning))
        && !is_of_the_hop(name)
}

/// Takes away what is no trailer.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    let never: Vec<_> = trailers.keys().filter(|name| !may_be_trailer(name)).cloned().collect();
    for name in never {
        trailers.remove(name);
    }
}

fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
            .filter_map(|token| token.parse::<HeaderName>().ok())
            .filter(|name| !name.as_str().starts_with(OURS) && *name != TRAILER)
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// The protocols that a request asks to switch to, if it really does.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<http::HeaderValue> {
    let is_asked = tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"));
    let mut values = headers.get_all(UPGRADE).iter();
    match (values.next(), values.next()) {
        (Some(value), None) if is_asked => Some(value.clone()),
        _ => None,
    }
}

fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        fields
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), http::HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn fields_of_the_hop_and_those_it_names_go_no_further() {
        let mut request = headers(&[
            ("connection", "close, X-Foo"),
            ("x-foo", "1"),
            ("x-bar", "1"),
            ("te", "gzip, trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("proxy-authorization", "x"),
            ("keep-alive", "timeout=5"),
        ]);
        strip_request(&mut request);
        assert_eq!(request, headers(&[("x-bar", "1"), ("te", "trailers")]));
    }

    #[test]
    fn a_client_cannot_strike_out_what_we_add() {
        let mut request = headers(&[("connection", "onlyonce-fence"), ("onlyonce-fence", "7")]);
        strip_request(&mut request);
        assert_eq!(request, headers(&[("onlyonce-fence", "7")]));
    }

    #[test]
    fn an_upgrade_is_one_that_connection_names() {
        assert!(upgrade(&headers(&[("connection", "Upgrade"), ("upgrade", "websocket")])).is_some());
        assert!(
            upgrade(&headers(&[("connection", "keep-alive, upgrade"), ("upgrade", "websocket")])).is_some()
        );
        assert!(upgrade(&headers(&[("upgrade", "websocket")])).is_none());
        assert!(upgrade(&headers(&[("connection", "upgrade")])).is_none());
    }
}
