//! What a caller shows: a bearer token, known by its hash only.

use http::HeaderMap;
use http::header::AUTHORIZATION;

/// The hash of the one bearer token among `headers`. Hashes compare in constant time, and are of one length whatever was
/// hashed: how long it takes says nothing.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<blake3::Hash> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, secret) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| blake3::hash(secret.trim_ascii().as_bytes()))
}
