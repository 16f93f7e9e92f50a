//! How bearer tokens are verified, from `[jwt]`.

use std::fs;
use std::sync::Arc;

use onlyonce_http::principal::JwtKeys;

use crate::config::{ConfigError, JwtSection};

/// The verifier that `section` describes; `None` when it says nothing.
pub(crate) fn verifier(section: &JwtSection) -> Result<Option<Arc<JwtKeys>>, ConfigError> {
    let (algorithm, path) = match (&section.algorithm, &section.key_file) {
        (Some(algorithm), Some(path)) => (algorithm, path),
        (None, None) if *section == JwtSection::default() => return Ok(None),
        (None, _) => return Err(ConfigError::field("jwt.algorithm", "is not set: a token must not choose")),
        (_, None) => {
            return Err(ConfigError::field("jwt.key_file", "is not set, but another field of [jwt] is"));
        }
    };
    let wrong =
        |problem: String| ConfigError::field("jwt.key_file", format!("{}: {problem}", path.display()));
    let key = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    // Editors end files with a line end, which is no part of a secret.
    let mut keys = JwtKeys::new(algorithm, key.trim_ascii_end())
        .map_err(|error| ConfigError::field("jwt", error.to_string()))?;
    if let Some(issuer) = &section.issuer {
        keys = keys.issuer(issuer);
    }
    if let Some(audience) = &section.audience {
        keys = keys.audience(audience);
    }
    Ok(Some(Arc::new(keys)))
}
