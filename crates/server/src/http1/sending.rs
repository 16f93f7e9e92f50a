//! A head and a body on their way out. What is small leaves in one write with the head.

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::HeaderMap;
use http::header::HeaderName;
use http_body::{Body, Frame};
use onlyonce_core::BoxError;
use tokio::io::AsyncWrite;

use super::fields::put_field;

/// Up to here content is copied behind what goes before it; more is written from where it is.
const COPY_MAX: usize = 8 * 1024;

/// So much is gathered before it is written.
const GATHER_MAX: usize = 16 * 1024;

/// Room that is kept for the next message.
const KEEP_MAX: usize = 32 * 1024;

thread_local! {
    /// Room that nothing on this thread is to be sent from: most messages leave as soon as they are made.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How the end of a body is said.
#[derive(Debug)]
pub(crate) enum Framing {
    /// So many bytes are still to come.
    Sized(u64),
    /// These fields may follow as trailers.
    Chunked(Vec<HeaderName>),
}

/// Why not all of it was sent.
#[derive(Debug)]
pub(crate) enum Unsent {
    Io(io::Error),
    /// The body broke off.
    Body(BoxError),
    /// The body is not as long as its head says.
    Length,
}

impl fmt::Display for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Body(error) => error.fmt(f),
            Self::Length => f.write_str("the body is not as long as was said"),
        }
    }
}

/// One message at a time.
pub(crate) struct Sending<B> {
    /// Not yet written, from `at` on: first this, then `content`, then `tail`.
    front: Vec<u8>,
    at: usize,
    content: Bytes,
    tail: &'static [u8],
    framing: Framing,
    /// `None` once all of it was written.
    body: Option<B>,
    /// All of it is here.
    is_whole: bool,
}

impl<B> Default for Sending<B> {
    fn default() -> Self {
        Self {
            front: Vec::new(),
            at: 0,
            content: Bytes::new(),
            tail: b"",
            framing: Framing::Sized(0),
            body: None,
            is_whole: true,
        }
    }
}

