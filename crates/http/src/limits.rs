//! Reading bodies, never without a bound: a request to its end or to its refusal, a response until it cannot be kept.

mod room;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use onlyonce_core::{BoxError, Clock};

use crate::body::Body;

pub(crate) use room::{Held, Room};

/// The most chunks that are kept as they came. A body in many small ones would take more for their heads than for their
/// bytes.
const CHUNKS_MAX: usize = 64;

/// What came of reading a body.
pub(crate) enum Read {
    /// All of it.
    Whole { bytes: Bytes, trailers: Option<HeaderMap> },
    /// It is larger than may be held, or does not end: what was read, and the rest.
    Unbounded { front: Vec<Bytes>, rest: Body },
    /// There is no room for more of it beside all others: what was read, and the rest.
    NoRoom { front: Vec<Bytes>, rest: Body },
    /// It broke off.
    Broken(BoxError),
}

/// How far reading came.
enum Filled {
    ToTheEnd,
    TooLarge,
    NoRoom,
}

/// What was read so far. One chunk, as most bodies are, is kept as it is.
#[derive(Default)]
struct Chunks {
    chunks: Vec<Bytes>,
    /// What came after the first chunks.
    joined: BytesMut,
    len: u64,
    trailers: Option<HeaderMap>,
}

/// What [`read`] and [`read_within`] say of a body that is all here, without waiting for anything. `Err` is one that is not.
pub(crate) fn read_now(body: Body, bytes_max: u64, held: Option<&mut Held>) -> Result<Read, Body> {
    let (bytes, trailers) = body.into_whole()?;
    let len = bytes.len() as u64;
    if len > bytes_max {
        return Ok(Read::Unbounded { front: Vec::new(), rest: Body::whole(bytes, trailers) });
    }
    if len > 0 && !held.is_none_or(|held| held.take(len)) {
        return Ok(Read::NoRoom { front: Vec::new(), rest: Body::whole(bytes, trailers) });
    }
    Ok(Read::Whole { bytes, trailers })
}

/// Reads `body` as long as it has no more than `bytes_max` bytes, and there is room for them.
pub(crate) async fn read(mut body: Body, bytes_max: u64, held: &mut Held) -> Read {
    let mut chunks = Chunks::default();
    if body.size_hint().lower() > bytes_max {
        return Read::Unbounded { front: Vec::new(), rest: body };
    }
    let filled = chunks.fill(&mut body, bytes_max, Some(held)).await;
    chunks.read(filled, body)
}

/// The same, and only for as long as `within`: what does not end by then is taken for endless.
pub(crate) async fn read_within(mut body: Body, bytes_max: u64, within: Duration, clock: &dyn Clock) -> Read {
    let mut chunks = Chunks::default();
    if body.size_hint().lower() > bytes_max {
        return Read::Unbounded { front: Vec::new(), rest: body };
    }
    let filled = tokio::select! {
        // Biased: a body that is all here costs no timer.
        biased;
        filled = chunks.fill(&mut body, bytes_max, None) => filled,
        () = async { clock.sleep(within).await } => Ok(Filled::TooLarge),
    };
    chunks.read(filled, body)
}

