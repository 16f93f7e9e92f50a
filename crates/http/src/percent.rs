//! Percent form (RFC 3986): bytes that must not stand for themselves, as `%` and two digits.

/// `text` with every byte that is not `plain` in percent form.
pub(crate) fn encode(text: &str, plain: impl Fn(u8) -> bool) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        if plain(byte) {
            written.push(char::from(byte));
        } else {
            written.push('%');
            written.push_str(&onlyonce_core::hex::encode(&[byte]).to_ascii_uppercase());
        }
    }
    written
}

/// Whether a byte means nothing wherever it stands in a URL.
pub(crate) const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_plain_is_written_in_two_digits() {
        assert_eq!(encode("a/b?c=d&e é\u{0}", is_unreserved), "a%2Fb%3Fc%3Dd%26e%20%C3%A9%00");
        assert_eq!(encode("Az09-._~", is_unreserved), "Az09-._~");
    }
}
