//! The values that rules choose from, each written in one word.

use std::fmt;
use std::str::FromStr;

use onlyonce_core::UnknownPolicy;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde::{Deserialize, Serialize};

use super::RulesError;

/// Whose customs are followed where the draft leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// What most callers expect: answers are kept, errors run again.
    #[default]
    Standard,
    /// draft-ietf-httpapi-idempotency-key-header to the letter: keys required and quoted, errors kept.
    Ietf,
    /// As Stripe's API does, so that Stripe's own clients work.
    Stripe,
}

/// What follows from an answer of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is done: keep the answer and replay it.
    Store,
    /// It did not happen: a retry runs it.
    Release,
    /// Nobody knows.
    Unknown,
}

/// How bodies are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BodyMode {
    /// Byte by byte.
    #[default]
    Raw,
    /// JSON bodies in canonical form (RFC 8785), all others byte by byte.
    Json,
    /// Multipart bodies part by part, whatever their boundary, all others byte by byte.
    Multipart,
}

/// What to do when nobody knows whether the work happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// See [`UnknownPolicy::Hold`].
    #[default]
    Hold,
    /// See [`UnknownPolicy::Seal`].
    Seal,
    /// See [`UnknownPolicy::Query`].
    Query,
    /// See [`UnknownPolicy::Rerun`].
    Rerun,
}

impl From<Unknown> for UnknownPolicy {
    fn from(unknown: Unknown) -> Self {
        match unknown {
            Unknown::Hold => Self::Hold,
            Unknown::Seal => Self::Seal,
            Unknown::Query => Self::Query,
            Unknown::Rerun => Self::Rerun,
        }
    }
}

/// What is kept of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Retain {
    /// Status, headers and body.
    #[default]
    Full,
    /// The status: a retry is told that it is done, and with which status.
    StatusOnly,
}

/// The status of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ReplayStatus {
    /// As it was the first time.
    #[default]
    #[serde(rename = "original")]
    Original,
    /// 200 where it was another 2xx.
    #[serde(rename = "200")]
    Ok,
}

/// What to do with a keyed request when the store cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStoreFailure {
    /// Refuse it: the application is not touched.
    #[default]
    Closed,
    /// Let it through without protection, with a mark.
    Open,
}

macro_rules! one_word {
    ($($value:ident),*) => {$(
        impl FromStr for $value {
            type Err = RulesError;

            /// Reads the word that the configuration file uses.
            fn from_str(text: &str) -> Result<Self, RulesError> {
                Self::deserialize(text.into_deserializer())
                    .map_err(|error: ValueError| RulesError::new(error.to_string()))
            }
        }

        impl fmt::Display for $value {
            /// Writes the word that the configuration file uses.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f)
            }
        }
    )*};
}

one_word!(Profile, Verdict, BodyMode, Unknown, Retain, ReplayStatus, OnStoreFailure);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        assert_eq!("status-only".parse::<Retain>().unwrap(), Retain::StatusOnly);
        assert_eq!("200".parse::<ReplayStatus>().unwrap(), ReplayStatus::Ok);
        for profile in [Profile::Standard, Profile::Ietf, Profile::Stripe] {
            assert_eq!(profile.to_string().parse::<Profile>().unwrap(), profile);
        }
        let error = "strype".parse::<Profile>().unwrap_err();
        assert!(error.to_string().contains("stripe"), "{error}");
    }
}
