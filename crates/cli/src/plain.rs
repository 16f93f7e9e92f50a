//! Text that others wrote, as it may be shown: nothing in it moves the cursor, changes a colour or hides what follows.
//!
//! Bodies, header fields and reasons come from callers, services and other operators. A terminal obeys what it finds in
//! them, so what is not a character to be seen is shown as its number.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Text on one line.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_unseen(character).then(|| character.escape_unicode().to_string()))
}

/// Text on as many lines as it has.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    let shown = |character| is_unseen(character) && !matches!(character, '\n' | '\t');
    escaped(text, |character| shown(character).then(|| character.escape_unicode().to_string()))
}

/// A value as JSON, which says the same in characters that can be seen.
pub(crate) fn json(value: &Value) -> String {
    let escape = |character: char| {
        is_unseen(character).then(|| {
            let mut units = [0; 2];
            character.encode_utf16(&mut units).iter().fold(String::new(), |mut text, unit| {
                // A string takes whatever is written to it.
                let _ = write!(text, "\\u{unit:04x}");
                text
            })
        })
    };
    // INVARIANT: between strings the writer puts nothing that is escaped here.
    escaped(&value.to_string(), escape).into_owned()
}

/// Whether `character` is obeyed, or reorders what is beside it, rather than seen.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

fn escaped(text: &str, escape: impl Fn(char) -> Option<String>) -> Cow<'_, str> {
    if !text.chars().any(|character| escape(character).is_some()) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match escape(character) {
            Some(escaped) => shown.push_str(&escaped),
            None => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\u{9b}31m\r\n\tb\u{202e}c\u{7f}\0";

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_number() {
        assert_eq!(plain(HOSTILE), "a\\u{1b}[2J\\u{9b}31m\\u{d}\\u{a}\\u{9}b\\u{202e}c\\u{7f}\\u{0}");
        assert_eq!(plain_lines("a\nb\tc\u{1b}"), "a\nb\tc\\u{1b}");
        assert!(matches!(plain("Zoë 支払い 🙂"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_says_the_same_without_a_byte_to_obey() {
        let value = serde_json::json!({ "text": HOSTILE, "more": ["\u{e0001}", "é"] });
        let shown = json(&value);
        assert!(!shown.chars().any(is_unseen), "{shown:?}");
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }
}
