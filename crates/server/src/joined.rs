//! Several lines of one field as one line.

use http::HeaderMap;
use http::header::{Entry, HeaderName, HeaderValue};

/// Puts the lines of `name` into one, with `between` them. One line stays as it is.
pub(crate) fn join_lines(headers: &mut HeaderMap, name: HeaderName, between: &[u8]) {
    if let Entry::Occupied(mut lines) = headers.entry(name)
        && lines.iter().nth(1).is_some()
        && let Some(joined) = joined(lines.iter(), between)
    {
        lines.insert(joined);
    }
}

/// Adds an element to a list field, in one line.
pub(crate) fn append(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(place) => {
            place.insert(element);
        }
        Entry::Occupied(mut sent) => {
            if let Some(joined) = joined(sent.iter().chain([&element]), b", ") {
                sent.insert(joined);
            }
        }
    }
}

/// `None` never: it is made of values that were valid.
fn joined<'v>(values: impl Iterator<Item = &'v HeaderValue>, between: &[u8]) -> Option<HeaderValue> {
    let (mut bytes, mut is_sensitive) = (Vec::new(), false);
    for (number, value) in values.enumerate() {
        if number > 0 {
            bytes.extend_from_slice(between);
        }
        bytes.extend_from_slice(value.as_bytes());
        is_sensitive |= value.is_sensitive();
    }
    let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(bytes)).ok()?;
    value.set_sensitive(is_sensitive);
    Some(value)
}
