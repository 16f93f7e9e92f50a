//! From the text of a source's URL to its parts. Every parameter is taken by name; one that nobody took is an error.
//!
//! Errors never show the URL: it may hold a password.

use std::str::FromStr;

use onlyonce_inbox::{SourceError, SourceErrorKind};
use percent_encoding::percent_decode_str;

/// A URL, taken apart: `scheme://authority/path?name=value&…`.
#[derive(Debug)]
pub(crate) struct SourceUrl {
    pub(crate) scheme: String,
    /// Hosts and credentials, as written.
    pub(crate) authority: String,
    /// Decoded, without the first slash.
    pub(crate) path: String,
    parameters: Vec<(String, String)>,
    /// Every name that was asked for, to be listed when another one was given.
    known: Vec<&'static str>,
}

impl SourceUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, SourceError> {
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| wrong("it has no scheme (SCHEME://HOST/…)"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.rsplit('@').next().unwrap_or_default().is_empty() {
            return Err(wrong("it names no host"));
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| wrong(format!("the parameter {pair:?} has no value (NAME=VALUE)")))?;
            let (name, value) = (decoded(name)?, decoded(value)?);
            if parameters.iter().any(|(known, _)| *known == name) {
                return Err(wrong(format!("the parameter {name:?} is there twice")));
            }
            parameters.push((name, value));
        }
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            authority: authority.to_owned(),
            path: decoded(path)?,
            parameters,
            known: Vec::new(),
        })
    }

    /// The path, which names `what`.
    #[cfg_attr(not(feature = "redis-streams"), allow(dead_code, reason = "not every broker has one"))]
    pub(crate) fn named(&self, what: &str) -> Result<String, SourceError> {
        if self.path.is_empty() {
            return Err(wrong(format!("it names no {what}: {}://HOST/{}", self.scheme, what.to_uppercase())));
        }
        Ok(self.path.clone())
    }

    /// Takes a parameter.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        let at = self.parameters.iter().position(|(known, _)| known == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Takes a parameter that is a number, or `true`, or `false`.
    pub(crate) fn value<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, SourceError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        match text.parse() {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err(wrong(format!("{name}={text} is not what {name} can be"))),
        }
    }

    /// Refuses what nobody took.
    pub(crate) fn finish(self) -> Result<(), SourceError> {
        let Some((unknown, _)) = self.parameters.first() else { return Ok(()) };
        let known = self.known.join(", ");
        Err(wrong(format!("there is no parameter {unknown:?} in {}:// (there are {known})", self.scheme)))
    }
}

fn decoded(text: &str) -> Result<String, SourceError> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| wrong("a part of it is no text once its percent signs are decoded"))
}

/// A URL that cannot be used, and why.
pub(crate) fn wrong(problem: impl Into<String>) -> SourceError {
    SourceError::new(SourceErrorKind::Misuse, "reading the URL of the source").because(problem.into())
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn told(error: &SourceError) -> String {
        error.source().map(ToString::to_string).unwrap_or_default()
    }

    #[test]
    fn a_url_is_taken_apart() {
        let mut url = SourceUrl::parse("NATS://user:p%40ss@a:1,b:2/orders%2Fnew?x=1%202&y=true").unwrap();
        assert_eq!((url.scheme.as_str(), url.authority.as_str()), ("nats", "user:p%40ss@a:1,b:2"));
        assert_eq!(url.named("stream").unwrap(), "orders/new");
        assert_eq!((url.take("x").as_deref(), url.value("y").unwrap()), (Some("1 2"), Some(true)));
        assert_eq!(url.take("z"), None);
        url.finish().unwrap();
    }

    #[test]
    fn what_is_wrong_is_named_without_the_password() {
        for (bad, part) in [
            ("localhost:6379", "no scheme"),
            ("nats://", "no host"),
            ("nats://me:secret@/x", "no host"),
            ("nats://me:secret@a/x?y", "no value"),
            ("nats://me:secret@a/x?y=1&y=2", "twice"),
            ("nats://me:secret@a/%ff", "no text"),
        ] {
            let error = SourceUrl::parse(bad).expect_err(bad);
            assert_eq!(error.kind(), SourceErrorKind::Misuse);
            assert!(told(&error).contains(part) && !told(&error).contains("secret"), "{}", told(&error));
        }
        let mut url = SourceUrl::parse("nats://me:secret@a?group=g&grouping=g&count=many").unwrap();
        assert!(told(&url.named("stream").unwrap_err()).contains("nats://HOST/STREAM"));
        assert!(told(&url.value::<u32>("count").unwrap_err()).contains("count=many"));
        url.take("group");
        let unknown = url.finish().unwrap_err();
        assert!(told(&unknown).contains("grouping") && told(&unknown).contains("count, group"), "{unknown}");
    }
}
