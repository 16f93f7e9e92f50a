//! Where a route asks what became of a request: a path of the same service, with a place for the key.

use std::time::Duration;

use http::uri::PathAndQuery;
use onlyonce_core::Key;

use crate::percent;
use crate::rules::{KeySource, Rules, RulesError};

/// How long an answer may take when no rule says so. A caller waits for it.
const WITHIN: Duration = Duration::from_secs(5);

const PLACE: &str = "{key}";

/// The question of `unknown = "query"`, as far as it is the same for all requests.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    template: Box<str>,
    pub(crate) within: Duration,
}

impl Query {
    /// Reads `query_url` and `query_within`.
    pub(super) fn new(url: &str, rules: &Rules) -> Result<Self, RulesError> {
        let wrong = |why: &str| RulesError::new(format!("query_url: {url:?} {why}"));
        if !url.starts_with('/') {
            return Err(wrong("is not a path of the protected service: it starts with /"));
        }
        if url.contains('#') {
            return Err(wrong("has a fragment, which is never sent"));
        }
        if url.replace(PLACE, "").contains(['{', '}']) {
            return Err(wrong("has a place for something else than {key}"));
        }
        if matches!(rules.key, Some(KeySource::Json(_))) && !url.contains(PLACE) {
            return Err(wrong("lacks {key}: there is no header that carries it"));
        }
        let within = rules.query_within.map_or(WITHIN, |within| within.0);
        if within.is_zero() {
            return Err(RulesError::new("query_within is zero: nothing could be found out"));
        }
        let query = Self { template: url.into(), within };
        match query.target("k") {
            Some(_) => Ok(query),
            None => Err(wrong("is not a path")),
        }
    }

    /// Where to ask about `key`.
    pub(crate) fn about(&self, key: &Key) -> Option<PathAndQuery> {
        self.target(key.as_str())
    }

    fn target(&self, key: &str) -> Option<PathAndQuery> {
        self.template.replace(PLACE, &percent::encode(key, percent::is_unreserved)).try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(url: &str) -> Result<Query, RulesError> {
        Query::new(url, &Rules::default())
    }

    #[test]
    fn a_key_cannot_leave_its_place() {
        let about = |url: &str, key: &str| query(url).unwrap().about(&Key::new(key).unwrap()).unwrap();
        assert_eq!(about("/by-key/{key}", "order-7"), "/by-key/order-7");
        assert_eq!(about("/by-key/{key}?full=1", "../a?b#c"), "/by-key/..%2Fa%3Fb%23c?full=1");
        assert_eq!(about("/find?key={key}&again={key}", "a&b c"), "/find?key=a%26b%20c&again=a%26b%20c");
        assert_eq!(about("/last", "order-7"), "/last");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for (url, why) in [
            ("", "starts with /"),
            ("http://elsewhere/{key}", "starts with /"),
            ("/a#{key}", "fragment"),
            ("/a/{id}", "something else"),
            ("/a/{key", "something else"),
            ("/a b", "is not a path"),
        ] {
            let error = query(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url:?}: {error}");
        }
        let in_body = Rules { key: Some(KeySource::Json("/id".into())), ..Rules::default() };
        assert!(Query::new("/last", &in_body).unwrap_err().to_string().contains("lacks {key}"));
        assert!(Query::new("/by/{key}", &in_body).is_ok());
        let hasty = Rules { query_within: Some("0s".parse().unwrap()), ..Rules::default() };
        assert!(Query::new("/a", &hasty).is_err());
    }
}
