//! Makes keys: from what an operation is, from chance, from a body, or from a caller and a stretch of time.
//!
//! A key protects only if a retry sends the *same* one. Which strategy gives that, and at what price:
//!
//! | strategy | the retry finds the key again | two operations are told apart |
//! |---|---|---|
//! | [`Derivation`]: entity, action, params | by computing it | by what they are: a second identical order needs its own entity |
//! | [`random_v4`], [`random_v7`] | only if the caller stored it before the first attempt | always |
//! | [`body_key`], [`raw_body_key`] | by sending the same body | by their bodies: "one more of the same" is a retry |
//! | [`Composite`]: user, operation, window | by computing it, within two windows | one per user, operation and window |
//!
//! Everything here is a pure function of its arguments (chance and time included: time is an argument). What looks
//! like a mistake but cannot be proven one is not refused: it is reported as a [`Hazard`].

mod chance;
mod composite;
mod digest;
mod document;
mod error;
mod hazard;
mod judge;
mod moment;
mod names;
mod python_json;
mod random;

pub use composite::{Composite, WINDOW_MAX};
pub use document::{INTEGER_DIGITS_MAX, PARAMS_BYTES_MAX, PARAMS_DEPTH_MAX};
pub use error::{DeriveError, ParamsRefusal};
pub use hazard::{HAZARDS_MAX, Hazard, HazardKind};
pub use random::{random_v4, random_v7};

use std::fmt;

use super::Key;
use crate::fingerprint::canonical::canonical_json;
use digest::FieldDigest;
use document::Node;

/// The longest entity, action, user or operation, in bytes.
pub const FIELD_BYTES_MAX: usize = 64 * 1024;

/// Separates keys of [`Form::LengthPrefixed`] from everything else that may ever be hashed this way.
const DERIVATION_TAG: &str = "onlyonce/key/derivation/v1";

/// How entity, action and params are laid out before they are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Form {
    /// `entity:action` or `entity:action:params`. The default, because other languages make the same key in a line:
    ///
    /// ```python
    /// text = f"{entity}:{action}:{json.dumps(params, sort_keys=True)}" if params else f"{entity}:{action}"
    /// key = hashlib.sha256(text.encode()).hexdigest()[:32]
    /// ```
    ///
    /// A colon inside a field can make two operations one: `a:b` + `c` is `a` + `b:c`. Reported as
    /// [`HazardKind::Colon`].
    #[default]
    Plain,
    /// Four fields, each preceded by its length in bytes as an 8-byte big-endian number: the tag
    /// `onlyonce/key/derivation/v1`, entity, action, and params as in [`Form::Plain`] (empty when there are none).
    /// No two different operations are laid out alike, whatever their fields hold.
    LengthPrefixed,
}

/// A deterministic key: the same entity, action and params always give the same key, in every process and language.
///
/// ```
/// use onlyonce_core::key::derive::Derivation;
///
/// let order = Derivation::new("order-123", "create")?.with_params(r#"{"currency": "USD", "amount": 100}"#)?;
/// assert_eq!(order.key().as_str(), "0681b5ad331e2ebe28b4f1ab218048a4");
/// assert!(order.hazards().is_empty());
///
/// // Wrong: the time differs on every retry, and so does the key.
/// let wrong = Derivation::new("order-123", "create")?.with_params(r#"{"sent_at": "2026-11-15T04:09:00Z"}"#)?;
/// assert_eq!(wrong.hazards()[0].place(), "/sent_at");
/// # Ok::<(), onlyonce_core::key::derive::DeriveError>(())
/// ```
#[derive(Clone)]
pub struct Derivation<'a> {
    entity: &'a str,
    action: &'a str,
    /// `None` stands for no params and for `{}`: Python's `if params` takes them for the same.
    params: Option<Node>,
    form: Form,
}

impl<'a> Derivation<'a> {
    /// What is acted upon (`order-123`), and what is done to it (`create`).
    pub fn new(entity: &'a str, action: &'a str) -> Result<Self, DeriveError> {
        check_field("entity", entity)?;
        check_field("action", action)?;
        Ok(Self { entity, action, params: None, form: Form::default() })
    }

