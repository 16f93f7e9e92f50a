//! Canonical JSON (RFC 8785): one byte string for all spellings of a JSON text, or a refusal.
//!
//! Two bodies that a JSON parser cannot tell apart get the same bytes. The opposite mistake is the dangerous one:
//! two *different* requests that look the same would replay each other's answer. So this file refuses every text
//! on which parsers disagree (a member named twice, an integer that a double cannot hold) instead of picking a
//! reading. It repairs nothing and knows nothing of requests.

use std::cell::Cell;
use std::error::Error;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The largest text that is read, in bytes. Canonical form costs several times the text in memory.
pub const CANONICAL_BYTES_MAX: usize = 1024 * 1024;

/// The deepest nesting of arrays and objects that is read. It bounds the stack, here and in whoever reads it next.
pub const CANONICAL_DEPTH_MAX: usize = 64;

/// 2^53: from here on a double no longer tells neighbouring integers apart.
const INTEGER_END: u64 = 1 << 53;

/// The same limit as a double, which holds it exactly.
const INTEGER_END_F64: f64 = 9_007_199_254_740_992.0;

/// Writes `body` in the canonical form of RFC 8785.
///
/// Members are sorted by UTF-16 code units, numbers are written as ECMAScript writes doubles, blanks are gone.
///
/// Numbers are doubles in RFC 8785. An integer beyond ±(2^53 - 1) would silently become another integer, and an
/// amount of money with it: it is refused. So is every other number of that magnitude (`1e30`), because the
/// parser does not say which of the two it saw. Send such values as strings.
///
/// ```
/// use onlyonce_core::fingerprint::canonical::canonical_json;
///
/// let one = canonical_json(br#"{"currency": "USD", "amount": 100.0}"#)?;
/// let two = canonical_json(br#"{"amount":1e2,"currency":"\u0055SD"}"#)?;
/// assert_eq!(one, two);
/// assert_eq!(one, br#"{"amount":100,"currency":"USD"}"#);
///
/// assert!(canonical_json(br#"{"amount": 100, "amount": 1}"#).is_err());
/// # Ok::<(), onlyonce_core::fingerprint::canonical::CanonicalError>(())
/// ```
pub fn canonical_json(body: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    write_canonical(&read_strict(body)?)
}

/// Reads `body` with every refusal of this file. For callers that pick members before they call [`write_canonical`].
pub fn read_strict(body: &[u8]) -> Result<Value, CanonicalError> {
    if body.len() > CANONICAL_BYTES_MAX {
        return Err(CanonicalError::TooLarge { bytes: body.len() });
    }
    let text =
        std::str::from_utf8(body).map_err(|error| CanonicalError::NotUtf8 { at: error.valid_up_to() })?;
    if text.starts_with('\u{feff}') {
        return Err(CanonicalError::ByteOrderMark);
    }
    let refusal = Cell::new(None);
    let mut reader = serde_json::Deserializer::from_str(text);
    Strict { depth: 0, refusal: &refusal }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| CanonicalError::from_reader(refusal.get(), &error))
}

/// Writes a tree that came from [`read_strict`], or a part of one.
pub fn write_canonical(value: &Value) -> Result<Vec<u8>, CanonicalError> {
    // A strict tree always has a canonical form. Should the writer disagree, a refusal is safe and a panic is not.
    serde_json_canonicalizer::to_vec(value)
        .map_err(|error| CanonicalError::Malformed { reason: error.to_string() })
}

/// Why reading stopped, when it was this file and not the parser that stopped it.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    Depth,
    Duplicate,
    Number,
}

/// Builds a tree while refusing what [`Value`]'s own reader lets pass.
#[derive(Clone, Copy)]
struct Strict<'a> {
    depth: usize,
    /// Carries the reason past the parser, whose errors hold only text.
    refusal: &'a Cell<Option<Refusal>>,
}

