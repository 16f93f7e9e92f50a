//! Reading bodies, never without a bound: a request to its end or to its refusal, a response until it cannot be kept.

use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use onlyonce_core::{BoxError, Clock};

/// What came of reading a body.
pub(crate) enum Read<B> {
    /// All of it.
    Whole { bytes: Bytes, trailers: Option<HeaderMap> },
    /// It is larger than may be held, or does not end: what was read, and the rest.
    Unbounded { front: Vec<Bytes>, rest: B },
    /// It broke off.
    Broken(BoxError),
}

/// What was read so far. One chunk, as most bodies are, is kept as it is.
#[derive(Default)]
struct Chunks {
    chunks: Vec<Bytes>,
    len: u64,
    trailers: Option<HeaderMap>,
}

/// Reads `body` as long as it has no more than `bytes_max` bytes.
pub(crate) async fn read<B>(mut body: B, bytes_max: u64) -> Read<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut chunks = Chunks::default();
    if body.size_hint().lower() > bytes_max {
        return Read::Unbounded { front: Vec::new(), rest: body };
    }
    match chunks.fill(&mut body, bytes_max).await {
        Ok(true) => chunks.whole(),
        Ok(false) => Read::Unbounded { front: chunks.chunks, rest: body },
        Err(error) => Read::Broken(error),
    }
}

/// The same, and only for as long as `within`: what does not end by then is taken for endless.
pub(crate) async fn read_within<B>(
    mut body: B,
    bytes_max: u64,
    within: Duration,
    clock: &dyn Clock,
) -> Read<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let mut chunks = Chunks::default();
    if body.size_hint().lower() > bytes_max {
        return Read::Unbounded { front: Vec::new(), rest: body };
    }
    let filled = tokio::select! {
        // Biased: a body that is all here costs no timer.
        biased;
        filled = chunks.fill(&mut body, bytes_max) => filled,
        () = async { clock.sleep(within).await } => Ok(false),
    };
    match filled {
        Ok(true) => chunks.whole(),
        Ok(false) => Read::Unbounded { front: chunks.chunks, rest: body },
        Err(error) => Read::Broken(error),
    }
}

impl Chunks {
    /// Reads to the end (`true`), or until there is more than `bytes_max` (`false`). Nothing that was read is lost when
    /// the future is dropped.
    async fn fill<B>(&mut self, body: &mut B, bytes_max: u64) -> Result<bool, BoxError>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        while let Some(frame) = Pin::new(&mut *body).frame().await {
            match frame.map_err(Into::into)?.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    self.len += bytes.len() as u64;
                    self.chunks.push(bytes);
                    if self.len > bytes_max {
                        return Ok(false);
                    }
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(true)
    }

    fn whole<B>(mut self) -> Read<B> {
        let bytes = match self.chunks.len() {
            0 => Bytes::new(),
            1 => self.chunks.swap_remove(0),
            _ => {
                let len = self.chunks.iter().map(Bytes::len).sum();
                let mut joined = BytesMut::with_capacity(len);
                self.chunks.iter().for_each(|chunk| joined.extend_from_slice(chunk));
                joined.freeze()
            }
        };
        Read::Whole { bytes, trailers: self.trailers }
    }
}
