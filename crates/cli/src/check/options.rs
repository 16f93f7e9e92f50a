//! What the user said about the endpoint, beyond its URL.

use serde_json::Value;

/// The settings that the cases read.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) method: String,
    pub(crate) key_name: String,
    pub(crate) content_type: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// A body that means another operation and is accepted as well.
    pub(crate) other_body: Vec<u8>,
    /// A body that is refused with 4xx. Empty: there is none.
    pub(crate) error_body: Vec<u8>,
    /// A header that makes the endpoint slow.
    pub(crate) slow: Option<(String, String)>,
    /// A header that makes the endpoint fail with 5xx.
    pub(crate) fail: Option<(String, String)>,
    /// A header with another caller's credential.
    pub(crate) other_caller: Option<(String, String)>,
    pub(crate) concurrency: u16,
}

impl Options {
    pub(crate) fn is_json(&self) -> bool {
        let media = self.content_type.split(';').next().unwrap_or_default().trim();
        media.eq_ignore_ascii_case("application/json") || media.ends_with("+json")
    }
}

/// Reads `Name: value`.
pub(crate) fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as 'Name: value'")?;
    let (name, value) = (name.trim(), value.trim());
    http::HeaderName::try_from(name).map_err(|_| format!("{name:?} is not the name of a header"))?;
    http::HeaderValue::try_from(value).map_err(|_| "the value cannot be sent in a header".to_owned())?;
    let is_ours = ["host", "connection", "content-length", "transfer-encoding", "content-type"];
    if is_ours.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
        return Err(format!("{name} is set by the check itself"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Makes another body of the same shape: one number or text in it is changed, so that it is likely accepted too.
pub(crate) fn other_body(body: &[u8]) -> Vec<u8> {
    if let Ok(mut value) = serde_json::from_slice::<Value>(body) {
        if change_number(&mut value) || change_text(&mut value) {
            return value.to_string().into_bytes();
        }
        if let Value::Object(members) = &mut value {
            members.insert("onlyonce-check".into(), "other".into());
            return value.to_string().into_bytes();
        }
    }
    let mut other = body.to_vec();
    other.extend_from_slice(b"onlyonce-check=other");
    other
}

fn change_number(value: &mut Value) -> bool {
    match value {
        Value::Number(number) => match number.as_u64().and_then(|number| number.checked_add(1)) {
            Some(next) => {
                *value = next.into();
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().any(change_number),
        Value::Object(members) => members.values_mut().any(change_number),
        _ => false,
    }
}

fn change_text(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            text.push('x');
            true
        }
        Value::Array(items) => items.iter_mut().any(change_text),
        Value::Object(members) => members.values_mut().any(change_text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_body_differs_in_one_place() {
        for (body, other) in [
            (r#"{"a":"x","n":{"m":[7]}}"#, r#"{"a":"x","n":{"m":[8]}}"#),
            (r#"{"a":"x","b":-1.5}"#, r#"{"a":"xx","b":-1.5}"#),
            ("{}", r#"{"onlyonce-check":"other"}"#),
            ("a=1&", "a=1&onlyonce-check=other"),
            ("[]", "[]onlyonce-check=other"),
        ] {
            assert_eq!(String::from_utf8(other_body(body.as_bytes())).unwrap(), other, "{body}");
        }
    }

    #[test]
    fn headers_are_names_and_values() {
        assert_eq!(parse_header("X-A:  b: c ").unwrap(), ("X-A".to_owned(), "b: c".to_owned()));
        for bad in ["", "x", "a b: c", ": x", "a: \u{7}", "Host: x", "content-length: 3"] {
            assert!(parse_header(bad).is_err(), "{bad}");
        }
    }
}
