//! What comes in on a connection, and the body in it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes, BytesMut};
use http::HeaderMap;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::chunk::{Chunks, Step};
use super::{FIELDS_MAX, Malformed, fields};

/// How much is read at once at first, and at most.
const ROOM: usize = 4 * 1024;
const ROOM_MAX: usize = 256 * 1024;

/// Up to here, bytes are copied out of the room that they were read into, which then serves again.
const COPY_MAX: usize = 4 * 1024;

thread_local! {
    /// Room that nobody on this thread has bytes in. A connection needs some only from when it has read until that is used:
    /// one room for all of them is always at hand for the processor, and those who wait hold none.
    static SPARE: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Bytes that were read and not yet used.
#[derive(Debug)]
pub(crate) struct Incoming {
    bytes: BytesMut,
    room: usize,
}

impl Default for Incoming {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), room: ROOM }
    }
}

impl Incoming {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads some more. None at the end.
    pub(crate) fn poll_fill<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.bytes.capacity() == 0 {
            // A thread that ends has none to spare.
            self.bytes = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.bytes.reserve(self.room);
        let filled = poll_read_buf(Pin::new(io), cx, &mut self.bytes);
        match &filled {
            Poll::Ready(Ok(count)) if *count >= self.room => self.room = (self.room * 2).min(ROOM_MAX),
            Poll::Ready(Ok(1..)) => {}
            _ => self.spare(),
        }
        filled
    }

    /// Lets go of room that has nothing in it. Who reads much at once keeps the larger room that it has made.
    fn spare(&mut self) {
        if self.bytes.is_empty() && self.bytes.capacity() > 0 && self.room == ROOM {
            let room = std::mem::take(&mut self.bytes);
            let _ = SPARE.try_with(|spare| spare.set(room));
        }
    }

    /// Takes `count` bytes from the front.
    pub(crate) fn take(&mut self, count: usize) -> Bytes {
        if count == 0 {
            return Bytes::new();
        }
        if count > COPY_MAX {
            return self.bytes.split_to(count).freeze();
        }
        let taken = Bytes::copy_from_slice(&self.bytes[..count]);
        self.skip(count);
        taken
    }

    /// The same where nobody wants them.
    pub(crate) fn skip(&mut self, count: usize) {
        self.bytes.advance(count);
        self.spare();
    }
}

/// What is still to come of an answer's body.
#[derive(Debug)]
pub(crate) enum Remaining {
    Sized(u64),
    Chunked(Box<Chunks>),
    /// All that comes.
    UntilClose,
}

/// What was found of a body.
#[derive(Debug)]
pub(crate) enum Decoded {
    Content(Bytes),
    /// There is no more of it.
    End(Option<HeaderMap>),
    /// More must be read.
    Starved,
}

impl Remaining {
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self, Self::Sized(0))
    }

    /// Takes the next part of the body.
    pub(crate) fn decode(&mut self, incoming: &mut Incoming) -> Result<Decoded, Malformed> {
        let here = incoming.bytes.len();
        match self {
            Self::Sized(0) => Ok(Decoded::End(None)),
            _ if here == 0 => Ok(Decoded::Starved),
            Self::Sized(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(here);
                *left -= count as u64;
                Ok(Decoded::Content(incoming.take(count)))
            }
            Self::UntilClose => Ok(Decoded::Content(incoming.take(here))),
            Self::Chunked(chunks) => match chunks.step(&incoming.bytes)? {
                Step::Content(place) => {
                    incoming.skip(place.start);
                    Ok(Decoded::Content(incoming.take(place.len())))
                }
                Step::Starved => {
                    incoming.skip(here);
                    Ok(Decoded::Starved)
                }
                Step::End(count) => {
                    incoming.skip(count);
                    let trailers = trailers(chunks.trailers())?;
                    *self = Self::Sized(0);
                    Ok(Decoded::End(trailers))
                }
            },
        }
    }
}

