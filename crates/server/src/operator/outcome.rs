//! Outcomes as operators read and write them: an answer of HTTP, a result of a message, or bytes with a content type,
//! whichever the door in front keeps.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use onlyonce_core::{Body, Outcome, Tombstone};
use onlyonce_http::snapshot::{self, Snapshot};
use onlyonce_inbox::Handled;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::naming::Naming;
use crate::claims::{Typed, decoded, encoded};
use crate::refusal::Refusal;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const OCTETS: &str = "application/octet-stream";

/// What an operator says came out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GivenOutcome {
    /// The status that callers got, or would have got; 200 when absent. For HTTP only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// What the bytes are. When absent: JSON for a value, plain text for a string, octets for base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
    /// A string as it is, any other value as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
    /// Any bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl GivenOutcome {
    /// The outcome that `naming`'s door keeps for this, by its rules for `path`. Without anything given, that the answer was
    /// not kept.
    pub(super) fn outcome(
        given: Option<Self>,
        naming: &Naming,
        path: Option<&str>,
    ) -> Result<Outcome, Refusal> {
        let given = given.unwrap_or_default();
        let status = given.status;
        let status_code = StatusCode::from_u16(status.unwrap_or(200))
            .ok()
            .filter(|code| code.as_u16() >= 200)
            .ok_or_else(|| Refusal::invalid("`status` is none that an answer has: 200 to 599"))?;
        let typed = given.typed()?;
        match naming {
            Naming::Routes(routes) => answered(status_code, typed, |answer| routes.kept(answer, path)),
            _ if status.is_some() => {
                Err(Refusal::invalid("`status` is for HTTP: what is recorded here has none"))
            }
            Naming::Messages(_) => match typed.map_or_else(Handled::done, |typed| Handled::with(typed.bytes))
            {
                Handled::Done(outcome) => Ok(outcome),
                _ => Err(Refusal::invalid("`outcome` is no result of a message")),
            },
            Naming::Claims(_) => match typed {
                Some(typed) => typed.into_outcome(),
                None => Ok(Outcome::tombstone(0, Tombstone::Discarded)),
            },
        }
    }

    fn typed(self) -> Result<Option<Typed>, Refusal> {
        let of = |usual: &str, bytes: Bytes| {
            let content_type = self.content_type.clone().unwrap_or_else(|| usual.to_owned());
            Ok(Some(Typed { content_type, bytes }))
        };
        match (&self.body, &self.base64) {
            (Some(_), Some(_)) => Err(Refusal::invalid("`body` and `base64` exclude each other")),
            (Some(Value::String(text)), None) => of(TEXT, Bytes::from(text.clone())),
            (Some(value), None) => of(JSON, Bytes::from(value.to_string())),
            (None, Some(base64)) => of(OCTETS, decoded(base64)?),
            (None, None) if self.content_type.is_some() => {
                Err(Refusal::invalid("`content_type` without `body` or `base64`"))
            }
            (None, None) => Ok(None),
        }
    }
}

/// An answer as `kept` says that it may be kept.
fn answered(
    status: StatusCode,
    typed: Option<Typed>,
    kept: impl FnOnce(&Snapshot) -> Option<Snapshot>,
) -> Result<Outcome, Refusal> {
    let wrong = |error: onlyonce_core::MisuseError| Refusal::invalid(error.to_string());
    let Some(Typed { content_type, bytes: body }) = typed else {
        return snapshot::not_kept(status, Tombstone::Discarded).map_err(wrong);
    };
    let content_type = HeaderValue::try_from(content_type)
        .map_err(|_| Refusal::invalid("`content_type` is none that a header can carry"))?;
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, content_type)]);
    let answer = Snapshot { status, headers, trailers: None, body, is_redacted: false };
    match kept(&answer) {
        Some(answer) => answer.to_outcome(false).map_err(wrong),
        // What an application may not leave behind, an operator may not either.
        None => snapshot::not_kept(status, Tombstone::Discarded).map_err(wrong),
    }
}

