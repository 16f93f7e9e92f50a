//! Whom the relay hands events to, and what may come back.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use onlyonce_core::BoxError;

use crate::message::Message;

/// What publishing answers: one result for each event, in order.
pub type PublishFuture<'a> = Pin<Box<dyn Future<Output = Vec<Result<Published, PublishError>>> + Send + 'a>>;

/// Publishes events to a broker.
///
/// Returns when the broker has stored them, not before: what is answered Published is never sent again. An event may come
/// more than once, always under the same id.
pub trait Publisher: Send + Sync + 'static {
    /// Publishes events, which come in the order in which they are to go out.
    fn publish<'a>(&'a self, events: &'a [Outgoing]) -> PublishFuture<'a>;
}

/// An event on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The same at every try: also in the header `event-id`.
    pub id: String,
    /// Where to.
    pub topic: String,
    /// What it is kept in order by.
    pub order_key: Option<String>,
    /// Headers and body.
    pub message: Message,
    /// Grows with every try and with an operator's replay.
    pub generation: i64,
    /// Which try this is, 1 for the first.
    pub attempt: i32,
}

/// What a broker said to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    /// It has it now.
    Stored,
    /// It had it already: an earlier try got through. As good.
    Duplicate,
}

/// An event was not published.
#[derive(Debug)]
pub struct PublishError {
    is_refused: bool,
    source: BoxError,
}

impl PublishError {
    /// The broker is away, or did not answer: it may have it. It is sent again under the same id, for as long as it takes.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self { is_refused: false, source: source.into() }
    }

    /// The broker does not take this event: too large, no such topic. Parked after some tries.
    pub fn refused(source: impl Into<BoxError>) -> Self {
        Self { is_refused: true, source: source.into() }
    }

    /// Whether the broker does not take it.
    pub const fn is_refused(&self) -> bool {
        self.is_refused
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_refused {
            "the broker refused the event"
        } else {
            "the broker is unavailable"
        })
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
