//! Recognises points in time in texts and numbers. It judges looks only: a birthday and a time of sending look alike.
//!
//! Plain dates (`2026-11-15`) are not reported: they name billing days and seldom differ between attempts.

use std::ops::RangeInclusive;

/// 2001-01-01 to 2100-01-01, in seconds since 1970. Numbers outside are not taken for times.
const CENTURY: RangeInclusive<u64> = 978_307_200..=4_102_444_800;

/// 2020-01-01 to 2040-01-01. Within a longer text only such digits are taken for a time: what is put there by mistake
/// is the *current* time, and a third of all ten-digit order numbers would lie in the century above.
const PRESENT: RangeInclusive<u64> = 1_577_836_800..=2_208_988_800;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Whether `number` looks like seconds, milliseconds, microseconds or nanoseconds since 1970, in this century.
pub(super) fn is_epoch(number: u64) -> bool {
    is_epoch_within(&CENTURY, number)
}

/// Whether `text` holds a run of digits, on its own or between separators, that looks like the current time.
pub(super) fn holds_epoch(text: &str) -> bool {
    digit_runs(text).any(|run| run.parse().is_ok_and(|number| is_epoch_within(&PRESENT, number)))
}

/// Whether `text` holds a date with a time: ISO 8601 (`2026-11-15T04:09`, `20261115T040900`, `20261115040900`) or the
/// forms of mail, HTTP, C and JavaScript (`Sun, 15 Nov 2026 04:09`, `Nov 15 04:09:00 2026`).
pub(super) fn holds_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let starts = (0..bytes.len()).filter(|&at| at == 0 || !bytes[at - 1].is_ascii_digit());
    starts.into_iter().any(|at| is_iso_date_time(&bytes[at..]))
        || digit_runs(text).any(|run| matches!(run.len(), 14 | 17) && is_calendar(run.as_bytes()))
        || holds_named_month(text)
}

fn is_epoch_within(range: &RangeInclusive<u64>, number: u64) -> bool {
    [1, 1_000, 1_000_000, 1_000_000_000].into_iter().any(|unit| range.contains(&(number / unit)))
}

/// Runs of ASCII digits that do not touch a letter or another digit: not those inside of a hash.
fn digit_runs(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric())
        .filter(|run| !run.is_empty() && run.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_iso_date_time(bytes: &[u8]) -> bool {
    // In a template `9` is a digit, `d` joins a date, `T` joins date and time, `t` joins a time.
    ["9999d99d99T99t99", "99999999T999999", "99999999T9999"].into_iter().any(|template| {
        fits(bytes, template) && {
            let digits: Vec<u8> =
                bytes[..template.len()].iter().copied().filter(u8::is_ascii_digit).collect();
            is_calendar(&digits)
        }
    })
}

fn fits(bytes: &[u8], template: &str) -> bool {
    bytes.len() >= template.len()
        && template.bytes().zip(bytes).all(|(expected, byte)| match expected {
            b'9' => byte.is_ascii_digit(),
            b'd' => matches!(byte, b'-' | b'/' | b'.'),
            b't' => matches!(byte, b':' | b'-' | b'.'),
            _ => matches!(byte, b'T' | b't' | b' ' | b'_'),
        })
}

/// Whether the first twelve digits are year, month, day, hour and minute of this century.
fn is_calendar(digits: &[u8]) -> bool {
    let number = |range: std::ops::Range<usize>| {
        digits[range].iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'))
    };
    digits.len() >= 12
        && (2001..=2100).contains(&number(0..4))
        && (1..=12).contains(&number(4..6))
        && (1..=31).contains(&number(6..8))
        && number(8..10) <= 24
        && number(10..12) <= 59
}

/// A month's name next to a day's number, with a time at most three words later.
fn holds_named_month(text: &str) -> bool {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let is_day = |word: &&str| word.parse().is_ok_and(|day: u8| (1..=31).contains(&day));
    words.iter().enumerate().any(|(at, word)| {
        let prefix = word.get(..3).unwrap_or_default().to_ascii_lowercase();
        let day_before = at.checked_sub(1).and_then(|before| words.get(before)).is_some_and(is_day);
        let day_after = words.get(at + 1).is_some_and(is_day);
        word.bytes().all(|byte| byte.is_ascii_alphabetic())
            && MONTHS.contains(&prefix.as_str())
            && (day_before || day_after)
            && words.iter().skip(at + 1).take(3).any(|word| is_clock_time(word))
    })
}

fn is_clock_time(word: &str) -> bool {
    let mut parts = word.split(':').map(|part| part.get(..2).unwrap_or(part).parse::<u8>());
    matches!((parts.next(), parts.next()), (Some(Ok(hour)), Some(Ok(minute))) if hour <= 24 && minute <= 59)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times_are_recognised_in_their_common_spellings() {
        for text in [
            "2026-11-15T04:09:00Z",
            "2026-11-15t04:09",
            "2026-11-15 04:09:00.123+02:00",
            "2026/11/15 04:09",
            "order-2026-11-15T04-09-00",
            "20261115T040900Z",
            "run_20261115_040900",
            "export-20261115040900",
            "20261115040900123",
            "Sun, 15 Nov 2026 04:09:00 GMT",
            "15 November 2026 4:09",
            "Sunday, 15-Nov-26 04:09:00 GMT",
            "Sun Nov 15 04:09:00 2026",
            "Sun Nov 15 2026 04:09:00 GMT+0100",
        ] {
            assert!(holds_date_time(text), "{text}");
        }
    }

    #[test]
    fn dates_times_and_numbers_alone_are_not_date_times() {
        for text in [
            "",
            "2026-11-15",
            "2026-11",
            "20261115",
            "04:09:00",
            "order-2026-11-15-7",
            "15 Nov 2026",
            "may 3 people join",
            "2026-13-15T04:09",
            "2026-11-15T61:09",
            "1026-11-15T04:09",
            "12026-11-15T04:09",
            "99999999999999",
            "march on",
            "10:30 bus",
            "é2026-11-15",
            "10.0.0.1",
            "v2026.11.15",
            "4111-1111-1111-1111",
        ] {
            assert!(!holds_date_time(text), "{text}");
        }
    }

    #[test]
    fn epochs_are_recognised_in_every_unit() {
        for number in
            [978_307_200, 1_794_715_740, 1_794_715_740_123, 1_794_715_740_123_456, 1_794_715_740_123_456_789]
        {
            assert!(is_epoch(number), "{number}");
        }
        for number in
            [0, 1, 100, 2026, 999_999, 20_261_115, 978_307_199, 4_102_444_801, 12_345_678_901, u64::MAX]
        {
            assert!(!is_epoch(number), "{number}");
        }
        for text in ["1794715740", "order-1794715740123", "a:1794715740.5:b", "1794715740123456"] {
            assert!(holds_epoch(text), "{text}");
        }
        for text in
            ["order-1234567890", "x1794715740", "order-4006381333931", "17947157401", "ab1794715740cd", ""]
        {
            assert!(!holds_epoch(text), "{text}");
        }
    }
}
