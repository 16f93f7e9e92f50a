//! The body of a request as it comes in. Over HTTP/2 the rest of one that nobody wants is still taken, within a bound.
//!
//! Once an answer has gone out and nobody holds the body, h2 resets a stream whose client still sends. RFC 9113 §8.1 allows
//! that, but clients fail at what they send and never look at the answer: curl then knows of no status. Over HTTP/1 the same
//! is seen to by hyper and by the wire, which reads on before it closes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::COOKIE;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use onlyonce_core::BoxError;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::wire::LINGER_BYTES_MAX;
use crate::body::Entire;
use crate::joined::join_lines;
use crate::upstream::hop::strip_trailers;

/// How long the rest of a body may take: it holds no more than a stream of a connection that is there anyway.
const REST_WITHIN: Duration = Duration::from_secs(30);

/// What a client sends with a request.
#[derive(Debug)]
pub(crate) struct Received(Kind);

#[derive(Debug)]
enum Kind {
    /// All of it.
    Whole(Bytes),
    /// It is still coming.
    Coming {
        /// `None` only once it is dropped.
        body: Option<Entire>,
        /// Set where other requests share the connection: told when those are to end, and nobody should wait for the
        /// rest.
        ending: Option<CancellationToken>,
    },
}

impl Received {
    /// A body that is here already.
    pub(super) const fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }

    /// All of it where it is here already, which takes no time.
    pub(crate) fn into_whole(mut self) -> Result<Bytes, Self> {
        match &mut self.0 {
            Kind::Whole(bytes) => Ok(std::mem::take(bytes)),
            Kind::Coming { .. } => Err(self),
        }
    }

    /// `request`, with the rest of its body seen to, and as everybody behind expects it.
    pub(super) fn with(mut request: Request<Incoming>, ending: &CancellationToken) -> Request<Self> {
        let version = request.version();
        let ending = (version == Version::HTTP_2).then(|| ending.clone());
        if version == Version::HTTP_2 {
            // A client may send its cookies one by one, and they are to be one field again (RFC 9113 §8.2.3).
            join_lines(request.headers_mut(), COOKIE, b"; ");
        }
        request.map(|body| Self(Kind::Coming { body: Some(Entire::of(body, version)), ending }))
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Coming { body: Some(body), .. } => {
                let mut frame = ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(frame)) = &mut frame
                    && let Some(trailers) = frame.trailers_mut()
                {
                    strip_trailers(trailers);
                }
                Poll::Ready(frame)
            }
            Kind::Coming { body: None, .. } => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Coming { body, .. } => body.as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Coming { body, .. } => body.as_ref().map_or_else(SizeHint::default, Body::size_hint),
        }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let Kind::Coming { body, ending } = &mut self.0 else { return };
        if body.as_ref().is_none_or(Body::is_end_stream) {
            return;
        }
        if let (Some(body), Some(ending), Ok(runtime)) = (body.take(), ending.take(), Handle::try_current()) {
            runtime.spawn(ending.run_until_cancelled_owned(timeout(REST_WITHIN, take_rest(body))));
        }
    }
}

/// Takes what still comes, and keeps nothing of it. Beyond the bound the stream is reset after all.
async fn take_rest(mut body: Entire) {
    let mut left = LINGER_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if left == 0 {
            return;
        }
    }
}
