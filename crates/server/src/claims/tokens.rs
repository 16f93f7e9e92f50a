//! Who may ask for what: bearer tokens, each with one namespace, scopes and a quota, from a file of their own.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use http::HeaderMap;
use onlyonce_core::Quota;
use serde::Deserialize;

use crate::bearer::bearer;
use crate::config::ConfigError;
use crate::store::refuse_readable_by_all;

/// What is asked for in the configuration, and in errors.
const FIELD: &str = "serve.tokens_file";
/// The namespace of everybody when there are no tokens, and of tokens that name none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";
/// A shorter secret can be guessed.
const SECRET_CHARS_MIN: usize = 16;
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What a token may be used for, as bits.
pub(crate) const CLAIM: u8 = 1;
pub(crate) const READ: u8 = 2;
pub(crate) const RESOLVE: u8 = 4;
pub(crate) const ERASE: u8 = 8;
pub(crate) const STORE: u8 = 16;
const NAMES: [(&str, u8); 5] =
    [("claim", CLAIM), ("read", READ), ("resolve", RESOLVE), ("erase", ERASE), ("store", STORE)];

/// The names of the scopes in `bits`.
pub(crate) fn names(bits: u8) -> String {
    let names: Vec<_> = NAMES.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    names.join(", ")
}

/// What a caller may do, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) namespace: String,
    pub(crate) scopes: u8,
    pub(crate) quota: Quota,
}

/// All tokens, by the hash of their secret.
pub(crate) struct Tokens {
    /// Without tokens: everybody who can reach us.
    anyone: Option<Caller>,
    known: Vec<(blake3::Hash, Caller)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    secret: String,
    #[serde(default = "default_namespace")]
    namespace: String,
    scopes: Vec<String>,
    in_flight_max: Option<u32>,
    records_max: Option<u64>,
    bytes_max: Option<u64>,
}

impl std::fmt::Debug for TokenEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenEntry({})", self.namespace)
    }
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

impl Tokens {
    /// Reads the file; without one, everybody may do everything in the namespace `default`.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else {
            let everything = CLAIM | READ | RESOLVE | ERASE | STORE;
            let anyone =
                Caller { namespace: default_namespace(), scopes: everything, quota: Quota::default() };
            return Ok(Self { anyone: Some(anyone), known: Vec::new() });
        };
        let wrong = |problem: &str| ConfigError::field(FIELD, format!("{}: {problem}", path.display()));
        let length = fs::metadata(path).map_err(|error| wrong(&error.to_string()))?.len();
        if length > FILE_BYTES_MAX {
            return Err(wrong("it has more than 4 MiB"));
        }
        let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
        refuse_readable_by_all(path).map_err(|problem| wrong(&problem))?;
        Self::parse(&text).map_err(|problem| wrong(&problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        // Only the message: the text beside it may be a secret.
        let file: TokenFile = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if file.token.is_empty() {
            return Err("it has no [[token]]: nobody could ever ask".to_owned());
        }
        let mut known: Vec<(blake3::Hash, Caller)> = Vec::with_capacity(file.token.len());
        for (at, entry) in file.token.into_iter().enumerate() {
            let wrong = |problem: &str| format!("token {}: {problem}", at + 1);
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
            if entry.secret.len() < SECRET_CHARS_MIN || !entry.secret.bytes().all(is_token) {
                return Err(wrong("`secret` needs at least 16 characters of A-Z a-z 0-9 - . _ ~ + / ="));
            }
            let hash = blake3::hash(entry.secret.as_bytes());
            if known.iter().any(|(other, _)| *other == hash) {
                return Err(wrong("an earlier one has the same `secret`"));
            }
            check_namespace(&entry.namespace).map_err(|problem| wrong(&problem))?;
            let scopes = entry.scopes.iter().try_fold(0, |bits, name| {
                let bit = NAMES.iter().find(|(known, _)| known == name).map(|(_, bit)| bit);
                bit.map(|bit| bits | bit).ok_or_else(|| {
                    wrong(&format!("`{name}` is no scope; there are claim, read, resolve, erase and store"))
                })
            })?;
            let quota = Quota {
                in_flight_max: entry.in_flight_max,
                records_max: entry.records_max,
                bytes_max: entry.bytes_max,
            };
            known.push((hash, Caller { namespace: entry.namespace, scopes, quota }));
        }
        Ok(Self { anyone: None, known })
    }

    /// Every namespace that somebody may ask in.
    pub(crate) fn namespaces(&self) -> BTreeSet<String> {
        let callers = self.anyone.iter().chain(self.known.iter().map(|(_, caller)| caller));
        callers.map(|caller| caller.namespace.clone()).collect()
    }

    /// Who asks.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<&Caller> {
        if let Some(anyone) = &self.anyone {
            return Some(anyone);
        }
        let hash = bearer(headers)?;
        let mut found = None;
        // Hashes compare in constant time, and all of them are compared: how long it takes says nothing.
        for (known, caller) in &self.known {
            if *known == hash {
                found = Some(caller);
            }
        }
        found
    }
}

