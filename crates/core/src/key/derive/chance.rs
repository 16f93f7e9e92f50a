//! Recognises values that come from a random source, by their looks. It cannot tell an id that was stored from one
//! that was made a moment ago: where a value may name something stored, the caller does not ask.

use uuid::{Uuid, Variant};

/// The shortest texts taken for random: 128 bits in hexadecimal, and in base 64.
const HEX_CHARS_MIN: usize = 32;
const BASE64_CHARS_MIN: usize = 22;

/// Longer texts are taken for contents (a document, a picture), not for a random number.
const RANDOM_CHARS_MAX: usize = 128;

/// What a UUID is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UuidSource {
    /// Versions 1, 6 and 7.
    Time,
    /// Version 4.
    Chance,
}

/// The first UUID in `text` that is made anew on every call. Versions 3 and 5 are computed from a name: no hazard.
pub(super) fn fresh_uuid(text: &str) -> Option<UuidSource> {
    const CHARS: usize = 36;
    let is_edge = |at: Option<usize>| {
        at.and_then(|at| text.as_bytes().get(at)).is_none_or(|byte| !byte.is_ascii_alphanumeric())
    };
    (0..text.len())
        .filter(|&at| is_edge(at.checked_sub(1)) && is_edge(Some(at + CHARS)))
        .filter_map(|at| Uuid::try_parse(text.get(at..at + CHARS)?).ok())
        .filter(|uuid| uuid.get_variant() == Variant::RFC4122)
        .find_map(|uuid| match uuid.get_version_num() {
            1 | 6 | 7 => Some(UuidSource::Time),
            4 => Some(UuidSource::Chance),
            _ => None,
        })
}

/// Whether the whole of `text` looks like a random number in hexadecimal or base 64.
pub(super) fn is_random(text: &str) -> bool {
    text.len() <= RANDOM_CHARS_MAX && text.is_ascii() && (is_random_hex(text) || is_random_base64(text))
}

fn is_random_hex(text: &str) -> bool {
    let has = |test: fn(&u8) -> bool| text.as_bytes().iter().any(test);
    text.len() >= HEX_CHARS_MIN
        && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
        // Random digits come to 3.5 and more; 0000…01 and deadbeefdeadbeef do not.
        && entropy_bits(text.as_bytes()) >= 3.0
}

fn is_random_base64(text: &str) -> bool {
    let bytes = text.trim_end_matches('=').as_bytes();
    let classes: Option<Vec<u8>> = bytes.iter().map(|&byte| class_of(byte)).collect();
    let Some(classes) = classes else { return false };
    let changes = classes.windows(2).filter(|pair| pair[0] != pair[1]).count();
    bytes.len() >= BASE64_CHARS_MIN
        && [0, 1, 2].iter().all(|class| classes.contains(class))
        // Words run in one case, chance does not: it changes class at two of three characters, CamelCase at one of five.
        && changes * 5 >= bytes.len() * 2
        && entropy_bits(bytes) >= 3.5
        && !is_issued_id(text)
}

fn class_of(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(0),
        b'a'..=b'z' => Some(1),
        b'0'..=b'9' => Some(2),
        b'+' | b'/' | b'-' | b'_' => Some(3),
        _ => None,
    }
}

/// `pm_1MtwBwLkdIwHu7ix28a3tqPa`: a service gave this name to something that it keeps.
fn is_issued_id(text: &str) -> bool {
    text.split_once('_').is_some_and(|(prefix, _)| {
        (2..=8).contains(&prefix.len()) && prefix.bytes().all(|byte| byte.is_ascii_lowercase())
    })
}

/// Shannon's entropy per character, in bits.
fn entropy_bits(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    let total: u32 = counts.iter().sum();
    let share = |count: u32| f64::from(count) / f64::from(total);
    counts.iter().filter(|&&count| count > 0).map(|&count| -share(count) * share(count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_told_apart_by_what_they_are_made_from() {
        for (text, source) in [
            ("018f3a5c-7b2e-7c4d-9e8f-0a1b2c3d4e5f", Some(UuidSource::Time)),
            ("c232ab00-9414-11ec-b3c8-9e6bdeced846", Some(UuidSource::Time)),
            ("1ec9414c-232a-6b00-b3c8-9e6bdeced846", Some(UuidSource::Time)),
            ("create-9B2E4C1A-6F3D-4E8B-A7C5-1D2E3F4A5B6C", Some(UuidSource::Chance)),
            ("urn:uuid:9b2e4c1a-6f3d-4e8b-a7c5-1d2e3f4a5b6c", Some(UuidSource::Chance)),
            ("5df41881-3aed-3515-88a7-2f4a814cf09e", None),
            ("2ed6657d-e927-568b-95e1-2665a8aea6a2", None),
            ("00000000-0000-0000-0000-000000000000", None),
            ("x9b2e4c1a-6f3d-4e8b-a7c5-1d2e3f4a5b6c", None),
            ("é9b2e4c1a-6f3d-4e8b-a7c5-1d2e3f4a5b6", None),
            ("", None),
        ] {
            assert_eq!(fresh_uuid(text), source, "{text}");
        }
    }

    #[test]
    fn random_texts_are_recognised() {
        for text in [
            "9f86d081884c7d659a2feaa0c55ad015",
            "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
            "k7Jx2PqLm9Zt4RvB8nWc3Q==",
            "kP3-x9Zt_4RvB8nWc3QyL7Jm2a",
        ] {
            assert!(is_random(text), "{text}");
        }
    }

    #[test]
    fn words_names_and_plain_numbers_are_not_random() {
        let content = "k7Jx2PqLm9Zt4RvB8nWc3Q".repeat(8);
        for text in [
            "",
            "USD",
            "create",
            "order-123",
            "00000000000000000000000000000001",
            "12345678901234567890123456789012",
            "deadbeefdeadbeefdeadbeefdeadbeef",
            "InternationalBusinessMachines2024Report",
            "9f86d081",
            "pm_1MtwBwLkdIwHu7ix28a3tqPa",
            "the quick brown fox jumps over 13 lazy dogs",
            "customers/2024/InvoiceForMay",
            "alice.longname@example-company.com",
            "GB82WEST12345698765432",
            "DE89370400440532013000",
            &content,
        ] {
            assert!(!is_random(text), "{text}");
        }
    }
}
