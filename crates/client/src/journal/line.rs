//! The bytes of a file journal: one line for each change, `checksum json`. Nothing else knows them.

use onlyonce_core::{Key, Timestamp};
use serde::{Deserialize, Serialize};

use super::table::Entry;

/// The first line of every file: what it is, and the version of what follows.
pub(super) const HEADER: &str = "onlyonce client journal 1\n";

/// A change of the journal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Begun(String, Entry),
    Over(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    operation: std::borrow::Cow<'a, str>,
    /// Absent when the operation is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ms: Option<u64>,
}

/// The line, with its end.
pub(super) fn write(operation: &str, entry: Option<&Entry>) -> Vec<u8> {
    let written = Written {
        operation: operation.into(),
        key: entry.map(|entry| entry.key.as_str().into()),
        at_ms: entry.map(|entry| entry.at.as_millis()),
    };
    let json = serde_json::to_string(&written).expect("text and a number can be written as JSON");
    format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes())).into_bytes()
}

/// Reads one line, without its end; `None` if it is damaged.
pub(super) fn read(line: &[u8]) -> Option<Line> {
    let (checksum, json) = (line.get(..8)?, line.get(9..)?);
    let checksum = u32::from_str_radix(std::str::from_utf8(checksum).ok()?, 16).ok()?;
    if line[8] != b' ' || checksum != crc32c::crc32c(json) {
        return None;
    }
    let Written { operation, key, at_ms } = serde_json::from_slice(json).ok()?;
    match (key, at_ms) {
        (Some(key), Some(at)) => {
            let entry = Entry { key: Key::new(&key).ok()?, at: Timestamp::from_millis(at) };
            Some(Line::Begun(operation.into_owned(), entry))
        }
        (None, None) => Some(Line::Over(operation.into_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_and_any_changed_byte_is_noticed() {
        let entry = Entry { key: Key::new("k \"1\"").unwrap(), at: Timestamp::from_millis(7) };
        for (written, read_back) in [
            (write("order\n7", Some(&entry)), Line::Begun("order\n7".into(), entry.clone())),
            (write("ключ", None), Line::Over("ключ".into())),
        ] {
            let (end, line) = written.split_last().unwrap();
            assert_eq!(*end, b'\n');
            assert!(!line.contains(&b'\n') && !line.contains(&0));
            assert_eq!(read(line), Some(read_back));
            for at in 0..line.len() {
                let mut damaged = line.to_vec();
                damaged[at] ^= 1;
                assert_eq!(read(&damaged), None, "byte {at}");
                assert_eq!(read(&line[..at]), None);
            }
        }
    }
}
