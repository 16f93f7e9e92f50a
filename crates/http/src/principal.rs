//! Who asks: from what a request carries to a [`Principal`], by the rule of its route.
//!
//! Whoever cannot be told apart must not share an answer. So a request that shows credentials which the rule cannot
//! read is refused, and only a request without any shares the anonymous scope.

mod cookie;
#[cfg(feature = "jwt")]
mod jwt;

use std::fmt;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use onlyonce_core::Principal;

use crate::rules::PrincipalRule;

#[cfg(feature = "jwt")]
pub use jwt::JwtKeys;

/// A verified identity, put into the extensions of a request by whoever verified it: the server, for the certificate of
/// a peer, or the application's own authentication.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity(Arc<[u8]>);

impl Identity {
    /// The identity with these bytes. They say who it is and stay the same between retries.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} bytes)", self.0.len())
    }
}

/// Verifies bearer tokens for `principal = "jwt:CLAIM"`.
pub trait TokenVerifier: fmt::Debug + Send + Sync + 'static {
    /// The text of `claim` in `token`, or `None` when the token does not verify or has no such claim.
    fn claim(&self, token: &str, claim: &str) -> Option<String>;
}

/// Why it cannot be told who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// There are credentials, but not the one the rule reads.
    NotReadable,
    /// The credential is there twice.
    Repeated,
    /// The token does not verify, or lacks the claim.
    NotVerified,
}

impl Missing {
    pub(crate) const fn detail(self) -> &'static str {
        match self {
            Self::NotReadable => {
                "The request carries credentials, but none that this operation reads callers from."
            }
            Self::Repeated => "The credential appears more than once.",
            Self::NotVerified => "The bearer token cannot be verified, or does not name the caller.",
        }
    }
}

/// The principal of a request, by `rule`.
pub(crate) fn principal(
    rule: &PrincipalRule,
    head: &Parts,
    tokens: Option<&dyn TokenVerifier>,
) -> Result<Principal, Missing> {
    let headers = &head.headers;
    let found = match rule {
        PrincipalRule::Shared => return Ok(Principal::Shared),
        PrincipalRule::Authorization => one_line(headers, &AUTHORIZATION)?.map(credential),
        PrincipalRule::Header(name) => one_line(headers, name)?.map(Principal::named),
        PrincipalRule::Cookie(name) => cookie::value(headers, name)?.map(Principal::named),
        PrincipalRule::Jwt(claim) => match one_line(headers, &AUTHORIZATION)? {
            Some(line) => Some(claimed(line, claim, tokens)?),
            None => None,
        },
        PrincipalRule::Mtls | PrincipalRule::Application => {
            head.extensions.get::<Identity>().map(|identity| Principal::named(&identity.0))
        }
    };
    match found {
        Some(principal) => Ok(principal),
        None if headers.contains_key(COOKIE) || headers.contains_key(AUTHORIZATION) => {
            Err(Missing::NotReadable)
        }
        None => Ok(Principal::Anonymous),
    }
}

/// The principal that `shown` is, for operators who know what callers show: a credential under `authorization`, else what
/// the rule reads. Who shows nothing is anonymous.
pub(crate) fn shown(rule: &PrincipalRule, shown: Option<&str>) -> Principal {
    match (rule, shown) {
        (PrincipalRule::Shared, _) => Principal::Shared,
        (_, None) => Principal::Anonymous,
        (PrincipalRule::Authorization, Some(line)) => credential(line.as_bytes()),
        (_, Some(text)) => Principal::named(text),
    }
}

/// Whether a retry may come with another credential than this `line`, because it is a JWT that is refreshed now and then.
pub(crate) fn looks_like_jwt(line: &[u8]) -> bool {
    bearer(line)
        .is_some_and(|token| token.starts_with(b"eyJ") && token.split(|byte| *byte == b'.').count() == 3)
}

fn one_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Missing> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(Missing::Repeated);
    }
    // An empty credential names nobody.
    Ok(Some(line.as_bytes()).filter(|bytes| !bytes.is_empty()))
}

/// The credential itself is the identity: it only ever leaves this process inside a keyed hash. Schemes are the same in
/// either case (RFC 9110 §11.1).
fn credential(line: &[u8]) -> Principal {
    let mut line: Box<[u8]> = line.into();
    let scheme = line.iter().position(|byte| *byte == b' ').unwrap_or(0);
    line[..scheme].make_ascii_lowercase();
    Principal::Named(line)
}

fn claimed(line: &[u8], claim: &str, tokens: Option<&dyn TokenVerifier>) -> Result<Principal, Missing> {
    bearer(line)
        .and_then(|token| std::str::from_utf8(token).ok())
        .and_then(|token| tokens?.claim(token, claim))
        .map(Principal::named)
        .ok_or(Missing::NotVerified)
}

fn bearer(line: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = line.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}
