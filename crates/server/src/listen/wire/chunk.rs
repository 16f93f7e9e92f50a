//! A chunked body, byte by byte where it matters: where it ends, and that no line end in it is ambiguous. **Pure.**

use super::framing::Refusal;

/// A chunked body that is being followed.
#[derive(Debug)]
pub(super) struct Chunks {
    state: State,
    /// How many bytes of sizes' extensions and of trailers may still come.
    spare: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A size, of which so many digits were read.
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Content {
        left: u64,
    },
    ContentCr,
    ContentLf,
    /// The start of a line after the last chunk.
    Trailer,
    TrailerLine,
    TrailerLf,
    LastLf,
}

const SIZE: State = State::Size { size: 0, digits: 0 };

impl Chunks {
    /// `spare_max` bounds what is neither size nor content.
    pub(super) fn new(spare_max: usize) -> Self {
        Self { state: SIZE, spare: spare_max }
    }

    /// Follows `bytes`: how many of them belong to this body, and whether it ends there.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Refusal> {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if let State::Content { left } = self.state {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                at += taken;
                let left = left - taken as u64;
                self.state = if left == 0 { State::ContentCr } else { State::Content { left } };
                continue;
            }
            let was_last = self.state == State::LastLf;
            self.state = self.next(*byte)?;
            at += 1;
            if was_last {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    fn next(&mut self, byte: u8) -> Result<State, Refusal> {
        Ok(match (self.state, byte) {
            (State::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 15 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                State::Size { size: size * 16 + digit, digits: digits + 1 }
            }
            (State::Size { size, digits: 1.. } | State::Extension { size }, b'\r') => State::SizeLf { size },
            (State::Size { size, digits: 1.. }, b';') => State::Extension { size },
            (State::Extension { size }, b'\t' | b' '..=b'~' | 0x80..) => {
                self.spend()?;
                State::Extension { size }
            }
            (State::SizeLf { size: 0 } | State::TrailerLf, b'\n') => State::Trailer,
            (State::SizeLf { size }, b'\n') => State::Content { left: size },
            (State::ContentCr, b'\r') => State::ContentLf,
            (State::ContentLf | State::LastLf, b'\n') => SIZE,
            (State::Trailer, b'\r') => State::LastLf,
            // A line that begins with a blank is folded.
            (State::Trailer, b'!'..=b'~') | (State::TrailerLine, b'\t' | b' '..=b'~' | 0x80..) => {
                self.spend()?;
                State::TrailerLine
            }
            (State::TrailerLine, b'\r') => State::TrailerLf,
            _ => return Err(Refusal::Chunk),
        })
    }

    fn spend(&mut self) -> Result<(), Refusal> {
        self.spare = self.spare.checked_sub(1).ok_or(Refusal::Chunk)?;
        Ok(())
    }
}
