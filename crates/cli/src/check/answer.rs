//! One answer of the endpoint, and what can be read from it without knowing what made it.

use serde_json::Value;

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In the order they came; names in lower case.
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// Fields that belong to one message or one moment, and never to the result: they may differ in a replay.
const VOLATILE: [&str; 26] = [
    "age",
    "alt-svc",
    "authentication-info",
    "cf-ray",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "request-id",
    "retry-after",
    "server",
    "server-timing",
    "set-cookie",
    "trace-id",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "via",
    "www-authenticate",
    "x-amzn-trace-id",
    "x-correlation-id",
    "x-request-id",
    "x-response-time",
    "x-runtime",
    "x-trace-id",
];

/// Beginnings of names that are volatile too: marks of the idempotency itself, and limits that count down.
const VOLATILE_STARTS: [&str; 6] =
    ["idempoten", "x-idempoten", "onlyonce-", "ratelimit", "x-ratelimit-", "x-b3-"];

impl Answer {
    /// Was the request taken? 2xx and 3xx.
    pub(crate) fn is_taken(&self) -> bool {
        (200..400).contains(&self.status)
    }

    /// Was it refused as the caller's mistake? 4xx.
    pub(crate) fn is_refused(&self) -> bool {
        (400..500).contains(&self.status)
    }

    /// The first field of this name, as text.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let field = self.headers.iter().find(|(field, _)| field == name);
        field.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// The field that says "this is a replay", if there is one.
    pub(crate) fn mark(&self) -> Option<String> {
        let says_so = |(name, value): &&(String, Vec<u8>)| {
            let value = value.to_ascii_lowercase();
            let is_no = matches!(&value[..], b"false" | b"0" | b"no" | b"miss" | b"new" | b"first");
            let is_mark = name.contains("replay")
                || (name.contains("idempoten")
                    && matches!(&value[..], b"true" | b"1" | b"hit" | b"replay" | b"replayed"));
            is_mark && !is_no
        };
        let (name, value) = self.headers.iter().find(says_so)?;
        Some(format!("{name}: {}", String::from_utf8_lossy(value)))
    }

    /// The fields that belong to the result, sorted: what a replay must repeat.
    pub(crate) fn stable_headers(&self) -> Vec<(&str, &[u8])> {
        let is_stable = |name: &str| {
            !VOLATILE.contains(&name) && !VOLATILE_STARTS.iter().any(|start| name.starts_with(start))
        };
        let mut stable: Vec<_> = self
            .headers
            .iter()
            .filter(|(name, _)| is_stable(name))
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect();
        stable.sort_unstable();
        stable
    }

    /// What is missing or different in `replay`, by name. What the replay adds is its own business.
    pub(crate) fn headers_lost_in(&self, replay: &Self) -> Vec<String> {
        let mut there = replay.stable_headers();
        let mut lost = Vec::new();
        for (name, value) in self.stable_headers() {
            if let Some(at) = there.iter().position(|field| *field == (name, value)) {
                there.remove(at);
            } else if !lost.iter().any(|known| known == name) {
                lost.push(name.to_owned());
            }
        }
        lost
    }

    /// Could both be the answer of one execution? A location that was lost on the way does not make another result.
    pub(crate) fn is_same_result(&self, other: &Self) -> bool {
        let moved =
            self.header("location").zip(other.header("location")).is_some_and(|(one, two)| one != two);
        self.body == other.body && !moved
    }

    /// Does the body describe the problem as the draft asks? `Err` says what is wrong.
    pub(crate) fn describes_problem(&self) -> Result<String, String> {
        if let Some(link) = self.header("link").filter(|link| link.contains("describedby")) {
            return Ok(format!("links to its description: {link}"));
        }
        let content_type = self.header("content-type").unwrap_or_default();
        let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media != "application/problem+json" {
            let shown = if media.is_empty() { "no content type" } else { &media };
            return Err(format!("{shown} instead of application/problem+json, and no Link to a description"));
        }
        let problem: Value = serde_json::from_slice(&self.body).map_err(|_| "the problem is not JSON")?;
        let kind = problem.get("type").and_then(Value::as_str).unwrap_or_default();
        let has_scheme = kind.split_once(':').is_some_and(|(scheme, rest)| {
            !rest.is_empty() && !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        if !has_scheme || kind == "about:blank" {
            return Err(format!("the problem's type is not an absolute URI: {kind:?}"));
        }
        if problem.get("title").and_then(Value::as_str).is_none() {
            return Err("the problem has no title".to_owned());
        }
        match problem.get("status") {
            Some(status) if status.as_u64() != Some(self.status.into()) => {
                Err(format!("the problem says status {status}, the answer {}", self.status))
            }
            _ => Ok(format!("problem {kind}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        Answer { status, headers: headers.collect(), body: body.into() }
    }

    #[test]
    fn a_mark_is_known_by_its_name_and_value() {
        for (name, value) in [
            ("idempotency-replayed", "true"),
            ("idempotent-replayed", "true"),
            ("x-idempotent-replayed", "1"),
            ("idempotency-status", "Replayed"),
        ] {
            assert!(answer(200, &[(name, value)], "").mark().is_some(), "{name}: {value}");
        }
        for (name, value) in [("idempotency-replayed", "false"), ("idempotency-key", "abc"), ("etag", "true")]
        {
            assert!(answer(200, &[(name, value)], "").mark().is_none(), "{name}: {value}");
        }
    }

    #[test]
    fn headers_that_belong_to_the_result_must_come_again() {
        let first = answer(
            201,
            &[("date", "1"), ("location", "/p/1"), ("x-item", "a"), ("x-item", "b"), ("etag", "e")],
            "",
        );
        let replay = answer(201, &[("date", "2"), ("x-item", "a"), ("etag", "f"), ("x-more", "1")], "");
        assert_eq!(first.headers_lost_in(&replay), ["etag", "location", "x-item"]);
        assert!(first.headers_lost_in(&first).is_empty());
    }

    #[test]
    fn a_problem_needs_its_type_title_and_true_status() {
        let problem = |body| answer(409, &[("content-type", "application/problem+json")], body);
        let good = r#"{"type":"https://a.test/in-flight","title":"In flight","status":409}"#;
        assert!(problem(good).describes_problem().is_ok());
        for bad in [
            "not json",
            "{}",
            r#"{"type":"about:blank","title":"x"}"#,
            r#"{"type":"/relative","title":"x"}"#,
            r#"{"type":"https://a.test/x"}"#,
            r#"{"type":"https://a.test/x","title":"x","status":422}"#,
        ] {
            assert!(problem(bad).describes_problem().is_err(), "{bad}");
        }
        assert!(answer(409, &[("content-type", "text/html")], good).describes_problem().is_err());
        assert!(
            answer(409, &[("link", "<https://a.test>; rel=\"describedby\"")], "").describes_problem().is_ok()
        );
    }
}
