//! What a dead letter carries beside its own headers and body: why it is one, and where it came from.

/// Why it was given up.
pub const REASON: &str = "onlyonce-dead-letter-reason";
/// Where it lay, as in [`Message::position`](onlyonce_inbox::Message), or the queue where the broker has no positions.
pub const POSITION: &str = "onlyonce-dead-letter-position";
/// Which group of consumers gave it up.
pub const GROUP: &str = "onlyonce-dead-letter-group";
/// How often it had been delivered, where the broker counts.
pub const DELIVERIES: &str = "onlyonce-dead-letter-deliveries";

/// The longest reason that is kept: headers are bounded.
const REASON_BYTES_MAX: usize = 1024;

/// `reason` as a header may carry it: one line, of bounded length.
pub(crate) fn reason(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut end = REASON_BYTES_MAX.min(line.len());
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        assert_eq!(reason("no\r\nsuch\u{0}order"), "no  such order");
        let long = reason(&"é".repeat(2000));
        assert!(long.len() <= REASON_BYTES_MAX && long.ends_with('é'));
    }
}
