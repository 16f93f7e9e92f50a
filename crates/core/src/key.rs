//! What a caller sends to name one operation: caller text becomes a valid [`Key`], or is refused.
//!
//! A key is an opaque name of 1 to 255 printable ASCII characters. This file decides which texts are keys and
//! which two texts are the same key; it does not make keys (see [`mod@derive`]) and knows nothing of headers.

pub mod derive;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::hex;

/// The longest key, in characters. 255 is what Stripe and most peers accept, so that callers can keep their keys.
pub const KEY_CHARS_MAX: usize = 255;

/// The longest *written form* of a key: each character escaped, two quotes, and room for parameters.
const WRITTEN_BYTES_MAX: usize = 2 * KEY_CHARS_MAX + 514;

/// The name of one operation, as its caller sent it.
///
/// `Debug` never prints the text: keys often carry order numbers or mail addresses and must not reach a log.
/// Ask for [`Key::as_str`] where the text itself is meant.
///
/// ```
/// use onlyonce_core::Key;
///
/// let quoted = Key::parse("\"order-7\"")?;
/// let bare = Key::parse("order-7")?;
/// assert_eq!(quoted, bare);
/// assert_eq!(quoted.as_str(), "order-7");
/// # Ok::<(), onlyonce_core::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<str>);

/// Which written forms of a key are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyForm {
    /// The quoted form of RFC 9651 and the bare form, as the same key. The default, because both are in use.
    #[default]
    QuotedOrBare,
    /// Only the quoted form, as draft-ietf-httpapi-idempotency-key-header asks.
    Quoted,
    /// Only the bare form, as Stripe's clients send it. A leading quote is refused, not taken literally.
    Bare,
}

impl Key {
    /// Takes `text` itself as the key: no quotes are removed.
    ///
    /// Use this for keys that a program made; use [`Key::parse`] for what came over the wire.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if let Some(at) = text.bytes().position(|byte| !matches!(byte, 0x20..=0x7e)) {
            return Err(KeyError::NotPrintable { at });
        }
        if text.len() > KEY_CHARS_MAX {
            return Err(KeyError::TooLong { chars: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// Reads a key in either written form.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        Self::parse_as(text, KeyForm::QuotedOrBare)
    }

    /// Reads a key in the written forms that `form` allows. Spaces and tabs around it are not part of it.
    pub fn parse_as(text: &str, form: KeyForm) -> Result<Self, KeyError> {
        // The cap comes before any parsing, so that refusing a huge text costs nothing.
        if text.len() > WRITTEN_BYTES_MAX {
            return Err(KeyError::TooLong { chars: text.len() });
        }
        let text = text.trim_matches([' ', '\t']);
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        match (text.starts_with('"'), form) {
            (true, KeyForm::QuotedOrBare | KeyForm::Quoted) => parse_quoted(text),
            (true, KeyForm::Bare) => Err(KeyError::QuotesNotAccepted),
            (false, KeyForm::QuotedOrBare | KeyForm::Bare) => parse_bare(text),
            (false, KeyForm::Quoted) => Err(KeyError::QuotesRequired),
        }
    }

    /// The first 32 hexadecimal digits of a digest: 128 bits keep accidental collisions out of reach.
    pub(crate) fn from_digest(digest: &[u8; 32]) -> Self {
        Self(hex::encode(&digest[..16]).into())
    }

    /// The text of the key. It may identify a person or an order: keep it out of logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reads an RFC 9651 String item. Its parameters are read and ignored, as the draft asks.
fn parse_quoted(text: &str) -> Result<Key, KeyError> {
    let item = sfv::Parser::new(text)
        .parse::<sfv::Item>()
        .map_err(|source| KeyError::Malformed { reason: source.to_string() })?;
    match item.bare_item {
        sfv::BareItem::String(string) => Key::new(string.as_str()),
        _ => Err(KeyError::Malformed { reason: "not a string".into() }),
    }
}

/// Reads the bare form. What could be read as a list, as parameters or as half of a quoted form is refused:
/// two parties that disagree on where a key ends would protect two different operations.
fn parse_bare(text: &str) -> Result<Key, KeyError> {
    match text.bytes().position(|byte| matches!(byte, b' ' | b'\t' | b'"' | b',' | b';')) {
        Some(at) => Err(KeyError::NotBare { at, found: char::from(text.as_bytes()[at]) }),
        None => Key::new(text),
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} chars)", self.0.len())
    }
}