impl<B> Sending<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    /// Begins a message, whose head is written into the room that is handed out, up to its last field. `None` for
    /// a body that has no frame, of which the head says all there is to say.
    pub(crate) fn start(&mut self, body: B, framing: Option<Framing>, head: impl FnOnce(&mut Vec<u8>)) {
        if self.front.capacity() == 0 {
            // A thread that ends has none to spare.
            self.front = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        self.front.clear();
        self.at = 0;
        head(&mut self.front);
        match &framing {
            None => {}
            Some(Framing::Sized(length)) => put_length(*length, &mut self.front),
            Some(Framing::Chunked(_)) => self.front.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
        self.front.extend_from_slice(b"\r\n");
        self.is_whole = framing.is_none();
        self.framing = framing.unwrap_or(Framing::Sized(0));
        self.body = Some(body);
    }

    /// Whether there is nothing to send.
    pub(crate) const fn is_over(&self) -> bool {
        self.body.is_none()
    }

    /// Gives up what was not sent.
    pub(crate) fn abandon(&mut self) {
        *self = Self::default();
    }

    /// Sends until all has left.
    pub(crate) fn poll<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        while self.body.is_some() {
            let waits = self.gather(cx)?;
            if self.has_some() {
                ready!(self.poll_write(io, cx)).map_err(Unsent::Io)?;
            } else if waits {
                // What was written so far is not held back while the rest is waited for.
                return match Pin::new(&mut *io).poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(Unsent::Io(error))),
                    _ => Poll::Pending,
                };
            } else if self.is_whole {
                ready!(Pin::new(&mut *io).poll_flush(cx)).map_err(Unsent::Io)?;
                self.body = None;
                self.spare();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what the body has, until there is enough to write. `true` when it has to be waited for.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<bool, Unsent> {
        // INVARIANT: nothing is put before what is still to be written, which may be no more than a tail.
        while !self.is_whole
            && self.content.is_empty()
            && self.tail.is_empty()
            && self.front.len() < GATHER_MAX
        {
            let Some(body) = &mut self.body else { return Ok(false) };
            match Pin::new(body).poll_frame(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(Some(Ok(frame))) => self.frame(frame)?,
                Poll::Ready(Some(Err(error))) => return Err(Unsent::Body(error.into())),
                Poll::Ready(None) => self.end(None)?,
            }
        }
        Ok(false)
    }

    fn frame(&mut self, frame: Frame<Bytes>) -> Result<(), Unsent> {
        match frame.into_data() {
            Ok(content) if content.is_empty() => Ok(()),
            Ok(content) => self.content(content),
            Err(frame) => self.end(frame.into_trailers().ok().as_ref()),
        }
    }

    fn content(&mut self, content: Bytes) -> Result<(), Unsent> {
        let tail: &'static [u8] = match &mut self.framing {
            Framing::Sized(left) => {
                *left = left.checked_sub(content.len() as u64).ok_or(Unsent::Length)?;
                // Nothing can follow: it need not be asked for.
                self.is_whole = *left == 0;
                b""
            }
            Framing::Chunked(_) => {
                // A vector takes all there is.
                let _ = write!(self.front, "{:x}\r\n", content.len());
                b"\r\n"
            }
        };
        if content.len() <= COPY_MAX {
            self.front.extend_from_slice(&content);
            self.front.extend_from_slice(tail);
        } else {
            self.content = content;
            self.tail = tail;
        }
        Ok(())
    }

    fn end(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Unsent> {
        self.is_whole = true;
        match &self.framing {
            Framing::Sized(0) => Ok(()),
            Framing::Sized(_) => Err(Unsent::Length),
            Framing::Chunked(named) => {
                self.front.extend_from_slice(b"0\r\n");
                for (name, value) in trailers.into_iter().flatten().filter(|(name, _)| named.contains(name)) {
                    put_field(name, value, &mut self.front);
                }
                self.front.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

/// Digit by digit: what formats anything takes longer than all the rest of a head.
fn put_length(length: u64, head: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let (mut left, mut first) = (length, digits.len() - 1);
    digits[first] += (left % 10) as u8;
    while left > 9 {
        left /= 10;
        first -= 1;
        digits[first] += (left % 10) as u8;
    }
    head.extend_from_slice(b"content-length: ");
    head.extend_from_slice(&digits[first..]);
    head.extend_from_slice(b"\r\n");
}

impl<B> Sending<B> {
    /// Lets go of the room when all has left.
    fn spare(&mut self) {
        let room = std::mem::take(&mut self.front);
        if room.capacity() <= KEEP_MAX {
            let _ = SPARE.try_with(|spare| spare.set(room));
        }
    }

    const fn has_some(&self) -> bool {
        !self.front.is_empty() || !self.content.is_empty() || !self.tail.is_empty()
    }

    /// Writes what is here.
    fn poll_write<IO: AsyncWrite + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.has_some() {
            let front = &self.front[self.at..];
            let mut count = if self.content.is_empty() && self.tail.is_empty() {
                ready!(Pin::new(&mut *io).poll_write(cx, front))?
            } else {
                let slices = [IoSlice::new(front), IoSlice::new(&self.content), IoSlice::new(self.tail)];
                ready!(Pin::new(&mut *io).poll_write_vectored(cx, &slices))?
            };
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_front = count.min(front.len());
            self.at += of_front;
            count -= of_front;
            if self.at == self.front.len() {
                self.front.clear();
                self.at = 0;
            }
            let of_content = count.min(self.content.len());
            self.content.advance(of_content);
            count -= of_content;
            self.tail = &self.tail[count..];
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::StreamBody;

    use super::*;

    /// Takes so many bytes at a time, and has to be waited for in between.
    #[derive(Default)]
    struct Slow {
        takes: VecDeque<usize>,
        has_waited: bool,
        written: Vec<u8>,
    }

    impl AsyncWrite for Slow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.as_mut().poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            if !std::mem::replace(&mut self.has_waited, true) {
                return Poll::Pending;
            }
            self.has_waited = false;
            let all = slices.iter().flat_map(|slice| slice.iter().copied());
            let most = self.takes.pop_front().unwrap_or(usize::MAX);
            let before = self.written.len();
            self.written.extend(all.take(most));
            Poll::Ready(Ok(self.written.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn chunks_keep_their_order_wherever_a_write_ends() {
        let frames = || {
            let large = Bytes::from(vec![b'a'; COPY_MAX + 1]);
            [large.clone(), Bytes::from_static(b"small"), large.clone(), large]
                .map(|part| Ok::<_, io::Error>(Frame::data(part)))
        };
        let mut ends = Vec::new();
        let mut expected = b"head\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
        for frame in frames() {
            let content = frame.unwrap().into_data().unwrap();
            write!(expected, "{:x}\r\n", content.len()).unwrap();
            expected.extend_from_slice(&content);
            expected.extend_from_slice(b"\r\n");
            ends.push(expected.len());
        }
        expected.extend_from_slice(b"0\r\n\r\n");
        let mut cx = Context::from_waker(std::task::Waker::noop());
        for first in ends.iter().flat_map(|end| end - 9..end + 9).chain(1..64) {
            let mut io = Slow { takes: VecDeque::from([first, 1, 1]), ..Slow::default() };
            let mut sending = Sending::default();
            let body = StreamBody::new(futures_util::stream::iter(frames()));
            sending
                .start(body, Some(Framing::Chunked(Vec::new())), |head| head.extend_from_slice(b"head\r\n"));
            while sending.poll(&mut io, &mut cx).map(Result::unwrap).is_pending() {}
            assert!(io.written == expected, "a first write of {first} bytes");
        }
    }

    #[test]
    fn a_length_is_written_as_it_is() {
        for length in [0, 9, 10, 59, 1000, u64::MAX] {
            let mut head = Vec::new();
            put_length(length, &mut head);
            assert_eq!(String::from_utf8(head).unwrap(), format!("content-length: {length}\r\n"));
        }
    }
}
