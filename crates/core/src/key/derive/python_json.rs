//! Writes a tree byte for byte as Python's `json.dumps(value, sort_keys=True)` does.
//!
//! Most services that derive such keys today do it with that one line of Python, and a key is only shared if every
//! byte is. This file follows Python also where the choice is odd (DEL is escaped, `1e5` is `100000.0`) and adds no option.

use std::fmt::Write as _;

use super::document::Node;

/// What `json.dumps(node, sort_keys=True)` returns. The tree is bounded in depth, so recursion is too.
pub(super) fn dumps(node: &Node) -> String {
    let mut out = String::new();
    write_node(&mut out, node);
    out
}

fn write_node(out: &mut String, node: &Node) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(true) => out.push_str("true"),
        Node::Bool(false) => out.push_str("false"),
        Node::Integer(text) => out.push_str(text),
        Node::Float(float) => out.push_str(&float_repr(*float)),
        Node::Text(text) => write_text(out, text),
        Node::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_node(out, item);
            }
            out.push(']');
        }
        Node::Object(members) => {
            out.push('{');
            for (index, (name, value)) in members.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_text(out, name);
                out.push_str(": ");
                write_node(out, value);
            }
            out.push('}');
        }
    }
}

/// As `ensure_ascii` does: everything outside of space to `~` is escaped, in UTF-16 code units and lower case.
fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{c}' => out.push_str("\\f"),
            '\u{8}' => out.push_str("\\b"),
            ' '..='~' => out.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("a String takes all that is written to it");
                }
            }
        }
    }
    out.push('"');
}

/// As `float.__repr__` does: the fewest digits that read back as the same double, with an exponent below 1e-4 and
/// from 1e16 on, and a point in all other cases.
fn float_repr(float: f64) -> String {
    // Only the layout differs from what Rust writes: "-1.25e-7" has the parts "-", "125" and -7.
    let scientific = shortest_scientific(float.abs());
    let sign = if float.is_sign_negative() { "-" } else { "" };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().expect("a double's exponent fits 32 bits");
    let digits = mantissa.replace('.', "");

    if !(-4..16).contains(&exponent) {
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{mantissa}e{exponent_sign}{:02}", exponent.abs());
    }
    let Ok(whole) = usize::try_from(exponent) else {
        let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
        return format!("{sign}0.{zeros}{digits}");
    };
    match digits.len().checked_sub(whole + 1) {
        None | Some(0) => format!("{sign}{digits}{}.0", "0".repeat(whole + 1 - digits.len())),
        Some(_) => format!("{sign}{}.{}", &digits[..=whole], &digits[whole + 1..]),
    }
}

/// The fewest digits that read back as the same double.
///
/// Where two such digit strings are equally close, Python takes the even one and Rust the upper one
/// (181700226436775.125 ends in .12 or .13). Rounding to a given number of digits goes to even in both.
fn shortest_scientific(float: f64) -> String {
    let shortest = format!("{float:e}");
    let digits = shortest.split('e').next().unwrap_or_default().bytes().filter(u8::is_ascii_digit).count();
    let rounded = format!("{float:.*e}", digits - 1);
    // Below a power of two doubles lie twice as dense as above it: the nearest digits may then be another double's.
    if rounded.parse() == Ok(float) { rounded } else { shortest }
}

#[cfg(test)]
mod tests {
    use super::super::document::parse;
    use super::*;

    // Comparison with a real Python is in `tests/derive_python.rs`; these lines say what to expect without one.
    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (float, written) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1e5, "100000.0"),
            (123.456, "123.456"),
            (0.1, "0.1"),
            (1e-4, "0.0001"),
            (0.000_123, "0.000123"),
            (1e-5, "1e-05"),
            (-1.25e-7, "-1.25e-07"),
            (1e15, "1000000000000000.0"),
            (9_999_999_999_999_998.0, "9999999999999998.0"),
            (1e16, "1e+16"),
            (1.5e100, "1.5e+100"),
            (5e-324, "5e-324"),
            (181_700_226_436_775.0 + 0.125, "181700226436775.12"),
            (2_f64.powi(-24), "5.960464477539063e-08"),
            (f64::MAX, "1.7976931348623157e+308"),
        ] {
            assert_eq!(float_repr(float), written);
        }
    }

    #[test]
    fn members_are_sorted_by_code_point_and_texts_are_ascii() {
        let node =
            parse(r#"{"😀": [1, -0, {}], "\ufb33": [], "b": "é\u007f\"\\\/\n\u001f", "a": null}"#).unwrap();
        // U+FB33 before U+1F600: by code point, not by UTF-16 as in RFC 8785.
        let written =
            r#"{"a": null, "b": "\u00e9\u007f\"\\/\n\u001f", "\ufb33": [], "\ud83d\ude00": [1, 0, {}]}"#;
        assert_eq!(dumps(&node), written);
    }

    #[test]
    fn integers_keep_every_digit() {
        let text = "[12345678901234567890123456789012345678901234567890, -9007199254740993]";
        assert_eq!(dumps(&parse(text).unwrap()), text);
    }
}
