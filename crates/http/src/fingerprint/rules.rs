//! Which parts of a request count, and the short text that a record keeps of that.

use http::HeaderName;
use onlyonce_core::Rules as Described;
use serde::{Deserialize, Serialize};

use crate::rules::{BodyMode, Rules, RulesError, check_pointer};

/// The rules that a request is looked at by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FingerprintRules {
    text: Text,
    headers: Vec<HeaderName>,
    described: Described,
}

/// As it is kept in a record: JSON with one-letter names, empty for the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Text {
    #[serde(rename = "b", skip_serializing_if = "is_raw")]
    body: BodyMode,
    #[serde(rename = "i", skip_serializing_if = "Vec::is_empty")]
    include: Vec<String>,
    #[serde(rename = "x", skip_serializing_if = "Vec::is_empty")]
    exclude: Vec<String>,
    #[serde(rename = "h", skip_serializing_if = "Vec::is_empty")]
    headers: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_raw(mode: &BodyMode) -> bool {
    *mode == BodyMode::Raw
}

impl FingerprintRules {
    /// The part of a route's rules that is about comparing requests.
    pub fn new(rules: &Rules) -> Result<Self, RulesError> {
        let mut headers = names(rules.fingerprint_headers.as_deref().unwrap_or_default())?;
        headers.sort_by(|one, other| one.as_str().cmp(other.as_str()));
        headers.dedup();
        let text = Text {
            body: rules.body.unwrap_or_default(),
            include: rules.include.clone().unwrap_or_default(),
            exclude: rules.exclude.clone().unwrap_or_default(),
            headers: headers.iter().map(|name| name.as_str().to_owned()).collect(),
        };
        for pointer in text.include.iter().chain(&text.exclude) {
            check_pointer(pointer)?;
        }
        if text.body != BodyMode::Json && !(text.include.is_empty() && text.exclude.is_empty()) {
            return Err(RulesError::new("include and exclude need body = \"json\""));
        }
        let described = if text == Text::default() {
            Described::standard()
        } else {
            let written = serde_json::to_vec(&text).map_err(|error| {
                RulesError::new("the fingerprint's rules cannot be written").because(error)
            })?;
            Described::new(written)?
        };
        Ok(Self { text, headers, described })
    }

    /// The rules that a record was made by, if this program understands them.
    pub(super) fn read(described: &Described) -> Option<Self> {
        if described.version() != Described::standard().version() {
            return None;
        }
        let text = match &**described.text() {
            [] => Text::default(),
            text => serde_json::from_slice::<Text>(text).ok()?,
        };
        let headers = names(&text.headers).ok()?;
        Some(Self { text, headers, described: described.clone() })
    }

    pub(super) const fn described(&self) -> &Described {
        &self.described
    }

    pub(super) const fn mode(&self) -> BodyMode {
        self.text.body
    }

    pub(super) fn include(&self) -> &[String] {
        &self.text.include
    }

    pub(super) fn exclude(&self) -> &[String] {
        &self.text.exclude
    }

    pub(super) fn headers(&self) -> &[HeaderName] {
        &self.headers
    }
}

fn names(names: &[String]) -> Result<Vec<HeaderName>, RulesError> {
    let name = |name: &String| {
        name.parse().map_err(|error: http::header::InvalidHeaderName| {
            RulesError::new(format!("{name:?} is not a header name")).because(error)
        })
    };
    names.iter().map(name).collect()
}
