//! The fields of a head: out of its bytes, and into them. **Pure.**

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};

use super::Malformed;

/// What was parsed from bytes that `head` is a copy of: values are slices of `head`, and nothing else is copied. There is
/// room for `added` more: to make it later means to sort all fields anew.
pub(crate) fn fields(
    parsed: &[httparse::Header<'_>],
    from: &[u8],
    head: &Bytes,
    added: usize,
) -> Result<HeaderMap, Malformed> {
    let mut fields = HeaderMap::with_capacity(parsed.len() + added);
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed::Head)?;
        let value = shared(field.value, from, head);
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| Malformed::Head)?;
        fields.append(name, value);
    }
    Ok(fields)
}

/// A `part` of the bytes that `head` is a copy of, as a slice of `head`.
pub(crate) fn shared(part: &[u8], from: &[u8], head: &Bytes) -> Bytes {
    let start = part.as_ptr().addr() - from.as_ptr().addr();
    head.slice(start..start + part.len())
}

/// Writes all fields but those that say how the body is framed, which is for whoever frames it.
pub(crate) fn put_fields(fields: &HeaderMap, head: &mut Vec<u8>) {
    for (name, value) in fields {
        if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING {
            put_field(name, value, head);
        }
    }
}

pub(crate) fn put_field(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Content-Length, which may be said more than once as long as it says the same.
pub(crate) fn length(fields: &HeaderMap) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for value in fields.get_all(CONTENT_LENGTH) {
        for said in value.as_bytes().split(|byte| *byte == b',') {
            let number = number(said.trim_ascii()).ok_or(Malformed::Length)?;
            if length.replace(number).is_some_and(|before| before != number) {
                return Err(Malformed::Length);
            }
        }
    }
    Ok(length)
}

/// Digits only, and no more than fit: no sign, no list, no blanks inside.
pub(crate) fn number(value: &[u8]) -> Option<u64> {
    // 18 digits always fit; more are no length that anybody sends.
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// What stands in a field that is a list, such as Connection.
pub(crate) fn listed<'a>(fields: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let values = fields.get_all(name).into_iter();
    values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}

/// Whether `token` stands in such a field.
pub(crate) fn is_listed(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    listed(fields, name).any(|listed| listed.eq_ignore_ascii_case(token.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    fn of(values: &[&'static str]) -> HeaderMap {
        values.iter().map(|value| (CONTENT_LENGTH, HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_length_is_one_number() {
        assert_eq!(length(&of(&[])), Ok(None));
        for same in [&["5"][..], &["5", "5"], &["5, 5"], &["05", " 5"]] {
            assert_eq!(length(&of(same)), Ok(Some(5)), "{same:?}");
        }
        for bad in [&[""][..], &["5", "6"], &["5, 6"], &["5,"], &["+5"], &["0x5"], &["9999999999999999999"]] {
            assert_eq!(length(&of(bad)), Err(Malformed::Length), "{bad:?}");
        }
    }

    #[test]
    fn a_token_is_found_in_a_list_and_nowhere_else() {
        let fields = |value| HeaderMap::from_iter([(header::CONNECTION, HeaderValue::from_static(value))]);
        assert!(is_listed(&fields("x,  Close"), &header::CONNECTION, "close"));
        assert!(!is_listed(&fields("closed"), &header::CONNECTION, "close"));
        assert!(!is_listed(&fields("close"), &header::TE, "close"));
    }
}
