//! Who a request has passed: `Via`, by which a loop is seen, and the client's address for the upstream.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderName, VIA};
use http::{HeaderMap, HeaderValue, Uri, Version};
use onlyonce_core::BoxError;

use crate::config::ForwardedMode;
use crate::joined::append;
use crate::listen::Connection;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The name of this process in `Via`: chosen at start, so that two sidecars in a row are no loop and one twice is.
#[derive(Debug, Clone)]
pub(crate) struct Pseudonym {
    name: String,
    /// With the version that was received, by which a request usually comes.
    http_10: HeaderValue,
    http_11: HeaderValue,
    http_2: HeaderValue,
}

impl Pseudonym {
    pub(crate) fn random() -> Result<Self, BoxError> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let mut name = "onlyonce-".to_owned();
        for byte in bytes {
            let _ = write!(name, "{byte:02x}");
        }
        let signed = |version: &str| HeaderValue::try_from(format!("{version} {name}"));
        Ok(Self { http_10: signed("1.0")?, http_11: signed("1.1")?, http_2: signed("2.0")?, name })
    }

    /// Whether this process has seen the request before.
    pub(crate) fn has_seen(&self, headers: &HeaderMap) -> bool {
        let name = self.name.as_bytes();
        headers
            .get_all(VIA)
            .into_iter()
            .any(|value| value.as_bytes().windows(name.len()).any(|part| part == name))
    }

    /// Says that the request passed here.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, version: Version) {
        let signed = match version {
            Version::HTTP_10 => &self.http_10,
            Version::HTTP_2 => &self.http_2,
            _ => &self.http_11,
        };
        append(headers, VIA, signed.clone());
    }
}

/// HTTP/2 has no Host; the authority stands for it.
pub(crate) fn name_host(headers: &mut HeaderMap, uri: &Uri) {
    if !headers.contains_key(HOST)
        && let Some(authority) = uri.authority()
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        headers.insert(HOST, host);
    }
}

/// Tells the upstream who the client is, as far as `mode` lets us.
pub(crate) fn forward(headers: &mut HeaderMap, mode: ForwardedMode, connection: &Connection) {
    let proto = if connection.is_tls { "https" } else { "http" };
    match mode {
        ForwardedMode::Off => {}
        ForwardedMode::Replace => {
            headers.remove(FORWARDED);
            replace(headers, X_FORWARDED_FOR, connection.peer_text.clone());
            replace(headers, X_FORWARDED_PROTO, Some(HeaderValue::from_static(proto)));
            let host = headers.get(HOST).cloned();
            replace(headers, X_FORWARDED_HOST, host);
        }
        ForwardedMode::Append => {
            if let Some(peer) = &connection.peer_text {
                append(headers, X_FORWARDED_FOR, peer.clone());
            }
            // One that a trusted gateway set is the client's view, which ours is not.
            headers.entry(X_FORWARDED_PROTO).or_insert(HeaderValue::from_static(proto));
            if let Some(host) = headers.get(HOST).cloned() {
                headers.entry(X_FORWARDED_HOST).or_insert(host);
            }
            if headers.contains_key(FORWARDED)
                && let Ok(element) =
                    HeaderValue::try_from(format!("for={};proto={proto}", node(connection.peer)))
            {
                append(headers, FORWARDED, element);
            }
        }
    }
}

/// Puts what we know in place of what the client says, also when that is nothing.
fn replace(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    match value {
        Some(value) => headers.insert(name, value),
        None => headers.remove(name),
    };
}

/// A client as RFC 7239 writes it.
fn node(peer: Option<IpAddr>) -> String {
    match peer {
        Some(IpAddr::V4(address)) => address.to_string(),
        Some(IpAddr::V6(address)) => format!("\"[{address}]\""),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(mode: ForwardedMode, sent: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers: HeaderMap =
            sent.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect();
        let peer = Some("10.1.2.3".parse().unwrap());
        forward(&mut headers, mode, &Connection::new(peer, true));
        headers
    }

    #[test]
    fn a_client_does_not_name_its_own_address() {
        let sent = [(X_FORWARDED_FOR, "1.1.1.1"), (X_FORWARDED_PROTO, "http"), (FORWARDED, "for=1.1.1.1")];
        let headers = forwarded(ForwardedMode::Replace, &sent);
        assert_eq!(headers[X_FORWARDED_FOR], "10.1.2.3");
        assert_eq!(headers[X_FORWARDED_PROTO], "https");
        assert!(!headers.contains_key(FORWARDED));
        let headers = forwarded(ForwardedMode::Append, &sent);
        assert_eq!(headers[X_FORWARDED_FOR], "1.1.1.1, 10.1.2.3");
        assert_eq!(headers[X_FORWARDED_PROTO], "http");
        assert_eq!(headers[FORWARDED], "for=1.1.1.1, for=10.1.2.3;proto=https");
        assert_eq!(forwarded(ForwardedMode::Off, &sent)[X_FORWARDED_FOR], "1.1.1.1");
    }

    #[test]
    fn a_process_knows_itself_and_nobody_else() {
        let (ours, theirs) = (Pseudonym::random().unwrap(), Pseudonym::random().unwrap());
        let mut headers = HeaderMap::new();
        theirs.sign(&mut headers, Version::HTTP_2);
        assert!(!ours.has_seen(&headers));
        ours.sign(&mut headers, Version::HTTP_11);
        assert!(ours.has_seen(&headers) && theirs.has_seen(&headers));
        assert_eq!(headers.get_all(VIA).iter().count(), 1);
    }
}
