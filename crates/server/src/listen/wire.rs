//! One client connection's bytes, before hyper sees them: strict heads, and every wait bounded.
//!
//! hyper waits for ever for a first byte and for a client that does not read, and is lenient about framing. This
//! wrapper holds a head back until all of it is there and clear; a head that is not makes hyper answer 400 and close.
//! Bodies and everything after an upgrade pass through untouched.

mod framing;
mod head;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::listen::connection::Connection;
use crate::timer::Timer;

pub(crate) use framing::{Framing, HeadLimits, Refusal};

/// What hyper is shown in place of a head that is refused: no method begins like this, so it answers 400 and closes.
const UNREADABLE: &[u8] = b"\0\r\n\r\n";

/// The most that is read and thrown away after our last byte, so that the client can read it before the connection
/// is gone.
pub(super) const LINGER_BYTES_MAX: usize = 256 * 1024;

/// How long that may take.
const LINGER_FOR: Duration = Duration::from_secs(2);

/// How long a client may take for each thing it has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// The first byte of a connection.
    pub(crate) first_byte: Duration,
    /// A head, from its first byte to its last.
    pub(crate) head: Duration,
    /// The next request on a connection.
    pub(crate) idle: Duration,
    /// Taking the next bytes of an answer.
    pub(crate) write: Duration,
}

/// A connection's bytes.
#[derive(Debug)]
pub(crate) struct Wire<IO> {
    io: IO,
    framing: Framing,
    connection: Arc<Connection>,
    patience: Patience,
    /// The beginning of a head that is not whole, or what may be passed on and found no room.
    held: Vec<u8>,
    /// How much of `held` may be passed on.
    ready: usize,
    refused: Refused,
    has_read: bool,
    reading: Timer,
    writing: Timer,
    lingering: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    No,
    /// hyper is still to be told.
    Untold(Refusal),
    Told,
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Wire<IO> {
    pub(crate) fn new(io: IO, limits: HeadLimits, patience: Patience, connection: Arc<Connection>) -> Self {
        let mut reading = Timer::default();
        reading.set(patience.first_byte);
        Self {
            io,
            framing: Framing::new(limits),
            connection,
            patience,
            held: Vec::new(),
            ready: 0,
            refused: Refused::No,
            has_read: false,
            reading,
            writing: Timer::default(),
            lingering: None,
        }
    }

    /// Takes back what was passed on last: it is passed on again, to somebody else.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.held.splice(..0, bytes.iter().copied());
        self.ready += bytes.len();
    }

    /// Passes on what is held and may be.
    fn pass_held(&mut self, buf: &mut ReadBuf<'_>) {
        let count = self.ready.min(buf.remaining());
        buf.put_slice(&self.held[..count]);
        self.held.drain(..count);
        self.ready -= count;
    }

    /// Judges what was just read into `buf` after `before`, and takes back what must not be seen yet.
    fn judge(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let had_partial = !self.held.is_empty();
        let verdict = if self.held.is_empty() {
            // The usual case: whole heads and bodies stay where they were read to.
            let verdict = self.framing.inspect(&buf.filled()[before..]);
            self.held.extend_from_slice(&buf.filled()[before + verdict.pass..]);
            buf.set_filled(before + verdict.pass);
            verdict
        } else {
            self.held.extend_from_slice(&buf.filled()[before..]);
            buf.set_filled(before);
            let verdict = self.framing.inspect(&self.held);
            self.ready = verdict.pass;
            verdict
        };
        if let Some(refusal) = verdict.refusal {
            self.held.truncate(self.ready);
            self.refused = Refused::Untold(refusal);
            self.connection.refused(refusal);
        }
        if self.held.len() == self.ready {
            self.reading.clear();
        } else if !had_partial || verdict.pass > 0 {
            // Set once for a head, whatever trickles in after its first byte.
            self.reading.set(self.patience.head);
        }
    }

    /// Once another protocol is agreed on, everything may pass, also what came before and might have become a head.
    fn pass_through_if_upgraded(&mut self) {
        if self.connection.is_upgraded() && !self.framing.is_through() {
            self.framing.pass_through();
            self.ready = self.held.len();
            self.reading.clear();
        }
    }

    /// Whether the client has been silent for too long.
    fn is_overdue(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.has_read || self.held.len() > self.ready {
            return self.reading.is_over(cx);
        }
        if !(self.framing.is_between() || self.framing.is_through()) {
            // Within a body: whoever reads the body has the patience for it.
            return false;
        }
        // Silent because it waits for us is not idle: idle time begins when the last answer has ended.
        if !self.reading.is_set() {
            self.reading.set(self.patience.idle);
        }
        while self.reading.is_over(cx) {
            match self.connection.idle_left(self.patience.idle) {
                Duration::ZERO => return true,
                left => self.reading.set(left),
            }
        }
        false
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for Wire<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.pass_through_if_upgraded();
        loop {
            if this.ready > 0 {
                this.pass_held(buf);
                return Poll::Ready(Ok(()));
            }
            match this.refused {
                Refused::No => {}
                Refused::Told => return Poll::Ready(Ok(())),
                Refused::Untold(Refusal::Chunk) => {
                    this.refused = Refused::Told;
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "malformed chunk")));
                }
                Refused::Untold(_) => {
                    this.refused = Refused::Told;
                    buf.put_slice(&UNREADABLE[..UNREADABLE.len().min(buf.remaining())]);
                    return Poll::Ready(Ok(()));
                }
            }
            let before = buf.filled().len();
            match Pin::new(&mut this.io).poll_read(cx, buf) {
                Poll::Pending if this.is_overdue(cx) => {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if buf.filled().len() == before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => {
                    this.has_read = true;
                    this.judge(buf, before);
                    if buf.filled().len() > before {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> Wire<IO> {
    /// Bounds how long a write may wait.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.clear();
            return written;
        }
        if !self.writing.is_set() {
            self.writing.set(self.patience.write);
        }
        if self.writing.is_over(cx) {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Wire<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        self.bounded(cx, flushed)
    }

    /// Ends our side, then reads what the client still sends: closing at once would reset the connection, and the
    /// reset can overtake our answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.lingering.is_none() {
            let closed = Pin::new(&mut this.io).poll_shutdown(cx);
            ready!(this.bounded(cx, closed))?;
            if this.connection.is_upgraded() {
                // Half of another protocol's connection: somebody still reads what comes.
                return Poll::Ready(Ok(()));
            }
            this.lingering = Some(LINGER_BYTES_MAX);
            this.reading.set(LINGER_FOR);
        }
        let mut scratch = [0; 4096];
        while let Some(left @ 1..) = this.lingering {
            let mut buf = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.io).poll_read(cx, &mut buf) {
                Poll::Pending if this.reading.is_over(cx) => break,
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) if buf.filled().is_empty() => break,
                Poll::Ready(Ok(())) => this.lingering = Some(left.saturating_sub(buf.filled().len())),
            }
        }
        this.lingering = Some(0);
        Poll::Ready(Ok(()))
    }
}
