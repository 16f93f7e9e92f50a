//! Reads what a command works on, from a file or standard input. Never more than a bound: an endless pipe is an error,
//! not a full memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use onlyonce::fingerprint::canonical::CANONICAL_BYTES_MAX;

use crate::failure::Failure;

/// The most that is read, in bytes. The core refuses more.
const INPUT_BYTES_MAX: usize = CANONICAL_BYTES_MAX;

/// Reads standard input to its end.
pub(crate) fn read_stdin() -> Result<Vec<u8>, Failure> {
    read_bounded(io::stdin().lock(), "standard input")
}

/// Reads a file to its end.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read_bounded(file, &name),
        Err(source) => Err(Failure::Unreadable { name, source }),
    }
}

/// Takes bytes for text, or says that they are none.
pub(crate) fn text(bytes: Vec<u8>, what: &str) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Refused(format!("{what}: byte {at} is not UTF-8").into())
    })
}

fn read_bounded(reader: impl Read, name: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than allowed tells "exactly full" from "too much".
    let read = reader.take(INPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|source| Failure::Unreadable { name: name.to_owned(), source })?;
    if bytes.len() > INPUT_BYTES_MAX {
        return Err(Failure::Refused(format!("{name} has more than {INPUT_BYTES_MAX} bytes").into()));
    }
    Ok(bytes)
}