/// A namespace becomes part of the name of a folder, a key in Redis and a schema in a database.
fn check_namespace(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = name.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
    if !starts || name.len() > 30 || !name.bytes().all(fits) {
        return Err(format!(
            "`{name}` is no namespace: 1 to 30 of a-z, 0-9 and _, and a letter at the beginning"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    const FILE: &str = "[[token]]\nsecret = \"0123456789abcdef\"\nnamespace = \"pay\"\nscopes = [\"claim\", \"read\"]\n\
        in_flight_max = 5\n[[token]]\nsecret = \"fedcba9876543210\"\nscopes = [\"store\"]\n";

    fn header(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())])
    }

    #[test]
    fn a_token_gives_its_namespace_scopes_and_quota_and_nothing_else_does() {
        let tokens = Tokens::parse(FILE).unwrap();
        let caller = tokens.caller(&header("Bearer 0123456789abcdef")).unwrap();
        assert_eq!((caller.namespace.as_str(), caller.scopes), ("pay", CLAIM | READ));
        assert_eq!(caller.quota.in_flight_max, Some(5));
        let caller = tokens.caller(&header("bearer  fedcba9876543210")).unwrap();
        assert_eq!((caller.namespace.as_str(), caller.scopes), ("default", STORE));
        for wrong in
            ["Bearer 0123456789abcdeF", "Bearer", "Basic 0123456789abcdef", "0123456789abcdef", "Bearer "]
        {
            assert_eq!(tokens.caller(&header(wrong)), None, "{wrong}");
        }
        assert_eq!(tokens.caller(&HeaderMap::new()), None);
        let mut two = header("Bearer 0123456789abcdef");
        two.append(AUTHORIZATION, "Bearer 0123456789abcdef".parse().unwrap());
        assert_eq!(tokens.caller(&two), None, "two credentials are none");
        assert_eq!(tokens.namespaces().into_iter().collect::<Vec<_>>(), ["default", "pay"]);
    }

    #[test]
    fn a_file_that_cannot_be_meant_is_refused_without_its_secrets() {
        for (text, expected) in [
            ("", "no [[token]]"),
            ("[[token]]\nsecret = \"short\"\nscopes = []", "16 characters"),
            ("[[token]]\nsecret = \"0123456789 abcdef\"\nscopes = []", "16 characters"),
            ("[[token]]\nsecret = \"0123456789abcdef\"\nscopes = [\"all\"]", "`all` is no scope"),
            ("[[token]]\nsecret = \"0123456789abcdef\"\nscopes = []\nnamespace = \"../a\"", "no namespace"),
            ("[[token]]\nsecret = \"0123456789abcdef\"\nscopes = []\nname = 1", "unknown field"),
            (&FILE.replace("fedcba9876543210", "0123456789abcdef"), "same `secret`"),
        ] {
            let problem = Tokens::parse(text).err().unwrap();
            assert!(problem.contains(expected), "{text:?}: {problem}");
            assert!(!problem.contains("0123456789abcdef"), "{problem}");
        }
    }
}