impl Strict<'_> {
    fn refuse<T, E: serde::de::Error>(self, refusal: Refusal) -> Result<T, E> {
        self.refusal.set(Some(refusal));
        Err(E::custom("refused"))
    }

    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == CANONICAL_DEPTH_MAX {
            return self.refuse(Refusal::Depth);
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        if value >= INTEGER_END { self.refuse(Refusal::Number) } else { Ok(Value::from(value)) }
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() >= INTEGER_END {
            self.refuse(Refusal::Number)
        } else {
            Ok(Value::from(value))
        }
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        // Integers past 64 bits arrive here too, already rounded.
        match Number::from_f64(value) {
            Some(number) if value.abs() < INTEGER_END_F64 => Ok(Value::Number(number)),
            _ => self.refuse(Refusal::Number),
        }
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        // Names arrive with their escapes resolved: "a" and "\u0061" are the same member.
        while let Some(name) = members.next_key::<String>()? {
            if object.contains_key(&name) {
                return self.refuse(Refusal::Duplicate);
            }
            object.insert(name, members.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

/// Why a body has no canonical form. What the body says is never repeated: it may be hostile, secret or both.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CanonicalError {
    /// There are more than [`CANONICAL_BYTES_MAX`] bytes.
    TooLarge {
        /// How many there are.
        bytes: usize,
    },
    /// Arrays and objects are nested deeper than [`CANONICAL_DEPTH_MAX`].
    TooDeep,
    /// The bytes are not UTF-8.
    NotUtf8 {
        /// The position of the first bad byte, from 0.
        at: usize,
    },
    /// A byte order mark precedes the text. RFC 8259 forbids it, and parsers disagree on it.
    ByteOrderMark,
    /// The bytes are not one JSON text: broken syntax, something after its end, half of a surrogate pair, or a
    /// number that no double can hold.
    Malformed {
        /// What the parser said, and where.
        reason: String,
    },
    /// An object names a member twice.
    DuplicateMember {
        /// The line, from 1.
        line: usize,
        /// The column at which the name or number ends, from 1.
        column: usize,
    },
    /// A number's magnitude is 2^53 or more.
    NumberTooLarge {
        /// The line, from 1.
        line: usize,
        /// The column at which the name or number ends, from 1.
        column: usize,
    },
}

impl CanonicalError {
    fn from_reader(refusal: Option<Refusal>, error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        match refusal {
            Some(Refusal::Depth) => Self::TooDeep,
            Some(Refusal::Duplicate) => Self::DuplicateMember { line, column },
            Some(Refusal::Number) => Self::NumberTooLarge { line, column },
            // The parser's own words hold positions and what it expected, never what it found.
            None => Self::Malformed { reason: error.to_string() },
        }
    }
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes } => {
                write!(f, "the JSON text has {bytes} bytes, at most {CANONICAL_BYTES_MAX} are read")
            }
            Self::TooDeep => write!(f, "the JSON text is nested deeper than {CANONICAL_DEPTH_MAX} levels"),
            Self::NotUtf8 { at } => write!(f, "byte {at} of the JSON text is not UTF-8"),
            Self::ByteOrderMark => write!(f, "the JSON text starts with a byte order mark"),
            Self::Malformed { reason } => write!(f, "the JSON text is malformed: {reason}"),
            Self::DuplicateMember { line, column } => {
                write!(f, "an object names a member twice, at line {line} column {column}")
            }
            Self::NumberTooLarge { line, column } => {
                write!(f, "a number is 2^53 or larger, at line {line} column {column}; send it as a string")
            }
        }
    }
}