/// An outcome as it is shown; bytes and headers only when `with_body` says so.
pub(super) fn shown(outcome: &Outcome, with_body: bool) -> Value {
    let mut shown = Map::new();
    let kind = match outcome.body() {
        Body::Kept(_) => "kept",
        Body::Tombstone(Tombstone::TooLarge) => "too-large",
        Body::Tombstone(Tombstone::Discarded) => "discarded",
        Body::Tombstone(Tombstone::Erased) => "erased",
        Body::Tombstone(_) => "indeterminate",
    };
    shown.insert("kind".into(), kind.into());
    let is_answer = outcome.content_version() == snapshot::CONTENT_VERSION;
    if is_answer && let Some(status) = snapshot::status_in(outcome.head()) {
        shown.insert("status".into(), status.as_u16().into());
    }
    let typed = match outcome.body() {
        Body::Kept(bytes) if is_answer => match Snapshot::decode(bytes) {
            Ok(answer) => Some(of_answer(answer, with_body, &mut shown)),
            Err(_) => Typed::of(outcome),
        },
        _ => Typed::of(outcome),
    };
    shown.insert("bytes".into(), typed.as_ref().map_or(0, |typed| typed.bytes.len()).into());
    if let Some(Typed { content_type, bytes }) = typed {
        shown.insert("content_type".into(), content_type.into());
        if with_body {
            shown.insert("body".into(), bytes_shown(&bytes));
        }
    }
    Value::Object(shown)
}

fn of_answer(answer: Snapshot, with_body: bool, shown: &mut Map<String, Value>) -> Typed {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let content_type = answer.headers.get(CONTENT_TYPE).map_or_else(|| OCTETS.to_owned(), text);
    shown.insert("status".into(), answer.status.as_u16().into());
    if with_body {
        let lines = answer.headers.iter().map(|(name, value)| json!([name.as_str(), text(value)]));
        shown.insert("headers".into(), lines.collect());
    }
    Typed { content_type, bytes: answer.body }
}

/// Text as text, anything else in base64.
pub(super) fn bytes_shown(bytes: &Bytes) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": encoded(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(text: &str) -> Result<Outcome, Refusal> {
        let given = serde_json::from_str(text).expect("a shape");
        GivenOutcome::outcome(Some(given), &Naming::Claims("n".into()), None)
    }

    #[test]
    fn what_is_given_is_shown_again() {
        for (text, content_type, body) in [
            (r#"{"body":"done"}"#, TEXT, json!({ "text": "done" })),
            (r#"{"body":{"id":7}}"#, JSON, json!({ "text": "{\"id\":7}" })),
            (r#"{"base64":"/w==","content_type":"image/x"}"#, "image/x", json!({ "base64": "/w==" })),
        ] {
            let outcome = claims(text).expect("an outcome");
            let with = shown(&outcome, true);
            assert_eq!((&with["content_type"], &with["body"]), (&json!(content_type), &body), "{text}");
            assert_eq!(shown(&outcome, false).get("body"), None, "{text}");
        }
    }

    #[test]
    fn an_answer_is_shown_with_its_status_and_without_its_bytes() {
        let typed = Typed { content_type: JSON.to_owned(), bytes: Bytes::from_static(b"{\"secret\":1}") };
        let outcome =
            answered(StatusCode::CREATED, Some(typed), |answer| Some(answer.clone())).expect("an outcome");
        let plain = shown(&outcome, false);
        assert_eq!(plain, json!({ "kind": "kept", "status": 201, "bytes": 12, "content_type": JSON }));
        assert_eq!(shown(&outcome, true)["headers"], json!([["content-type", JSON]]));
        let gone = answered(StatusCode::OK, None, |_| None).expect("an outcome");
        assert_eq!(shown(&gone, true), json!({ "kind": "discarded", "status": 200, "bytes": 0 }));
    }

    #[test]
    fn what_is_not_one_thing_is_refused() {
        for text in [
            r#"{"body":1,"base64":""}"#,
            r#"{"content_type":"a/b"}"#,
            r#"{"base64":"?"}"#,
            r#"{"status":200}"#,
        ] {
            assert!(claims(text).is_err(), "{text}");
        }
    }
}
