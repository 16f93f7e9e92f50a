//! What is taken out of an answer before it is kept. The first caller gets the answer as it was; what is replayed is what
//! was kept.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use onlyonce_core::fingerprint::canonical::read_strict;
use serde_json::Value;

use crate::rules::{Rules, RulesError, check_header, check_pointer};

/// What stands where something was taken out.
pub const REDACTED: &str = "[redacted]";

/// Fields that say what the bytes of a body are: no longer true of another body.
const DIGESTS: [&str; 6] =
    ["content-md5", "digest", "content-digest", "repr-digest", "signature", "signature-input"];

/// The members and header fields that must not be kept.
#[derive(Debug, Clone)]
pub(crate) struct Redaction {
    members: Vec<Vec<Place>>,
    headers: Vec<HeaderName>,
}

/// One step on the way to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// The member of this name, or the element of this number.
    At(String),
    /// All of them.
    All,
}

/// What may be kept of an answer.
pub(crate) struct Redacted {
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) body: Bytes,
}

impl Redaction {
    /// What `rules` say must not be kept; `None` when they say nothing.
    pub(crate) fn new(rules: &Rules) -> Result<Option<Self>, RulesError> {
        let pointers = rules.redact.as_deref().unwrap_or_default();
        let names = rules.redact_headers.as_deref().unwrap_or_default();
        let members = pointers.iter().map(|pointer| places(pointer)).collect::<Result<Vec<_>, _>>()?;
        let headers = names.iter().map(|name| check_header(name)).collect::<Result<Vec<_>, _>>()?;
        Ok((!members.is_empty() || !headers.is_empty()).then_some(Self { members, headers }))
    }

    /// What may be kept of an answer; `None` when that cannot be told, because its body is not JSON.
    pub(crate) fn apply(
        &self,
        headers: &HeaderMap,
        trailers: Option<&HeaderMap>,
        body: &Bytes,
    ) -> Option<Redacted> {
        let redacted = self.body(body)?;
        let is_changed = redacted != *body;
        let cleared = |fields: &HeaderMap| {
            let mut fields = fields.clone();
            for name in &self.headers {
                fields.remove(name);
            }
            if is_changed {
                for name in DIGESTS {
                    fields.remove(name);
                }
            }
            fields
        };
        Some(Redacted { headers: cleared(headers), trailers: trailers.map(cleared), body: redacted })
    }

    fn body(&self, body: &Bytes) -> Option<Bytes> {
        if self.members.is_empty() || body.is_empty() {
            return Some(body.clone());
        }
        // Strict: where two parsers would find the member in two places, it may be left in one of them.
        let mut document = read_strict(body).ok()?;
        let mut found = false;
        for places in &self.members {
            found |= redact(&mut document, places);
        }
        // What has nothing to hide stays byte for byte what it was.
        if found { serde_json::to_vec(&document).ok().map(Bytes::from) } else { Some(body.clone()) }
    }
}

/// Takes out what `places` lead to, and says whether there was anything.
fn redact(value: &mut Value, places: &[Place]) -> bool {
    let Some((place, rest)) = places.split_first() else {
        *value = Value::String(REDACTED.to_owned());
        return true;
    };
    match (place, value) {
        (Place::At(name), Value::Object(members)) => {
            members.get_mut(name).is_some_and(|member| redact(member, rest))
        }
        (Place::At(name), Value::Array(elements)) => {
            let at = name.parse::<usize>().ok();
            at.and_then(|at| elements.get_mut(at)).is_some_and(|element| redact(element, rest))
        }
        (Place::All, Value::Object(members)) => redact_all(members.values_mut(), rest),
        (Place::All, Value::Array(elements)) => redact_all(elements.iter_mut(), rest),
        _ => false,
    }
}

/// The same in every one of `values`: none is left out because another was found.
fn redact_all<'v>(values: impl Iterator<Item = &'v mut Value>, places: &[Place]) -> bool {
    let mut found = false;
    for value in values {
        found |= redact(value, places);
    }
    found
}

