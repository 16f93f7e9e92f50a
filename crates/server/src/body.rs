//! Bodies in transit: none is taken for whole that is not, none may pause or last for ever, and a connection knows until
//! when its answer is on its way.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use onlyonce_core::BoxError;

use crate::listen::InHand;
use crate::timer::Timer;

/// A body that hyper reads, to an end of its own.
///
/// hyper takes a stream of HTTP/2 that is reset with `NO_ERROR` for one that has ended, as servers reset so what they need not
/// read (RFC 9113 §8.1). Proxies also reset so what has lost its other side, and half a body must not be taken for a whole one.
#[derive(Debug)]
pub(crate) struct Entire {
    body: Incoming,
    /// Whether it is one stream of a connection, which says itself where it ends. Over HTTP/1 hyper sees to that.
    is_stream: bool,
}

impl Entire {
    pub(crate) fn of(body: Incoming, version: Version) -> Self {
        Self { body, is_stream: version == Version::HTTP_2 }
    }
}

impl Body for Entire {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() && self.is_stream && !self.body.is_end_stream() {
            return Poll::Ready(Some(Err(BrokenOff.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The other side took back its stream before the body had ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenOff;

impl fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream was reset before the body had ended")
    }
}

impl std::error::Error for BrokenOff {}

/// How long a body may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    /// From one part to the next.
    pub(crate) pause_max: Duration,
    /// In all; `None` for streams, which end when they end.
    pub(crate) within: Option<Duration>,
}

/// A body that must keep its pace.
#[derive(Debug)]
pub(crate) struct Paced<B> {
    body: B,
    pause_max: Duration,
    pause: Timer,
    whole: Timer,
}

impl<B> Paced<B> {
    pub(crate) fn new(body: B, pace: Pace) -> Self {
        let mut whole = Timer::default();
        if let Some(within) = pace.within {
            whole.set(within);
        }
        Self { body, pause_max: pace.pause_max, pause: Timer::default(), whole }
    }
}

impl<B> Body for Paced<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.pause.clear();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if !this.pause.is_set() {
            this.pause.set(this.pause_max);
        }
        if this.pause.is_over(cx) || this.whole.is_over(cx) {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The other side took too long with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body took too long")
    }
}

impl std::error::Error for TooSlow {}

/// An answer's body; while it lives the connection is not idle.
#[derive(Debug)]
pub(crate) struct OnItsWay<B> {
    body: B,
    _in_hand: InHand,
}

impl<B> OnItsWay<B> {
    pub(crate) const fn new(body: B, in_hand: InHand) -> Self {
        Self { body, _in_hand: in_hand }
    }
}

impl<B: Body + Unpin> Body for OnItsWay<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
