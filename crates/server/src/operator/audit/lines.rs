//! The lines of an audit file, read with a bound: one that is too long, or is no line of ours, is counted and passed over.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::Line;

/// The longest line: everything in one is bounded by less.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// The lines of a file, from some place on.
pub(super) struct Lines {
    input: BufReader<File>,
    line: Vec<u8>,
    damaged: u64,
    is_torn: bool,
}

impl Lines {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Self::of(File::open(path)?, 0)
    }

    /// Those from `at` on.
    pub(super) fn of(mut file: File, at: u64) -> io::Result<Self> {
        // A device or a pipe may never end.
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        file.seek(SeekFrom::Start(at))?;
        Ok(Self { input: BufReader::new(file), line: Vec::new(), damaged: 0, is_torn: false })
    }

    /// The next line that can be read.
    pub(super) fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.line.clear();
            let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            self.is_torn = self.line.last() != Some(&b'\n');
            if self.is_torn && read as u64 == LINE_BYTES_MAX {
                self.skip_line()?;
            }
            // One that lacks nothing but its end counts: its number must not be given out again.
            match serde_json::from_slice(&self.line) {
                Ok(line) => return Ok(Some(line)),
                _ if self.line.trim_ascii().is_empty() => {}
                _ => self.damaged += 1,
            }
        }
    }

    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                return Ok(());
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            self.input.consume(taken);
            if end.is_some() {
                self.is_torn = false;
                // What came before the end is no line of ours, whatever it begins with.
                self.line.clear();
                self.line.push(b'?');
                return Ok(());
            }
        }
    }

    /// Reads to the end, and tells how many lines cannot be read.
    pub(super) fn count(mut self) -> io::Result<u64> {
        while self.next()?.is_some() {}
        Ok(self.damaged)
    }

    /// How many lines could not be read so far.
    pub(super) const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Whether the last line has no end.
    pub(super) const fn is_torn(&self) -> bool {
        self.is_torn
    }
}
