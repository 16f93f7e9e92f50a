//! What a broker delivers, without the broker: headers, a body, and where it lies. Values only.

use std::fmt;

use bytes::Bytes;
use onlyonce_core::Timestamp;

/// One message, the same at every delivery.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Message {
    /// What the producer wrote beside the body. Properties that a broker keeps apart (AMQP's `message-id`,
    /// `content-type`) are here under their own names, in lower case.
    pub headers: Headers,
    /// What it says.
    pub body: Bytes,
    /// Where the broker keeps it, as `topic:partition:offset`, `stream:sequence` or the like: the same at every delivery
    /// and no other message's, for ever. `None` where the broker has no such thing (a `RabbitMQ` queue): a delivery's
    /// number is not a position.
    pub position: Option<String>,
    /// When it was published, as far as the broker knows.
    pub published_at: Option<Timestamp>,
}

impl Message {
    /// A message that says `body`.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.add(name, value);
        self
    }

    /// Says where it lies.
    #[must_use]
    pub fn at(mut self, position: impl Into<String>) -> Self {
        self.position = Some(position.into());
        self
    }

    /// Says when it was published.
    #[must_use]
    pub const fn published(mut self, at: Timestamp) -> Self {
        self.published_at = Some(at);
        self
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies and headers hold what people sent each other: they are counted, not shown.
        f.debug_struct("Message")
            .field("headers", &self.headers.len())
            .field("body", &self.body.len())
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}

/// The headers of a message, in the order of the producer. A name may stand there more than once.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(String, Bytes)>);

impl Headers {
    /// Adds one.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// The first value under `name`, in letters of either case: brokers disagree on them.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first value under `name`, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Headers({})", self.0.len())
    }
}
