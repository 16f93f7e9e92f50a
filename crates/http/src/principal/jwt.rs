//! Bearer tokens that say who asks: JSON web tokens, verified with a configured key and one allowed algorithm.

use std::fmt;

use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde_json::{Map, Value};

use super::TokenVerifier;
use crate::rules::RulesError;

/// Verifies tokens of one algorithm with one key. Tokens that have expired, or are not valid yet, name nobody.
pub struct JwtKeys {
    key: DecodingKey,
    validation: Validation,
}

impl JwtKeys {
    /// Verifies with `key`: the secret itself for `HS256`, `HS384` and `HS512`, else a public key in PEM form for `RS256`,
    /// `RS384`, `RS512`, `PS256`, `PS384`, `PS512`, `ES256`, `ES384` or `EdDSA`.
    pub fn new(algorithm: &str, key: &[u8]) -> Result<Self, RulesError> {
        let allowed: Algorithm = algorithm
            .parse()
            .map_err(|_| RulesError::new(format!("{algorithm:?} is no algorithm of tokens that is known")))?;
        let read = match &algorithm[..2] {
            "HS" if key.len() < 32 => return Err(RulesError::new("a secret of tokens has 32 bytes or more")),
            "HS" => Ok(DecodingKey::from_secret(key)),
            "ES" => DecodingKey::from_ec_pem(key),
            "Ed" => DecodingKey::from_ed_pem(key),
            _ => DecodingKey::from_rsa_pem(key),
        };
        let key = read.map_err(|error| RulesError::new("the key of tokens cannot be read").because(error))?;
        let mut validation = Validation::new(allowed);
        validation.validate_nbf = true;
        // Checked as soon as somebody says whom tokens are for.
        validation.validate_aud = false;
        Ok(Self { key, validation })
    }

    /// Accepts only tokens of this issuer.
    #[must_use]
    pub fn issuer(mut self, issuer: &str) -> Self {
        self.validation.set_issuer(&[issuer]);
        self.validation.required_spec_claims.insert("iss".into());
        self
    }

    /// Accepts only tokens for this audience.
    #[must_use]
    pub fn audience(mut self, audience: &str) -> Self {
        self.validation.validate_aud = true;
        self.validation.set_audience(&[audience]);
        self.validation.required_spec_claims.insert("aud".into());
        self
    }
}

impl TokenVerifier for JwtKeys {
    fn claim(&self, token: &str, claim: &str) -> Option<String> {
        let claims = decode::<Map<String, Value>>(token, &self.key, &self.validation).ok()?.claims;
        match claims.get(claim)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) if !number.is_f64() => Some(number.to_string()),
            _ => None,
        }
    }
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JwtKeys({:?})", self.validation.algorithms)
    }
}

#[cfg(test)]
mod tests {
    use jsonwebtoken::{EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"a secret of thirty-two bytes or more";
    /// In the year 2100.
    const LATER: u64 = 4_102_444_800;

    fn token(claims: &Value, secret: &[u8]) -> String {
        encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    #[test]
    fn a_claim_is_told_only_by_a_token_that_verifies() {
        let keys = JwtKeys::new("HS256", SECRET).unwrap();
        let good =
            token(&json!({"sub": "alice", "account": 7, "exp": LATER, "tags": ["a"], "empty": ""}), SECRET);
        assert_eq!(keys.claim(&good, "sub").as_deref(), Some("alice"));
        assert_eq!(keys.claim(&good, "account").as_deref(), Some("7"));
        for absent in ["nobody", "tags", "empty"] {
            assert_eq!(keys.claim(&good, absent), None, "{absent}");
        }
        let bad = [
            token(&json!({"sub": "alice", "exp": LATER}), b"another secret of thirty-two bytes..."),
            token(&json!({"sub": "alice", "exp": 1}), SECRET),
            token(&json!({"sub": "alice"}), SECRET),
            token(&json!({"sub": "alice", "exp": LATER, "nbf": LATER}), SECRET),
            // {"alg":"none"}
            format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap()),
            String::new(),
            "a.b.c".into(),
        ];
        for bad in bad {
            assert_eq!(keys.claim(&bad, "sub"), None, "{bad}");
        }
    }

    #[test]
    fn issuer_and_audience_are_asked_for_once_they_are_set() {
        let keys = JwtKeys::new("HS256", SECRET).unwrap().issuer("us").audience("here");
        let claims =
            |iss: &str, aud: &str| token(&json!({"sub": "a", "exp": LATER, "iss": iss, "aud": aud}), SECRET);
        assert_eq!(keys.claim(&claims("us", "here"), "sub").as_deref(), Some("a"));
        for bad in
            [claims("them", "here"), claims("us", "there"), token(&json!({"sub": "a", "exp": LATER}), SECRET)]
        {
            assert_eq!(keys.claim(&bad, "sub"), None);
        }
    }

    #[test]
    fn keys_that_cannot_work_are_refused() {
        for (algorithm, key) in [
            ("HS256", &b"short"[..]),
            ("none", SECRET),
            ("RS256", SECRET),
            ("ES256", SECRET),
            ("EdDSA", SECRET),
        ] {
            assert!(JwtKeys::new(algorithm, key).is_err(), "{algorithm}");
        }
    }
}
