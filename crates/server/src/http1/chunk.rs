//! A chunked body, byte by byte where it matters: where it ends, and that no line end in it is ambiguous. **Pure.**

use std::ops::Range;

use super::Malformed;

/// A chunked body that is being followed.
#[derive(Debug)]
pub(crate) struct Chunks {
    state: State,
    /// How many bytes of sizes' extensions and of trailers may still come.
    spare: usize,
    /// The trailers so far, where somebody wants them: in an answer. Servers are not ours to be strict with: there,
    /// blanks may follow a size, as some pad it.
    trailers: Option<Vec<u8>>,
}

/// What bytes are, from their front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is content, in this place; what stands before it is framing.
    Content(Range<usize>),
    /// All of them are framing, and more must come.
    Starved,
    /// The body ends after so many.
    End(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A size, of which so many digits were read.
    Size {
        size: u64,
        digits: u8,
    },
    /// Blanks after a size, in an answer.
    Padding {
        size: u64,
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
    /// Of a request. `spare_max` bounds what is neither size nor content.
    pub(crate) fn of_request(spare_max: usize) -> Self {
        Self { state: SIZE, spare: spare_max, trailers: None }
    }

    /// Of an answer, whose trailers are kept.
    pub(crate) fn of_answer(spare_max: usize) -> Self {
        Self { trailers: Some(Vec::new()), ..Self::of_request(spare_max) }
    }

    /// The lines after the last chunk, with the empty one.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.trailers.as_deref().unwrap_or_default()
    }

    /// Follows `bytes`: how many of them belong to this body, and whether it ends there.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let mut at = 0;
        loop {
            match self.step(&bytes[at..])? {
                Step::Content(place) => at += place.end,
                Step::Starved => return Ok((bytes.len(), false)),
                Step::End(taken) => return Ok((at + taken, true)),
            }
        }
    }

    /// Follows `bytes` up to the end of the next content in them.
    pub(crate) fn step(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        for (at, byte) in bytes.iter().enumerate() {
            if let State::Content { left } = self.state {
                let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
                let left = left - taken as u64;
                self.state = if left == 0 { State::ContentCr } else { State::Content { left } };
                return Ok(Step::Content(at..at + taken));
            }
            let was_last = self.state == State::LastLf;
            self.state = self.next(*byte)?;
            if was_last {
                return Ok(Step::End(at + 1));
            }
        }
        Ok(Step::Starved)
    }

    fn next(&mut self, byte: u8) -> Result<State, Malformed> {
        if let (State::Trailer | State::TrailerLine | State::TrailerLf | State::LastLf, Some(trailers)) =
            (self.state, &mut self.trailers)
        {
            trailers.push(byte);
        }
        let is_answer = self.trailers.is_some();
        Ok(match (self.state, byte) {
            // Some servers write all sixteen digits.
            (State::Size { size: 0, digits: 1.. }, b'0') if is_answer => self.state,
            (State::Size { size, digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 15 => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                State::Size { size: size * 16 + digit, digits: digits + 1 }
            }
            (
                State::Size { size, digits: 1.. } | State::Padding { size } | State::Extension { size },
                b'\r',
            ) => State::SizeLf { size },
            (State::Size { size, digits: 1.. } | State::Padding { size }, b';') => State::Extension { size },
            (State::Padding { size }, b' ' | b'\t') => State::Padding { size },
            (State::Size { size, digits: 1.. }, b' ' | b'\t') if is_answer => State::Padding { size },
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
            _ => return Err(Malformed::Chunk),
        })
    }

    fn spend(&mut self) -> Result<(), Malformed> {
        self.spare = self.spare.checked_sub(1).ok_or(Malformed::Chunk)?;
        Ok(())
    }
}
