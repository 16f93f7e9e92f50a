//! Where a request carries its key, and where it says who asks: `header:NAME` and the like.

use std::fmt;
use std::str::FromStr;

use http::HeaderName;
use http::header::InvalidHeaderName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::RulesError;

/// The header of draft-ietf-httpapi-idempotency-key-header.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Where the key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In this header.
    Header(HeaderName),
    /// In the JSON body, at this pointer (RFC 6901): a string or an integer.
    Json(String),
}

impl Default for KeySource {
    fn default() -> Self {
        Self::Header(IDEMPOTENCY_KEY)
    }
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PrincipalRule {
    /// Whoever holds the credential in `Authorization`.
    #[default]
    Authorization,
    /// The name in this header, set by a trusted gateway.
    Header(HeaderName),
    /// Whoever holds this cookie.
    Cookie(String),
    /// This claim of a verified bearer token.
    Jwt(String),
    /// The verified certificate of the peer, as the server reports it in an [`Identity`](crate::Identity).
    Mtls,
    /// Whoever the application's own authentication found, as it reports in an [`Identity`](crate::Identity).
    Application,
    /// Everyone shares the keys: one tenant.
    Shared,
}

impl FromStr for KeySource {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        match text.split_once(':') {
            Some(("header", name)) => header(name).map(Self::Header),
            Some(("json", pointer)) => check_pointer(pointer).map(|()| Self::Json(pointer.into())),
            _ => Err(RulesError::new(format!("{text:?} is neither header:NAME nor json:/pointer"))),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Json(pointer) => write!(f, "json:{pointer}"),
        }
    }
}

impl FromStr for PrincipalRule {
    type Err = RulesError;

    fn from_str(text: &str) -> Result<Self, RulesError> {
        Ok(match (text, text.split_once(':')) {
            ("authorization", _) => Self::Authorization,
            ("mtls", _) => Self::Mtls,
            ("application", _) => Self::Application,
            ("shared", _) => Self::Shared,
            (_, Some(("header", name))) => Self::Header(header(name)?),
            (_, Some(("cookie", name))) if !name.is_empty() => Self::Cookie(name.into()),
            (_, Some(("jwt", claim))) if !claim.is_empty() => Self::Jwt(claim.into()),
            _ => {
                let known = "authorization, header:NAME, cookie:NAME, jwt:CLAIM, mtls, application or shared";
                return Err(RulesError::new(format!("{text:?} is none of {known}")));
            }
        })
    }
}

impl fmt::Display for PrincipalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorization => f.write_str("authorization"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::Mtls => f.write_str("mtls"),
            Self::Application => f.write_str("application"),
            Self::Shared => f.write_str("shared"),
        }
    }
}

pub(crate) fn header(name: &str) -> Result<HeaderName, RulesError> {
    name.parse().map_err(|error: InvalidHeaderName| {
        RulesError::new(format!("{name:?} is not a header name")).because(error)
    })
}

/// A JSON pointer is empty or starts with a slash.
pub(crate) fn check_pointer(pointer: &str) -> Result<(), RulesError> {
    if pointer.is_empty() || pointer.starts_with('/') {
        Ok(())
    } else {
        Err(RulesError::new(format!("{pointer:?} is not a JSON pointer: it starts with /")))
    }
}

macro_rules! as_text {
    ($($value:ident),*) => {$(
        impl Serialize for $value {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $value {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_text!(KeySource, PrincipalRule);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in ["header:idempotency-key", "json:/event/id", "json:"] {
            assert_eq!(text.parse::<KeySource>().unwrap().to_string(), text);
        }
        for text in [
            "authorization",
            "header:x-account",
            "cookie:session",
            "jwt:sub",
            "mtls",
            "application",
            "shared",
        ] {
            assert_eq!(text.parse::<PrincipalRule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for bad in ["", "header:", "header:a b", "json:id", "Idempotency-Key", "body"] {
            assert!(bad.parse::<KeySource>().is_err(), "{bad}");
        }
        for bad in ["", "cookie:", "jwt:", "header:", "none", "Authorization"] {
            assert!(bad.parse::<PrincipalRule>().is_err(), "{bad}");
        }
    }
}