/// A JSON pointer (RFC 6901) in which `*` stands for every member or element.
fn places(pointer: &str) -> Result<Vec<Place>, RulesError> {
    check_pointer(pointer)?;
    let Some(path) = pointer.strip_prefix('/') else {
        return Err(RulesError::new("redact = [\"\"] would leave nothing: say store = \"status-only\""));
    };
    let place = |part: &str| match part {
        "*" => Place::All,
        name => Place::At(name.replace("~1", "/").replace("~0", "~")),
    };
    Ok(path.split('/').map(place).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(pointers: &[&str], body: &str) -> Option<String> {
        let redact = Some(pointers.iter().map(|&pointer| pointer.to_owned()).collect());
        let rules = Rules { redact, ..Rules::default() };
        let redaction = Redaction::new(&rules).unwrap().expect("something to redact");
        let redacted = redaction.apply(&HeaderMap::new(), None, &Bytes::copy_from_slice(body.as_bytes()))?;
        Some(String::from_utf8(redacted.body.to_vec()).unwrap())
    }

    #[test]
    fn members_are_found_by_name_number_and_star() {
        let body =
            r#"{"card":{"number":"4111","exp":"12/30"},"items":[{"to":"a"},{"to":"b","n":1}],"a/b":{"~":1}}"#;
        for (pointer, expected) in [
            ("/card/number", r#""number":"[redacted]""#),
            ("/card", r#""card":"[redacted]""#),
            ("/items/1/to", r#"[{"to":"a"},{"n":1,"to":"[redacted]"}]"#),
            ("/items/*/to", r#"[{"to":"[redacted]"},{"n":1,"to":"[redacted]"}]"#),
            ("/card/*", r#"{"exp":"[redacted]","number":"[redacted]"}"#),
            ("/a~1b/~0", r#"{"~":"[redacted]"}"#),
        ] {
            let kept = kept(&[pointer], body).unwrap();
            assert!(kept.contains(expected), "{pointer}: {kept}");
        }
        let all = kept(&["/card/number", "/items/*/to"], body).unwrap();
        assert!(!all.contains("4111") && !all.contains(r#""a""#) && all.contains("12/30"), "{all}");
    }

    #[test]
    fn a_body_with_nothing_to_hide_stays_as_it_is() {
        for body in ["{ \"b\": 1.0, \"a\": 2 }", "[]", "\"text\"", ""] {
            assert_eq!(kept(&["/card/number", "/0/x", "/items/*/to"], body).as_deref(), Some(body));
        }
    }

    #[test]
    fn what_parsers_do_not_agree_on_is_not_kept() {
        for body in ["not json", "{\"card\":", r#"{"card":1,"card":2}"#, "\u{1f}\u{8b}\u{8}\u{0}", "{} {}"] {
            assert_eq!(kept(&["/card"], body), None, "{body:?}");
        }
    }

    #[test]
    fn fields_that_describe_the_old_body_go_with_it() {
        let rules = |redact: &str, headers: &[&str]| Rules {
            redact: Some(vec![redact.to_owned()]),
            redact_headers: Some(headers.iter().map(|&name| name.to_owned()).collect()),
            ..Rules::default()
        };
        let mut headers = HeaderMap::new();
        for name in ["content-digest", "etag", "x-token"] {
            headers.insert(name, "v".parse().unwrap());
        }
        let trailers = headers.clone();
        let redaction = Redaction::new(&rules("/a", &["X-Token"])).unwrap().unwrap();
        let names = |fields: &HeaderMap| fields.keys().map(ToString::to_string).collect::<Vec<_>>();
        let kept = redaction.apply(&headers, Some(&trailers), &Bytes::from_static(b"{\"a\":1}")).unwrap();
        assert_eq!(names(&kept.headers), ["etag"]);
        assert_eq!(names(&kept.trailers.unwrap()), ["etag"]);
        let kept = redaction.apply(&headers, None, &Bytes::from_static(b"{\"b\":1}")).unwrap();
        assert_eq!(names(&kept.headers), ["content-digest", "etag"], "the body is what it was");
        assert!(Redaction::new(&rules("no-slash", &[])).is_err());
        assert!(Redaction::new(&rules("", &[])).is_err());
        assert!(Redaction::new(&rules("/a", &["a b"])).is_err());
        assert!(Redaction::new(&Rules::default()).unwrap().is_none());
    }
}
