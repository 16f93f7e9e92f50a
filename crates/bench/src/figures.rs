//! Figures for people: the middle of several, and numbers that can be read.

use std::time::Duration;

/// The middle one.
pub fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// The one of `sorted` that so many in a thousand do not exceed.
pub fn per_mille<T: Copy + Default>(sorted: &[T], per_mille: usize) -> T {
    let at = (sorted.len() * per_mille / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// In whole and tenths of seconds, or in milliseconds when it is shorter.
pub fn readable(time: Duration) -> String {
    if time >= Duration::from_secs(1) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{:.0} ms", time.as_secs_f64() * 1000.0)
    }
}

/// The lowest and the highest.
pub fn spread(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::MAX, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// A count, to be divided.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn as_float(count: u64) -> f64 {
    count as f64
}

/// Microseconds as milliseconds.
pub fn milliseconds(micros: u64) -> f64 {
    as_float(micros) / 1000.0
}

/// What was wrong, or that nothing was.
pub fn errors<'a>(faults: impl IntoIterator<Item = &'a String>) -> String {
    let faults: Vec<_> = faults.into_iter().map(String::as_str).collect();
    if faults.is_empty() { "0".to_owned() } else { format!("**BROKEN: {}**", faults.join("; ")) }
}

/// In whole numbers, with a comma between groups of three digits.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are small and not negative"
)]
pub fn rounded(rate: f64) -> String {
    thousands(rate.round() as u64)
}

/// With a comma between groups of three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(["7", "1,000", "10,000,000"].map(str::to_owned), [7, 1000, 10_000_000].map(thousands));
        assert_eq!(rounded(1234.5), "1,235");
    }

    #[test]
    fn the_spread_is_lowest_and_highest() {
        assert_eq!(spread([2.0, 1.0, 3.0]), (1.0, 3.0));
    }

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median([3, 1, 2]), Some(2));
        assert_eq!(median([4, 1]), Some(1));
        assert_eq!(median(Vec::<u8>::new()), None);
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(readable(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(readable(Duration::from_millis(7)), "7 ms");
    }
}