    /// Adds parameters: the text of a JSON object. Order and spelling of its members do not count.
    ///
    /// Integers of any size are exact. `1` and `1.0` are different params, as they are in Python.
    pub fn with_params(mut self, json: &str) -> Result<Self, DeriveError> {
        self.params = match document::parse(json)? {
            Node::Object(members) if members.is_empty() => None,
            object @ Node::Object(_) => Some(object),
            _ => return Err(DeriveError::ParamsNotObject),
        };
        Ok(self)
    }

    /// Chooses the layout. Changing it changes every key.
    #[must_use]
    pub const fn with_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// The params as they are hashed: what Python's `json.dumps(params, sort_keys=True)` writes. `None` without any.
    pub fn params_text(&self) -> Option<String> {
        self.params.as_ref().map(python_json::dumps)
    }

    /// The key: the first 32 hexadecimal digits of the SHA-256 of the [`Form`].
    pub fn key(&self) -> Key {
        let params = self.params_text();
        match self.form {
            Form::Plain => {
                let mut text = format!("{}:{}", self.entity, self.action);
                if let Some(params) = params {
                    text.push(':');
                    text.push_str(&params);
                }
                digest::key_of(text.as_bytes())
            }
            Form::LengthPrefixed => FieldDigest::new(DERIVATION_TAG)
                .field(self.entity.as_bytes())
                .field(self.action.as_bytes())
                .field(params.unwrap_or_default().as_bytes())
                .key(),
        }
    }

    /// What in the fields is likely to differ between a first attempt and its retry, or to collide.
    ///
    /// At most [`HAZARDS_MAX`] are reported, from the first ten thousand values. An empty answer is no proof: chance
    /// cannot be recognised with certainty.
    pub fn hazards(&self) -> Vec<Hazard> {
        hazard::of_derivation(self.entity, self.action, self.params.as_ref(), self.form == Form::Plain)
    }
}

impl fmt::Debug for Derivation<'_> {
    /// Never shows the fields: they name orders and people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").field("form", &self.form).finish_non_exhaustive()
    }
}

/// The key of a JSON body: the first 32 hexadecimal digits of the SHA-256 of its canonical form (RFC 8785).
///
/// Order of members, blanks and escapes do not count. See [`canonical_json`] for the bodies that are refused, and
/// [`body_hazards`] for what makes a retry's body differ.
///
/// ```
/// use onlyonce_core::key::derive::body_key;
///
/// assert_eq!(body_key(br#"{"a": 1, "b": 2}"#)?, body_key(br#"{"b":2,"a":1}"#)?);
/// # Ok::<(), onlyonce_core::key::derive::DeriveError>(())
/// ```
pub fn body_key(body: &[u8]) -> Result<Key, DeriveError> {
    if body.is_empty() {
        return Err(DeriveError::Empty { field: "body" });
    }
    canonical_json(body).map(|canonical| digest::key_of(&canonical)).map_err(DeriveError::Body)
}

/// The key of a body that is not JSON: the first 32 hexadecimal digits of the SHA-256 of its bytes.
///
/// Refuses only the empty body: all empty bodies would be one operation.
pub fn raw_body_key(body: &[u8]) -> Result<Key, DeriveError> {
    if body.is_empty() {
        return Err(DeriveError::Empty { field: "body" });
    }
    Ok(digest::key_of(body))
}

/// What in a JSON body is likely to differ between a first attempt and its retry. Nothing for what is not JSON.
pub fn body_hazards(body: &[u8]) -> Vec<Hazard> {
    let node = std::str::from_utf8(body).ok().and_then(|text| document::parse(text).ok());
    node.map(|node| hazard::of_body(&node)).unwrap_or_default()
}

