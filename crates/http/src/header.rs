//! The headers of this crate's own, and the way from a key header to a [`Key`]: one key, or a refusal.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use onlyonce_core::fingerprint::canonical::{CanonicalError, read_strict};
use onlyonce_core::{Key, KeyError, KeyForm};

pub use crate::rules::IDEMPOTENCY_KEY;

/// Marks a replay (`true`) and a first answer (`false`).
pub const IDEMPOTENCY_REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Marks a replay as Stripe does.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// The fence of the grant a request runs under, for the application.
pub const ONLYONCE_FENCE: HeaderName = HeaderName::from_static("onlyonce-fence");
/// The attempt a request is, for the application: 1 for the first.
pub const ONLYONCE_ATTEMPT: HeaderName = HeaderName::from_static("onlyonce-attempt");
/// What the application says about its own effect: `committed`, `failed`, `unknown` or `discard`.
pub const ONLYONCE_OUTCOME: HeaderName = HeaderName::from_static("onlyonce-outcome");
/// How long the application wants its answer to be kept.
pub const ONLYONCE_RETENTION: HeaderName = HeaderName::from_static("onlyonce-retention");
/// Marks an answer that is not on record (yet).
pub const ONLYONCE_UNRECORDED: HeaderName = HeaderName::from_static("onlyonce-unrecorded");
/// Marks a replay of which something may have been taken out before it was kept.
pub const ONLYONCE_REDACTED: HeaderName = HeaderName::from_static("onlyonce-redacted");
/// Marks an answer that was made without protection.
pub const ONLYONCE_UNPROTECTED: HeaderName = HeaderName::from_static("onlyonce-unprotected");

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Why there is no key to go by although there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoKey {
    /// The header appears on more than one line. Whose line would count is anybody's guess.
    Repeated,
    /// The value is not a key.
    Invalid(KeyError),
    /// The body that should hold the key is not one JSON text that all parsers read alike.
    Body(CanonicalError),
    /// The member that should be the key is neither a string nor an integer.
    NotText,
}

impl NoKey {
    /// What to tell the caller. What was sent is not repeated.
    pub fn detail(&self) -> String {
        match self {
            Self::Repeated => "The header appears more than once.".into(),
            Self::Invalid(error) => format!("{}.", sentence(&error.to_string())),
            Self::Body(error) => format!("The key is looked for in the body, and {error}."),
            Self::NotText => "The key in the body is neither a string nor an integer.".into(),
        }
    }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The key in the header `name`; `None` when there is no such header.
///
/// A header that is there and is not a key is refused: it is never taken for "no key".
pub fn key(headers: &HeaderMap, name: &HeaderName, form: KeyForm) -> Result<Option<Key>, NoKey> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(NoKey::Repeated);
    }
    let bytes = line.as_bytes();
    let text = std::str::from_utf8(bytes)
        .map_err(|error| NoKey::Invalid(KeyError::NotPrintable { at: error.valid_up_to() }))?;
    Key::parse_as(text, form).map(Some).map_err(NoKey::Invalid)
}

/// The key at `pointer` of a JSON body; `None` when the body has no such member, or is empty.
pub fn key_in_body(body: &Bytes, pointer: &str) -> Result<Option<Key>, NoKey> {
    if body.is_empty() {
        return Ok(None);
    }
    let document = read_strict(body).map_err(NoKey::Body)?;
    let text = match document.pointer(pointer) {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(serde_json::Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(_) => return Err(NoKey::NotText),
    };
    Key::new(&text).map(Some).map_err(NoKey::Invalid)
}

/// How long the caller would like to wait (`Prefer: wait=N`, RFC 7240). The first one counts.
pub fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    // Few say so, and one look at each name costs less than a search.
    if !headers.keys().any(|name| *name == PREFER) {
        return None;
    }
    headers
        .get_all(PREFER)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|preference| preference.split(';').next()?.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
        .and_then(|(_, value)| value.trim().trim_matches('"').parse().ok())
        .map(Duration::from_secs)
}

/// Takes away what only this layer may say to the application.
pub fn strip_request_marks(headers: &mut HeaderMap) {
    if has_ours(headers) {
        headers.remove(ONLYONCE_FENCE);
        headers.remove(ONLYONCE_ATTEMPT);
    }
}

/// Takes away what the application says to this layer only.
pub fn strip_steering(headers: &mut HeaderMap) {
    if has_ours(headers) {
        headers.remove(ONLYONCE_OUTCOME);
        headers.remove(ONLYONCE_RETENTION);
    }
}

/// Whether any header is of this crate's own. Most heads have none, and one look at each name costs less than a search
/// for each of ours.
pub(crate) fn has_ours(headers: &HeaderMap) -> bool {
    headers.keys().any(|name| name.as_str().starts_with("onlyonce-"))
}
