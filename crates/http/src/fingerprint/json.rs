//! JSON bodies: canonical form, with members that count and members that do not.

use bytes::Bytes;
use http::header::HeaderValue;
use onlyonce_core::FingerprintBuilder;
use onlyonce_core::fingerprint::canonical::{read_strict, write_canonical};
use serde_json::Value;

use super::{FingerprintRules, add_content_type, raw};

/// Looks at a JSON body by its members. What is not JSON, or not one JSON text for all parsers, is compared as it is.
pub(super) fn look(
    seen: &mut FingerprintBuilder,
    rules: &FingerprintRules,
    content_type: Option<&HeaderValue>,
    body: &Bytes,
) {
    let document = content_type.filter(|kind| is_json(kind)).and_then(|_| read_strict(body).ok());
    let Some(mut document) = document else { return raw(seen, content_type, body) };
    for pointer in rules.exclude() {
        remove(&mut document, pointer);
    }
    let Some(parts) = picked(&document, rules.include()) else { return raw(seen, content_type, body) };
    add_content_type(seen, content_type);
    for (pointer, value) in parts {
        seen.add("at", pointer.as_bytes());
        match value {
            Some(value) => seen.add("json", &value),
            None => seen.add("absent", b""),
        }
    }
}

/// The parts that count in canonical form; `None` when one has no canonical form.
#[expect(clippy::type_complexity, reason = "a pointer and what is there")]
fn picked<'a>(document: &Value, include: &'a [String]) -> Option<Vec<(&'a str, Option<Vec<u8>>)>> {
    if include.is_empty() {
        return Some(vec![("", Some(write_canonical(document).ok()?))]);
    }
    let pick = |pointer: &'a String| match document.pointer(pointer) {
        Some(value) => Some((pointer.as_str(), Some(write_canonical(value).ok()?))),
        None => Some((pointer.as_str(), None)),
    };
    include.iter().map(pick).collect()
}

/// Takes what `pointer` names out of a document. An element of a list becomes null: its neighbours keep their places.
fn remove(document: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        *document = Value::Null;
        return;
    };
    match document.pointer_mut(parent) {
        Some(Value::Object(members)) => {
            members.remove(&last.replace("~1", "/").replace("~0", "~"));
        }
        Some(list @ Value::Array(_)) => {
            if let Some(element) = list.pointer_mut(&format!("/{last}")) {
                *element = Value::Null;
            }
        }
        _ => {}
    }
}

fn is_json(content_type: &HeaderValue) -> bool {
    let Ok(text) = content_type.to_str() else { return false };
    let kind = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}