fn trailers(lines: &[u8]) -> Result<Option<HeaderMap>, Malformed> {
    if lines == b"\r\n" {
        return Ok(None);
    }
    let mut parsed = [httparse::EMPTY_HEADER; FIELDS_MAX];
    match httparse::parse_headers(lines, &mut parsed) {
        Ok(httparse::Status::Complete((_, parsed))) => {
            fields(parsed, lines, &Bytes::copy_from_slice(lines), 0).map(Some)
        }
        _ => Err(Malformed::Chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Content, trailers, and what is left.
    type All = (Vec<u8>, Option<HeaderMap>, Vec<u8>);

    /// What comes out when the bytes come in pieces of `size`.
    fn decoded(bytes: &[u8], size: usize, mut remaining: Remaining) -> Result<All, Malformed> {
        let (mut incoming, mut content) = (Incoming::default(), Vec::new());
        for piece in bytes.chunks(size) {
            incoming.bytes.extend_from_slice(piece);
            loop {
                match remaining.decode(&mut incoming)? {
                    Decoded::Content(part) => content.extend_from_slice(&part),
                    Decoded::Starved => break,
                    Decoded::End(trailers) => return Ok((content, trailers, incoming.bytes.to_vec())),
                }
            }
        }
        Err(Malformed::Head)
    }

    /// Reads once, from what is there.
    fn filled(incoming: &mut Incoming, mut from: &[u8]) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(matches!(incoming.poll_fill(&mut from, &mut cx), Poll::Ready(Ok(_))));
    }

    #[test]
    fn who_has_nothing_holds_no_room_and_the_next_one_gets_it() {
        let [mut first, mut second, mut third] = [(); 3].map(|()| Incoming::default());
        filled(&mut first, b"first");
        let room = first.bytes.as_ptr();
        filled(&mut second, b"second");
        assert_eq!(&*first.take(5), b"first");
        assert_eq!(first.bytes.capacity(), 0);
        filled(&mut third, b"third");
        assert_eq!(third.bytes.as_ptr(), room);
        assert_eq!((second.bytes(), third.bytes()), (&b"second"[..], &b"third"[..]));
        // What was put where something else stood is all that is seen.
        third.skip(3);
        assert_eq!(third.bytes(), b"rd");
        filled(&mut third, b" and more");
        assert_eq!(third.bytes(), b"rd and more");
    }

    #[test]
    fn what_was_taken_stays_as_it_was_when_the_room_is_used_again() {
        let (mut incoming, large) = (Incoming::default(), vec![b'a'; ROOM]);
        filled(&mut incoming, &large);
        filled(&mut incoming, &large);
        assert!(incoming.room > ROOM, "who reads much keeps its room");
        incoming.room = ROOM;
        // The one is copied, the other is not.
        let taken = [incoming.take(10), incoming.take(2 * ROOM - 10)];
        filled(&mut incoming, &[b'b'; 100]);
        filled(&mut Incoming::default(), &[b'c'; 100]);
        assert!(taken.iter().all(|taken| taken.iter().all(|byte| *byte == b'a')));
        assert_eq!(incoming.bytes(), [b'b'; 100]);
    }

    fn chunked() -> Remaining {
        Remaining::Chunked(Box::new(Chunks::of_answer(512)))
    }

    #[test]
    fn a_chunked_body_is_the_same_however_it_is_cut() {
        let bytes = b"5;x=y\r\nhello\r\n5  \r\n01234\r\n00000000000000000005 ;x\r\n56789\r\n0\r\nX-Sum: 7\r\nX-Sum: 8\r\n\r\n";
        for size in 1..=bytes.len() {
            let (content, trailers, left) = decoded(bytes, size, chunked()).unwrap();
            assert_eq!((&content[..], &left[..]), (&b"hello0123456789"[..], &b""[..]), "pieces of {size}");
            let trailers = trailers.unwrap();
            let sums: Vec<_> = trailers.get_all("x-sum").iter().collect();
            assert_eq!(sums, ["7", "8"], "pieces of {size}");
        }
        let (content, trailers, left) = decoded(b"0\r\n\r\nHTTP", 64, chunked()).unwrap();
        assert_eq!((&content[..], trailers, &left[..]), (&b""[..], None, &b"HTTP"[..]));
    }

    #[test]
    fn what_is_no_chunk_is_an_error() {
        for bad in [
            "5\nhello\r\n0\r\n\r\n",
            "5\r\nhello0\r\n\r\n",
            "x\r\n",
            "0\r\nnocolon\r\n\r\n",
            "-1\r\n",
            "5 x\r\n",
            " 5\r\n",
        ] {
            assert_eq!(decoded(bad.as_bytes(), 64, chunked()).unwrap_err(), Malformed::Chunk, "{bad:?}");
        }
    }

    #[test]
    fn a_body_of_known_length_ends_there() {
        let (content, _, left) = decoded(b"helloHTTP", 64, Remaining::Sized(5)).unwrap();
        assert_eq!((&content[..], &left[..]), (&b"hello"[..], &b"HTTP"[..]));
    }
}
