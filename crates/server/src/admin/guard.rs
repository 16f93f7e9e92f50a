//! Who may ask: whoever shows the token, and no page of another site on their behalf.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Request, Uri};
use onlyonce_http::ProblemKind;

use crate::bearer::bearer;
use crate::refusal::Refusal;

/// Set by browsers only, and by no page.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Refuses whoever does not show the token, where there is one.
pub(super) fn may_ask<B>(token: Option<&str>, request: &Request<B>) -> Result<(), Refusal> {
    match token {
        Some(token) if bearer(request.headers()) != Some(blake3::hash(token.as_bytes())) => {
            Err(Refusal::new(ProblemKind::Unauthorized, "admin.token must be shown as a bearer token"))
        }
        _ => Ok(()),
    }
}

/// Without a token only this machine can ask, and a name that somebody else's DNS points at it is not its own: a page of
/// that name would be of the same site to the browser.
pub(super) fn is_for_us<B>(token: Option<&str>, request: &Request<B>) -> Result<(), Refusal> {
    let is_named = request.uri().authority().is_some() || request.headers().contains_key(HOST);
    // A name that cannot be read is a name of somebody else.
    let is_ours = authority(request).map_or(!is_named, |authority| is_of_this_machine(&authority));
    if token.is_some() || is_ours {
        return Ok(());
    }
    let detail = "without admin.token, ask by the address or as localhost, not by another name";
    Err(Refusal::new(ProblemKind::Forbidden, detail))
}

/// Refuses what a page of another site sent: browsers say where it is from. Such a page could not read the answer, but its
/// question would be in the audit.
pub(super) fn is_of_this_site<B>(request: &Request<B>) -> Result<(), Refusal> {
    let headers = request.headers();
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let elsewhere = || Refusal::new(ProblemKind::Forbidden, "requests of other sites are refused");
    if text(SEC_FETCH_SITE).is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(elsewhere());
    }
    if let Some(origin) = text(ORIGIN.as_str()) {
        let origin = origin.parse::<Uri>().ok().and_then(|origin| origin.authority().cloned());
        let ours = authority(request);
        if origin.is_none() || origin != ours {
            return Err(elsewhere());
        }
    }
    Ok(())
}

/// Refuses commands that a page of another site could have sent, also by a browser that does not say so: those can carry
/// what a form can.
pub(super) fn may_command<B>(request: &Request<B>) -> Result<(), Refusal> {
    is_of_this_site(request)?;
    if is_json(request.headers()) {
        return Ok(());
    }
    Err(Refusal::new(ProblemKind::MediaTypeUnsupported, "send application/json"))
}

/// Whom the request is for.
fn authority<B>(request: &Request<B>) -> Option<Authority> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    request.uri().authority().cloned().or(host)
}

fn is_of_this_machine(authority: &Authority) -> bool {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&str, &str)]) -> Request<()> {
        let mut builder = Request::post("/api/purge");
        for (name, value) in fields {
            builder = builder.header(*name, *value);
        }
        builder.body(()).expect("a request")
    }

    #[test]
    fn commands_of_other_sites_are_refused() {
        let json = ("content-type", "application/json; charset=utf-8");
        let host = ("host", "127.0.0.1:9090");
        for fields in [
            &[host, json][..],
            &[host, json, ("origin", "http://127.0.0.1:9090")],
            &[host, json, ("origin", "http://127.0.0.1:9090"), ("sec-fetch-site", "same-origin")],
            &[host, json, ("sec-fetch-site", "none")],
        ] {
            assert!(may_command(&request(fields)).is_ok(), "{fields:?}");
        }
        for fields in [
            &[host][..],
            &[host, ("content-type", "text/plain")],
            &[host, ("content-type", "application/x-www-form-urlencoded")],
            &[host, json, ("origin", "http://evil.test")],
            &[host, json, ("origin", "http://127.0.0.1:3000")],
            &[host, json, ("origin", "null")],
            &[json, ("origin", "http://127.0.0.1:9090")],
            &[host, json, ("sec-fetch-site", "cross-site")],
            &[host, json, ("sec-fetch-site", "same-site")],
        ] {
            assert!(may_command(&request(fields)).is_err(), "{fields:?}");
        }
        let other = request(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]);
        assert!(is_of_this_site(&other).is_err(), "not even to be asked");
        assert!(is_of_this_site(&request(&[host])).is_ok());
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_are_answered() {
        for (host, is_ours) in [
            ("127.0.0.1:9090", true),
            ("[::1]:9090", true),
            ("localhost:9090", true),
            ("LOCALHOST", true),
            ("rebound.evil.test:9090", false),
            ("localhost.evil.test", false),
            ("a{b}.evil.test:9090", false),
            ("a%7Bb.evil.test", false),
            ("", false),
        ] {
            assert_eq!(is_for_us(None, &request(&[("host", host)])).is_ok(), is_ours, "{host}");
            assert!(is_for_us(Some("token"), &request(&[("host", host)])).is_ok(), "{host}");
        }
        assert!(
            may_ask(Some("token"), &request(&[("host", "x.test"), ("authorization", "Bearer token")]))
                .is_ok()
        );
        assert!(may_ask(Some("token"), &request(&[("host", "localhost")])).is_err());
    }
}