impl Error for CanonicalError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        String::from_utf8(canonical_json(text.as_bytes()).expect(text)).unwrap()
    }

    #[test]
    fn the_example_of_rfc_8785_section_3_2_2() {
        // The example's `1E30` is left out: see `numbers_a_double_cannot_tell_apart_are_refused`.
        let text = r#"{
            "numbers": [333333333.33333329, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let expected = concat!(
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"#,
            r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#
        );
        assert_eq!(canonical(text), expected);
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units_as_in_section_3_2_3() {
        let text = r#"{"\u20ac":1, "\r":2, "\ufb33":3, "1":4, "\ud83d\ude00":5, "\u0080":6, "\u00f6":7}"#;
        // The face (a surrogate pair) sorts before U+FB33, which code points would not do.
        assert_eq!(
            canonical(text),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\u{fb33}\":3}"
        );
    }

    #[test]
    fn numbers_are_written_as_in_appendix_b() {
        for (bits, written) in [
            (0x0000_0000_0000_0000_u64, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            // The exact decimal expansion: what is tested is the writing, after a reading that must not round.
            assert_eq!(canonical(&format!("{:.1100}", f64::from_bits(bits))), written, "{bits:x}");
        }
        for (text, written) in
            [("-0", "0"), ("-0.0", "0"), ("1E5", "100000"), ("-1.50", "-1.5"), ("1e-400", "0")]
        {
            assert_eq!(canonical(text), written);
        }
    }

    #[test]
    fn strings_are_escaped_no_more_than_needed() {
        let text = r#""\u007f\u2028\/\u0008\u000c\u001f\ud83d\ude00""#;
        assert_eq!(canonical(text), "\"\u{7f}\u{2028}/\\b\\f\\u001f😀\"");
        // No Unicode normalization: é as one and as two code points stay two texts.
        assert_ne!(canonical("\"\u{e9}\""), canonical("\"e\u{301}\""));
    }

    #[test]
    fn order_blanks_and_spelling_do_not_count_but_values_do() {
        let one = canonical(r#"{"b": [1, {"y": 1, "x": 2}], "a": "A"}"#);
        assert_eq!(one, canonical("{\"a\":\"\\u0041\",\n\t\"b\":[1.0,{\"x\":2e0,\"y\":1}]}"));
        assert_ne!(one, canonical(r#"{"b": [{"y": 1, "x": 2}, 1], "a": "A"}"#));
        assert_ne!(canonical("1"), canonical("\"1\""));
        assert_ne!(canonical("null"), canonical("{}"));
    }

    #[test]
    fn numbers_a_double_cannot_tell_apart_are_refused() {
        for fine in ["9007199254740991", "-9007199254740991", "9007199254740990.5"] {
            assert!(canonical_json(fine.as_bytes()).is_ok(), "{fine}");
        }
        let bad = "9007199254740992 -9007199254740992 9007199254740993 18446744073709551615 18446744073709551616 \
                   -9223372036854775808 123456789012345678901234567890 1e16 1E30 -1e300 9007199254740991.9";
        for bad in bad.split_whitespace() {
            let error = canonical_json(format!("[0,\n{bad}]").as_bytes()).unwrap_err();
            assert!(matches!(error, CanonicalError::NumberTooLarge { line: 2, .. }), "{bad}: {error:?}");
        }
    }

    #[test]
    fn members_named_twice_are_refused_however_they_are_spelled() {
        for bad in
            [r#"{"a":1,"a":1}"#, r#"{"a":1,"\u0061":2}"#, r#"[{"x":{"\/":1,"/":2}}]"#, r#"{"":1,"":2}"#]
        {
            let error = canonical_json(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, CanonicalError::DuplicateMember { line: 1, .. }), "{bad}: {error}");
        }
        assert_eq!(canonical(r#"[{"a":{"a":1}},{"a":2}]"#), r#"[{"a":{"a":1}},{"a":2}]"#);
    }

    #[test]
    fn what_is_not_one_json_text_is_refused() {
        let broken =
            ["", " ", "{", "[1,]", "{\"a\":1,}", "{a:1}", "'a'", "01", "1.", ".5", "+1", "nul", "\u{a0}1"];
        let not_numbers = ["NaN", "[Infinity]", "-Infinity", "1e400"];
        let trailing = ["1 2", "{} {}", "1\0", "// c\n1"];
        let not_text = ["\"\n\"", "\"\\ud800\"", "\"\\udc00\\ud800\"", "\"\\x\""];
        for bad in [&broken[..], &not_numbers, &trailing, &not_text].concat() {
            let error = canonical_json(bad.as_bytes()).unwrap_err();
            assert!(matches!(error, CanonicalError::Malformed { .. }), "{bad:?}: {error}");
        }
        assert_eq!(canonical_json(b"\"a\xff\""), Err(CanonicalError::NotUtf8 { at: 2 }));
        assert_eq!(canonical_json(b"\"\xed\xa0\x80\""), Err(CanonicalError::NotUtf8 { at: 1 }));
        assert_eq!(canonical_json(b"\xef\xbb\xbf{}"), Err(CanonicalError::ByteOrderMark));
    }

    #[test]
    fn size_and_depth_have_a_limit() {
        let nested =
            |open: &str, close: &str, depth: usize| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            assert!(canonical_json(nested(open, close, CANONICAL_DEPTH_MAX).as_bytes()).is_ok());
            let deeper = nested(open, close, CANONICAL_DEPTH_MAX + 1);
            assert_eq!(canonical_json(deeper.as_bytes()), Err(CanonicalError::TooDeep));
        }
        assert_eq!(canonical_json("[".repeat(100_000).as_bytes()), Err(CanonicalError::TooDeep));
        let padded = |bytes: usize| format!("1{}", " ".repeat(bytes - 1));
        assert_eq!(canonical(&padded(CANONICAL_BYTES_MAX)), "1");
        let bytes = CANONICAL_BYTES_MAX + 1;
        assert_eq!(canonical_json(padded(bytes).as_bytes()), Err(CanonicalError::TooLarge { bytes }));
    }

    #[test]
    fn errors_never_repeat_the_body() {
        for bad in [
            r#"{"secret": "hunter2" "#,
            r#"{"hunter2": 1, "hunter2": 2}"#,
            r#"{"hunter2"}"#,
            "hunter2",
            r#"{"a": hunter2}"#,
            r#"["hunter2", 99999999999999999999]"#,
            r#""hunter2" hunter2"#,
        ] {
            let error = canonical_json(bad.as_bytes()).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter"), "{error:?}");
        }
    }

    fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991_i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<f64>().prop_map(|number| Value::from(number % INTEGER_END_F64)),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 8, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
                proptest::collection::hash_map(any::<String>(), inner, 0..8)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest::proptest! {
        #[test]
        fn the_canonical_form_is_its_own_canonical_form(value in any_json()) {
            let once = canonical_json(value.to_string().as_bytes()).unwrap();
            proptest::prop_assert_eq!(&canonical_json(&once).unwrap(), &once);
            let pretty = serde_json::to_vec_pretty(&value).unwrap();
            proptest::prop_assert_eq!(canonical_json(&pretty).unwrap(), once);
        }

        #[test]
        fn any_bytes_are_canonical_json_or_a_clear_error(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
            text in "[\\[\\]{}\":,0-9eE.+\\-\\\\u a-f]{0,80}",
        ) {
            for body in [&bytes[..], text.as_bytes()] {
                match canonical_json(body) {
                    Ok(once) => proptest::prop_assert_eq!(canonical_json(&once).unwrap(), once),
                    Err(error) => proptest::prop_assert!(!error.to_string().is_empty()),
                }
            }
        }
    }
}