/// Every field names something, and none is without bound.
fn check_field(field: &'static str, text: &str) -> Result<(), DeriveError> {
    if text.is_empty() {
        return Err(DeriveError::Empty { field });
    }
    if text.len() > FIELD_BYTES_MAX {
        return Err(DeriveError::TooLong { field, bytes: text.len(), bytes_max: FIELD_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(entity: &str, action: &str, params: &str, form: Form) -> String {
        let derivation =
            Derivation::new(entity, action).unwrap().with_params(params).unwrap().with_form(form);
        derivation.key().as_str().to_owned()
    }

    // Computed with Python; `tests/derive_python.rs` asks a real one.
    #[test]
    fn the_bytes_are_as_documented() {
        let params = r#"{"currency":"USD","amount":100}"#;
        assert_eq!(key("order-123", "create", params, Form::Plain), "0681b5ad331e2ebe28b4f1ab218048a4");
        assert_eq!(
            key("order-123", "create", params, Form::LengthPrefixed),
            "07908e3fb923a1d572bb6023bf856b87"
        );
        assert_eq!(
            key("order-123", "create", "{}", Form::LengthPrefixed),
            "91cf2de8ea8fb87dec1c7d3cc5896ee3"
        );
    }

    #[test]
    fn order_of_members_and_empty_params_do_not_count() {
        for form in [Form::Plain, Form::LengthPrefixed] {
            let none = Derivation::new("e", "a").unwrap().with_form(form);
            assert_eq!(none.params_text(), None);
            assert_eq!(none.key().as_str(), key("e", "a", " { } ", form));
            assert_eq!(
                key("e", "a", r#"{"x":1,"y":2}"#, form),
                key("e", "a", r#"{"y": 2, "\u0078": 1}"#, form)
            );
            assert_ne!(key("e", "a", r#"{"x":1}"#, form), key("e", "a", r#"{"x":1.0}"#, form));
            assert_ne!(key("e", "a", r#"{"x":[]}"#, form), key("e", "a", "{}", form));
        }
    }

    #[test]
    fn only_the_length_prefixed_form_tells_colons_apart() {
        assert_eq!(key("a:b", "c", "{}", Form::Plain), key("a", "b:c", "{}", Form::Plain));
        assert_eq!(key("a", r#"b:{"x": 1}"#, "{}", Form::Plain), key("a", "b", r#"{"x":1}"#, Form::Plain));
        let all =
            [("a:b", "c", "{}"), ("a", "b:c", "{}"), ("a", r#"b:{"x": 1}"#, "{}"), ("a", "b", r#"{"x":1}"#)];
        let keys = all.map(|(entity, action, params)| key(entity, action, params, Form::LengthPrefixed));
        assert_eq!(std::collections::HashSet::from(keys).len(), 4);
    }

    #[test]
    fn fields_that_name_nothing_and_params_that_are_no_object_are_refused() {
        assert!(matches!(Derivation::new("", "a"), Err(DeriveError::Empty { field: "entity" })));
        assert!(matches!(Derivation::new("e", ""), Err(DeriveError::Empty { field: "action" })));
        let long = "x".repeat(FIELD_BYTES_MAX + 1);
        assert!(matches!(Derivation::new(&long, "a"), Err(DeriveError::TooLong { field: "entity", .. })));
        assert!(matches!(Derivation::new("e", &long), Err(DeriveError::TooLong { field: "action", .. })));
        assert!(Derivation::new(&long[1..], "a").is_ok());
        for params in ["[]", "null", "1", "\"{}\"", "true", "[{}]"] {
            let refused = Derivation::new("e", "a").unwrap().with_params(params);
            assert!(matches!(refused, Err(DeriveError::ParamsNotObject)), "{params}");
        }
    }

    #[test]
    fn bodies_are_keyed_by_meaning_or_by_bytes() {
        let body = br#"{"b": 1.0, "a": "\u0041"}"#;
        let canonical = br#"{"a":"A","b":1}"#;
        assert_eq!(body_key(body).unwrap(), raw_body_key(canonical).unwrap());
        assert_ne!(raw_body_key(body).unwrap(), raw_body_key(canonical).unwrap());
        assert!(matches!(body_key(b""), Err(DeriveError::Empty { field: "body" })));
        assert!(matches!(raw_body_key(b""), Err(DeriveError::Empty { field: "body" })));
        assert!(matches!(body_key(b"{"), Err(DeriveError::Body(_))));
        assert_eq!(raw_body_key(b"abc").unwrap().as_str(), "ba7816bf8f01cfea414140de5dae2223");
    }

    #[test]
    fn hazards_of_bodies_are_found_and_what_is_no_json_has_none() {
        assert_eq!(body_hazards(br#"{"metadata": {"sent_at": 1}}"#)[0].place(), "/metadata/sent_at");
        assert!(body_hazards(b"{").is_empty());
        assert!(body_hazards(b"\xff").is_empty());
    }

    #[test]
    fn debug_never_shows_the_fields() {
        let derivation =
            Derivation::new("secret", "secret").unwrap().with_params(r#"{"secret":"secret"}"#).unwrap();
        assert!(!format!("{derivation:?}").contains("secret"));
    }
}