impl Chunks {
    /// Reads to the end, or until there is more than may be kept. Nothing that was read is lost when the future is
    /// dropped.
    async fn fill(
        &mut self,
        body: &mut Body,
        bytes_max: u64,
        mut held: Option<&mut Held>,
    ) -> Result<Filled, BoxError> {
        while let Some(frame) = body.frame().await {
            match frame?.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    let len = bytes.len() as u64;
                    self.push(bytes);
                    if self.len > bytes_max {
                        return Ok(Filled::TooLarge);
                    }
                    if !held.as_mut().is_none_or(|held| held.take(len)) {
                        return Ok(Filled::NoRoom);
                    }
                }
                Err(frame) => self.trailers = frame.into_trailers().ok(),
            }
        }
        Ok(Filled::ToTheEnd)
    }

    fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len() as u64;
        if self.chunks.len() < CHUNKS_MAX {
            self.chunks.push(bytes);
        } else {
            self.joined.extend_from_slice(&bytes);
        }
    }

    fn read(self, filled: Result<Filled, BoxError>, rest: Body) -> Read {
        match filled {
            Ok(Filled::ToTheEnd) => self.whole(),
            Ok(Filled::TooLarge) => Read::Unbounded { front: self.front(), rest },
            Ok(Filled::NoRoom) => Read::NoRoom { front: self.front(), rest },
            Err(error) => Read::Broken(error),
        }
    }

    fn front(self) -> Vec<Bytes> {
        let mut front = self.chunks;
        if !self.joined.is_empty() {
            front.push(self.joined.freeze());
        }
        front
    }

    fn whole(mut self) -> Read {
        let trailers = self.trailers.take();
        let mut front = self.front();
        let bytes = match front.len() {
            0 => Bytes::new(),
            1 => front.swap_remove(0),
            _ => {
                let len = front.iter().map(Bytes::len).sum();
                let mut joined = BytesMut::with_capacity(len);
                for chunk in &front {
                    joined.extend_from_slice(chunk);
                }
                joined.freeze()
            }
        };
        Read::Whole { bytes, trailers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_chunks(bytes: &[u8], size: usize) -> Body {
        let chunks = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        Body::prefixed(chunks, Body::empty())
    }

    #[tokio::test]
    async fn a_body_comes_out_as_it_went_in_however_it_was_cut() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for size in [1, 3, 15, 16, 500, 999, 1000] {
            let room = Room::new(1000);
            let mut held = room.place();
            let Read::Whole { bytes: read, .. } = read(in_chunks(&bytes, size), 1000, &mut held).await else {
                panic!("all of it fits");
            };
            assert_eq!(read, bytes, "in chunks of {size}");
            assert_eq!(room.held(), 1000);
            drop(held);
            assert_eq!(room.held(), 0);
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_can_still_be_passed_on_whole() {
        let bytes: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for (bytes_max, room_max) in [(999, 2000), (1000, 999), (2000, 70)] {
            let mut held = Room::new(room_max).place();
            let (front, rest) = match read(in_chunks(&bytes, 7), bytes_max, &mut held).await {
                Read::Unbounded { front, rest } if bytes_max < 1000 => (front, rest),
                Read::NoRoom { front, rest } if bytes_max >= 1000 => (front, rest),
                _ => panic!("{bytes_max} and {room_max} are too little"),
            };
            assert!(front.len() <= CHUNKS_MAX + 1, "{}", front.len());
            let all = Body::prefixed(front, rest).collect().await.unwrap().to_bytes();
            assert_eq!(all, bytes);
        }
    }

    #[tokio::test]
    async fn what_is_all_here_is_read_at_once_and_to_the_same_end() {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
        let named = |read: &Read| match read {
            Read::Whole { bytes, trailers } => ("whole", bytes.len(), trailers.is_some()),
            Read::Unbounded { .. } => ("unbounded", 0, false),
            Read::NoRoom { .. } => ("no room", 0, false),
            Read::Broken(_) => ("broken", 0, false),
        };
        for (len, bytes_max, room_max) in [(0, 0, 0), (5, 5, 5), (6, 5, 9), (6, 6, 5), (0, 5, 5)] {
            for trailers in [None, Some(trailers.clone())] {
                let body = || Body::whole(vec![b'x'; len].into(), trailers.clone());
                let (one, two) = (Room::new(room_max), Room::new(room_max));
                let (mut held, mut held_too) = (one.place(), two.place());
                let at_once = read_now(body(), bytes_max, Some(&mut held)).unwrap();
                let waited_for = read(body(), bytes_max, &mut held_too).await;
                assert_eq!(named(&at_once), named(&waited_for), "{len} of {bytes_max} and {room_max}");
                assert_eq!(one.held(), two.held(), "{len} of {bytes_max} and {room_max}");
            }
        }
        assert!(read_now(in_chunks(b"coming", 2), 9, None).is_err());
    }
}