/// Why a text is not a key. The text itself is never repeated: it may be hostile, secret or both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no text, or only blanks.
    Empty,
    /// There are more than [`KEY_CHARS_MAX`] characters.
    TooLong {
        /// How many bytes were sent.
        chars: usize,
    },
    /// A byte is a control byte or not ASCII.
    NotPrintable {
        /// The byte's position, from 0.
        at: usize,
    },
    /// A bare key holds a character that is only allowed between quotes.
    NotBare {
        /// The character's position, from 0.
        at: usize,
        /// The character.
        found: char,
    },
    /// The quoted form is broken: no closing quote, a bad escape, or something after it.
    Malformed {
        /// What the parser said.
        reason: String,
    },
    /// Only the quoted form is accepted here.
    QuotesRequired,
    /// Only the bare form is accepted here.
    QuotesNotAccepted,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the key is empty"),
            Self::TooLong { chars } => {
                write!(f, "the key has {chars} characters, at most {KEY_CHARS_MAX} are accepted")
            }
            Self::NotPrintable { at } => write!(f, "byte {at} of the key is not printable ASCII"),
            Self::NotBare { at, found } => {
                write!(f, "character {at} of the key is {found:?}, which is accepted only between quotes")
            }
            Self::Malformed { reason } => write!(f, "the quoted key is malformed: {reason}"),
            Self::QuotesRequired => write!(f, "the key must be quoted"),
            Self::QuotesNotAccepted => write!(f, "the key must not be quoted"),
        }
    }
}

impl Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_and_bare_forms_are_the_same_key() {
        for (written, text) in [
            ("\"abc\"", "abc"),
            ("abc", "abc"),
            ("  abc\t", "abc"),
            ("\"a\\\"b\\\\c\"", "a\"b\\c"),
            ("\"with space\"", "with space"),
            ("\"abc\";v=1;flag", "abc"),
            ("a:b/c+d=e_f-g~", "a:b/c+d=e_f-g~"),
            ("a\\b", "a\\b"),
        ] {
            assert_eq!(Key::parse(written).unwrap().as_str(), text, "{written}");
        }
    }

    #[test]
    fn what_is_not_one_key_is_refused() {
        let long = "k".repeat(256);
        let long_quoted = format!("\"{long}\"");
        let huge = "k".repeat(1_000_000);
        for bad in [
            "",
            " ",
            "\"\"",
            "\"abc",
            "abc\"",
            "\"abc\" x",
            "\"a\", \"b\"",
            "a,b",
            "a;b",
            "a b",
            "\"a\nb\"",
            "a\nb",
            "a\0b",
            "ключ",
            "\"ключ\"",
            "\"a\\nb\"",
            "\"",
            &long,
            &long_quoted,
            &huge,
        ] {
            assert!(Key::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Key::parse(&"k".repeat(255)).is_ok());
        assert!(Key::parse(&format!("\"{}\"", "\\\"".repeat(255))).is_ok());
    }

    #[test]
    fn strict_forms_take_only_their_own() {
        assert_eq!(Key::parse_as("a", KeyForm::Quoted), Err(KeyError::QuotesRequired));
        assert_eq!(Key::parse_as("\"a\"", KeyForm::Bare), Err(KeyError::QuotesNotAccepted));
    }

    #[test]
    fn debug_never_shows_the_text() {
        assert_eq!(format!("{:?}", Key::new("secret-order").unwrap()), "Key(12 chars)");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_key_or_a_clear_error(text in "\\PC{0,600}|[\\x00-\\x7f]{0,300}|\"[ -~]{0,260}\"?") {
            match Key::parse(&text) {
                Ok(key) => {
                    // The canonical text is itself a key, and quoting it gives the same key back.
                    proptest::prop_assert_eq!(&Key::new(key.as_str()).unwrap(), &key);
                    let quoted = format!("\"{}\"", key.as_str().replace('\\', "\\\\").replace('"', "\\\""));
                    proptest::prop_assert_eq!(Key::parse(&quoted).unwrap(), key);
                }
                Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
