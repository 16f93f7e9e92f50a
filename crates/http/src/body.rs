//! The one body type of this crate: bytes that are all here, or a stream that passes through.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use onlyonce_core::BoxError;

/// What the layer hands to the inner service, and what it answers with.
pub struct Body(Kind);

enum Kind {
    /// All of it.
    Whole { bytes: Bytes, trailers: Option<Box<HeaderMap>> },
    /// What was read before it was clear that the rest will not be kept, and the rest.
    Stream { front: std::vec::IntoIter<Bytes>, rest: UnsyncBoxBody<Bytes, BoxError> },
}

impl Body {
    /// No bytes.
    pub const fn empty() -> Self {
        Self(Kind::Whole { bytes: Bytes::new(), trailers: None })
    }

    /// A stream that passes through; what is a `Body` already stays as it is.
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        if let Some(already) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>() {
            return already.take().unwrap_or_default();
        }
        body.map_or_else(Self::empty, |body| Self::prefixed(Vec::new(), body))
    }

    pub(crate) fn whole(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        Self(Kind::Whole { bytes, trailers: trailers.map(Box::new) })
    }

    /// All of it where it is here already, which takes no time.
    pub(crate) fn into_whole(self) -> Result<(Bytes, Option<HeaderMap>), Self> {
        match self.0 {
            Kind::Whole { bytes, trailers } => Ok((bytes, trailers.map(|trailers| *trailers))),
            stream @ Kind::Stream { .. } => Err(Self(stream)),
        }
    }

    pub(crate) fn prefixed<B>(front: Vec<Bytes>, rest: B) -> Self
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self(Kind::Stream { front: front.into_iter(), rest: rest.map_err(Into::into).boxed_unsync() })
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self::whole(bytes.into(), None)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies hold card numbers and addresses: their length is shown, never their bytes.
        match &self.0 {
            Kind::Whole { bytes, .. } => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Stream { .. } => f.write_str("Body(stream)"),
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole { bytes, trailers } => Poll::Ready(if bytes.is_empty() {
                trailers.take().map(|trailers| Ok(Frame::trailers(*trailers)))
            } else {
                Some(Ok(Frame::data(std::mem::take(bytes))))
            }),
            Kind::Stream { front, rest } => match front.next() {
                Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
                None => Pin::new(rest).poll_frame(cx),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole { bytes, trailers } => bytes.is_empty() && trailers.is_none(),
            Kind::Stream { front, rest } => front.len() == 0 && rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Kind::Stream { front, rest } => {
                let read: u64 = front.as_slice().iter().map(|bytes| bytes.len() as u64).sum();
                let rest = rest.size_hint();
                let mut hint = SizeHint::new();
                hint.set_lower(rest.lower().saturating_add(read));
                if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
                    hint.set_upper(upper);
                }
                hint
            }
        }
    }
}
