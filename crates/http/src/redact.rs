//! What is taken out of an answer before it is kept. The first caller gets the answer as it was; what is replayed is what
//! was kept.

mod scan;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, StatusCode};

use crate::rules::{Rules, RulesError, check_header, check_pointer};
use crate::snapshot::Snapshot;

/// What stands where something was taken out.
pub const REDACTED: &str = "[redacted]";
const REDACTED_JSON: &[u8] = b"\"[redacted]\"";

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
    /// Whether anything was taken out.
    pub(crate) is_changed: bool,
}

impl Redacted {
    /// The answer of `status` as it is kept, marked by what was done to it.
    pub(crate) fn into_snapshot(self, status: StatusCode) -> Snapshot {
        let Self { headers, trailers, body, is_changed } = self;
        Snapshot { status, headers, trailers, body, is_redacted: is_changed }
    }
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
        let mut is_changed = redacted != *body;
        let is_of_old_body = is_changed;
        let mut cleared = |fields: &HeaderMap| {
            let mut fields = fields.clone();
            for name in &self.headers {
                is_changed |= fields.remove(name).is_some();
            }
            if is_of_old_body {
                for name in DIGESTS {
                    fields.remove(name);
                }
            }
            fields
        };
        let (headers, trailers) = (cleared(headers), trailers.map(&mut cleared));
        Some(Redacted { headers, trailers, body: redacted, is_changed })
    }

    /// Takes out what this one and `other` do.
    #[must_use]
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.members.extend(other.members.iter().cloned());
        self.headers.extend(other.headers.iter().cloned());
        self
    }

    fn body(&self, body: &Bytes) -> Option<Bytes> {
        if self.members.is_empty() || body.is_empty() {
            return Some(body.clone());
        }
        let found = scan::found(body, &self.members)?;
        let mut kept = Vec::with_capacity(body.len());
        let mut from = 0;
        for range in &found {
            kept.extend_from_slice(&body[from..range.start]);
            kept.extend_from_slice(REDACTED_JSON);
            from = range.end;
        }
        // All around what was found stays byte for byte what it was: numbers, blanks and the order of members.
        kept.extend_from_slice(&body[from..]);
        Some(if found.is_empty() { body.clone() } else { kept.into() })
    }
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
            ("/items/1/to", r#"[{"to":"a"},{"to":"[redacted]","n":1}]"#),
            ("/items/*/to", r#"[{"to":"[redacted]"},{"to":"[redacted]","n":1}]"#),
            ("/card/*", r#"{"number":"[redacted]","exp":"[redacted]"}"#),
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
    fn all_around_what_is_taken_out_stays_byte_for_byte() {
        let before =
            r#" { "z" : 0.1000000000000000055 , "id":12345678901234567890, "n":1E400,"t":"\u00e9\/", "#;
        let after = r#" , "a" : [ 1.50, -0.0, {"card":7} ] } "#;
        for value in ["\"4111\"", "{\"number\": 1, \"x\": [\"]}\"]}", "[ ]", "-1.5e3", "null", "\"\\\"}\""] {
            let body = format!("{before}\"card\":{value}{after}");
            let expected = format!("{before}\"card\":\"[redacted]\"{after}");
            assert_eq!(
                kept(&["/card", "/card/number"], &body).as_deref(),
                Some(expected.as_str()),
                "{value}"
            );
        }
        let escaped = kept(&["/card"], r#"{"\u0063ard":1,"b":2}"#);
        assert_eq!(escaped.as_deref(), Some(r#"{"\u0063ard":"[redacted]","b":2}"#));
    }

    #[test]
    fn it_is_told_whether_anything_was_taken_out() {
        let rules = Rules {
            redact: Some(vec!["/a".to_owned()]),
            redact_headers: Some(vec!["x-token".to_owned()]),
            ..Rules::default()
        };
        let redaction = Redaction::new(&rules).unwrap().unwrap();
        let with_token = HeaderMap::from_iter([(HeaderName::from_static("x-token"), "v".parse().unwrap())]);
        for (headers, body, expected) in [
            (HeaderMap::new(), "{\"b\":1}", false),
            (HeaderMap::new(), "{\"a\":1}", true),
            (with_token, "{\"b\":1}", true),
        ] {
            let redacted = redaction.apply(&headers, None, &Bytes::from_static(body.as_bytes())).unwrap();
            assert_eq!(redacted.is_changed, expected, "{body}");
        }
    }

    #[test]
    fn what_parsers_do_not_agree_on_is_not_kept() {
        let bodies = [
            "not json",
            "{\"card\":",
            r#"{"card":1,"card":2}"#,
            "\u{1f}\u{8b}\u{8}\u{0}",
            "{} {}",
            "\u{feff}{}",
        ];
        let named_twice = r#"{"card":1,"c\u0061rd":2}"#;
        for body in bodies.into_iter().chain([named_twice, "{\"a\":01}", "{\"a\":\"\\x\"}"]) {
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
