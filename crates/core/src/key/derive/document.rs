//! Reads a JSON text into a tree that keeps numbers exact, or refuses it.
//!
//! Python keeps integers of any size; a double would merge neighbours, and two operations with them. So numbers are
//! taken as they are written. What Python and other readers understand differently is refused, not guessed.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;

use super::DeriveError;
use super::error::ParamsRefusal;

/// The largest JSON text that is read, in bytes.
pub const PARAMS_BYTES_MAX: usize = 1024 * 1024;

/// The deepest nesting of arrays and objects that is read. It bounds the stack.
pub const PARAMS_DEPTH_MAX: usize = 64;

/// The most digits of an integer: where Python itself stops reading, because the cost grows with the square.
pub const INTEGER_DIGITS_MAX: usize = 4300;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    /// An integer as Python writes it: no `-0`. Of any size.
    Integer(String),
    /// A number written with a point or an exponent. Finite.
    Float(f64),
    Text(String),
    List(Vec<Self>),
    /// Sorted by code point, as Python sorts text. (UTF-8 bytes have the same order.)
    Object(BTreeMap<String, Self>),
}

/// Reads `text`, which must be one JSON value.
pub(super) fn parse(text: &str) -> Result<Node, DeriveError> {
    if text.len() > PARAMS_BYTES_MAX {
        return Err(DeriveError::TooLong { field: "params", bytes: text.len(), bytes_max: PARAMS_BYTES_MAX });
    }
    // serde_json is the judge of syntax; it does so without recursion. Its words hold positions, never contents.
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| DeriveError::ParamsMalformed { reason: error.to_string() })?;
    Reader { text, at: 0 }.value(0)
}

/// Takes a text apart whose syntax was checked before.
///
/// INVARIANT: `at` is a boundary of characters, since it only ever moves past ASCII or whole strings.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Node, DeriveError> {
        match self.peek() {
            Some(b'"') => self.string().map(Node::Text),
            Some(b'[' | b'{') if depth == PARAMS_DEPTH_MAX => Err(DeriveError::ParamsTooDeep),
            Some(b'[') => self.list(depth + 1),
            Some(b'{') => self.object(depth + 1),
            _ => self.literal(),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Node, DeriveError> {
        self.at += 1;
        let mut items = Vec::new();
        while !matches!(self.peek(), Some(b']') | None) {
            items.push(self.value(depth)?);
        }
        self.at += 1;
        Ok(Node::List(items))
    }

    fn object(&mut self, depth: usize) -> Result<Node, DeriveError> {
        self.at += 1;
        let mut members = BTreeMap::new();
        while !matches!(self.peek(), Some(b'}') | None) {
            let name_at = self.at;
            let name = self.string()?;
            if members.insert(name, self.value(depth)?).is_some() {
                return Err(self.refused(ParamsRefusal::DuplicateMember, name_at));
            }
        }
        self.at += 1;
        Ok(Node::Object(members))
    }

    fn string(&mut self) -> Result<String, DeriveError> {
        let start = self.at;
        let mut escaped = false;
        let inside = self.text.as_bytes().iter().skip(start + 1);
        let chars = inside.take_while(|&&byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            !ends
        });
        self.at = start + chars.count() + 2;
        // Syntax is sound, so what is left to go wrong is a `\ud800` without its other half.
        serde_json::from_str(self.part(start)).map_err(|_| self.refused(ParamsRefusal::LoneSurrogate, start))
    }

    fn literal(&mut self) -> Result<Node, DeriveError> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or_default();
        self.at += rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
        match self.part(start) {
            "null" => Ok(Node::Null),
            "true" => Ok(Node::Bool(true)),
            "false" => Ok(Node::Bool(false)),
            "-0" => Ok(Node::Integer("0".to_owned())),
            number if number.contains(['.', 'e', 'E']) => match number.parse() {
                // Rust and Python both round correctly: it is the same double.
                Ok(float) if f64::is_finite(float) => Ok(Node::Float(float)),
                _ => Err(self.refused(ParamsRefusal::Infinite, start)),
            },
            integer if integer.trim_start_matches('-').len() > INTEGER_DIGITS_MAX => {
                Err(self.refused(ParamsRefusal::IntegerTooLong, start))
            }
            integer => Ok(Node::Integer(integer.to_owned())),
        }
    }

    /// The first byte of the next value, name or closing bracket. In sound syntax all before it only separates.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let skipped =
            rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',' | b':')).count();
        self.at += skipped;
        rest.get(skipped).copied()
    }

    fn part(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn refused(&self, reason: ParamsRefusal, at: usize) -> DeriveError {
        let before = self.text.get(..at).unwrap_or_default();
        let last_line = before.rsplit('\n').next().unwrap_or_default();
        DeriveError::ParamsRefused { reason, line: before.split('\n').count(), column: last_line.len() + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> (ParamsRefusal, usize, usize) {
        match parse(text) {
            Err(DeriveError::ParamsRefused { reason, line, column }) => (reason, line, column),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_readers_disagree_on_is_refused_with_its_place() {
        use ParamsRefusal::*;
        for (text, expected) in [
            ("{\"a\":1,\"a\":1}", (DuplicateMember, 1, 8)),
            ("{\"a\":1,\n \"\\u0061\":1}", (DuplicateMember, 2, 2)),
            ("{\"x\":\n[{\"a\":{},\"a\":[]}]}", (DuplicateMember, 2, 10)),
            ("{\"a\":\"\\ud800\"}", (LoneSurrogate, 1, 6)),
            ("{\"a\":\"\\udc00\\ud800\"}", (LoneSurrogate, 1, 6)),
            ("{\"a\":{\"\\ud800x\":1}}", (LoneSurrogate, 1, 7)),
            ("{\"a\":1e400}", (Infinite, 1, 6)),
            ("{\"a\":[0,-1.8e308]}", (Infinite, 1, 9)),
        ] {
            assert_eq!(refusal(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for bad in [
            "",
            "{",
            "nope",
            "{\"a\":NaN}",
            "{\"a\":-Infinity}",
            "{\"a\":01}",
            "{\"a\":.5}",
            "{\"a\":1.}",
            "{} {}",
            "{'a':1}",
            "{\"a\":1,}",
            "\u{feff}{}",
            "{\"a\":\"\n\"}",
            "{\"a\":\"\\x\"}",
        ] {
            assert!(matches!(parse(bad), Err(DeriveError::ParamsMalformed { .. })), "{bad:?}");
        }
    }

    #[test]
    fn size_depth_and_digits_have_a_limit() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(PARAMS_DEPTH_MAX)).is_ok());
        assert!(matches!(parse(&nested(PARAMS_DEPTH_MAX + 1)), Err(DeriveError::ParamsTooDeep)));
        assert!(matches!(parse(&nested(500_000)), Err(DeriveError::ParamsTooDeep)));
        assert!(matches!(parse(&"[".repeat(500_000)), Err(DeriveError::ParamsMalformed { .. })));

        let digits = "9".repeat(INTEGER_DIGITS_MAX);
        assert_eq!(parse(&format!("-{digits}")).unwrap(), Node::Integer(format!("-{digits}")));
        assert_eq!(refusal(&format!("{digits}9")).0, ParamsRefusal::IntegerTooLong);
        assert_eq!(refusal(&format!("-{digits}9")).0, ParamsRefusal::IntegerTooLong);

        assert!(parse(&format!("1{}", " ".repeat(PARAMS_BYTES_MAX - 1))).is_ok());
        assert!(matches!(
            parse(&" ".repeat(PARAMS_BYTES_MAX + 1)),
            Err(DeriveError::TooLong { field: "params", .. })
        ));
    }

    #[test]
    fn errors_never_repeat_the_text() {
        for bad in ["{\"hunter2\":1,\"hunter2\":2}", "{\"a\":\"hunter2\\ud800\"}", "{\"hunter2\"}", "hunter2"]
        {
            let error = parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(
            text in "\\PC{0,80}|[\\[\\]{}\":,0-9eE.+\\-\\\\u a-f]{0,80}",
        ) {
            if let Err(error) = parse(&text) {
                proptest::prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}
