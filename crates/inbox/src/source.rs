//! The source contract: what everything that delivers messages must do, and how to prove that it does.
//!
//! Nothing of a broker's own is in here: no offsets, no delivery tags, no channels. An adapter keeps those behind a
//! [`Tag`].

mod error;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::message::Message;

pub use error::{SourceError, SourceErrorKind};

/// What an operation of a source returns.
pub type SourceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SourceError>> + Send + 'a>>;

/// The most deliveries in one [`Source::fetch`], [`Source::settle`] or [`Source::extend`]: a store's largest batch.
pub const FETCH_MAX: usize = onlyonce_core::store::BATCH_MAX;

/// Delivers messages at least once, and is told what became of each delivery.
///
/// # Contract
/// 1. *Waiting*: `fetch` answers as soon as there is at least one delivery, with at most `max`, and answers none only
///    when the source is closed.
/// 2. *Tags*: every delivery of one source value has a tag of its own, never used again by that value.
/// 3. *At least once*: a message that was neither acknowledged nor dead-lettered is delivered again, by this or another
///    process, also when this one is killed at any point.
/// 4. *Acknowledged*: once `settle` answered Settled to an `Ack`, the message is not delivered again to this group of
///    consumers, as far as the broker keeps its own promises. Positions before it that are not settled yet stay
///    unacknowledged: an offset is committed only up to the lowest unfinished one.
/// 5. *Retried*: after `Retry` the message is delivered again, not before `after` where the broker can wait, with the
///    same headers, body and position. Others are not held up by it, where the broker's order allows.
/// 6. *Dead letters*: a dead-lettered message is kept where an operator finds it, with its headers, body, position and
///    the reason, before it is acknowledged; when it cannot be kept, the item fails and the message is delivered again. A
///    source that has nowhere to keep it refuses to open.
/// 7. *Batches*: `settle` and `extend` answer one result for each item, in order, in one round trip where the broker
///    can. One item's failure is not another's.
/// 8. *Gone*: a tag that is settled, revoked (a rebalance), or out of time answers Gone, and nothing changes. Never
///    is another delivery settled in its place.
/// 9. *In progress*: after `extend`, the delivery may stay unsettled for another [`Source::unsettled_max`].
/// 10. *Position*: a message's position is the same at every delivery, and no other message's.
/// 11. *Bounded*: what is fetched ahead is bounded, by count and by bytes.
/// 12. *Closed*: after `close`, `fetch` answers none, also one that is waiting; what was fetched can be settled until
///     `close` returns, and what was not is delivered to others. Closing twice is closing once.
///
/// # Cancellation
/// Dropping a `fetch` that waits loses no delivery: those it would have answered come with the next one. Dropping a
/// `settle` may or may not have settled.
///
/// # Unknown outcomes
/// A `settle` that failed may be repeated as it is: settled items answer Gone. An acknowledgement that got lost costs a
/// delivery that turns out to be a duplicate, and nothing else.
///
/// # Time
/// `after` and [`Source::unsettled_max`] are the broker's. Nothing here depends on this machine's clock agreeing with it.
///
/// # Implementing
/// Run `onlyonce_inbox::source_suite!(your_fixture)` (feature `suite`): the clause numbers above are the test names
/// (`s8_a_settled_delivery_…`); then `onlyonce_inbox::crash_suite!`, which kills consumers of it at every window.
/// [`MemorySource`](crate::MemorySource) is the smallest source that keeps the contract.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Waits for deliveries and takes up to `max` of them ([`FETCH_MAX`] at most). None: the source is closed.
    fn fetch(&self, max: usize) -> SourceFuture<'_, Vec<Delivery>>;

    /// Says what became of deliveries: one result for each, in order.
    fn settle(
        &self,
        settlements: Vec<(Tag, Settlement)>,
    ) -> SourceFuture<'_, Vec<Result<Settled, SourceError>>>;

    /// Says that deliveries are being worked on, so that they are not delivered again: one result for each, in order.
    fn extend<'a>(&'a self, tags: &'a [Tag]) -> SourceFuture<'a, Vec<Result<Extended, SourceError>>>;

    /// How long a delivery may stay unsettled before it is delivered again, or its consumer is thrown out: the ack wait
    /// of `JetStream`, the idle time of a Redis group, the consumer time-out of `RabbitMQ`. `None`: as long as it takes.
    fn unsettled_max(&self) -> Option<Duration>;

    /// How long after its first delivery a message may still be delivered again.
    fn horizon(&self) -> Horizon;

    /// How many messages wait to be delivered to this group of consumers; `None` where it cannot be known.
    fn lag(&self) -> SourceFuture<'_, Option<u64>>;

    /// Stops delivering, gives back what was not settled, and lets go of the broker.
    fn close(&self) -> SourceFuture<'_, ()>;
}

/// The name of one delivery, given by its source. Means nothing to anyone else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(u64);

impl Tag {
    /// The tag with this number. For sources.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number. For the source that gave it.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One message, delivered once more or for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// To settle it by.
    pub tag: Tag,
    /// What was delivered.
    pub message: Message,
    /// Whether the broker says that it was delivered before. A hint: brokers forget, and nothing is decided by it.
    pub redelivered: bool,
    /// Which delivery this is, 1 for the first, where the broker counts.
    pub deliveries: Option<u32>,
}

impl Delivery {
    /// A delivery, as far as anyone knows the first.
    pub const fn new(tag: Tag, message: Message) -> Self {
        Self { tag, message, redelivered: false, deliveries: None }
    }

    /// Says that it was delivered before.
    #[must_use]
    pub const fn redelivered(mut self, redelivered: bool) -> Self {
        self.redelivered = redelivered;
        self
    }

    /// Says which delivery it is.
    #[must_use]
    pub const fn counted(mut self, deliveries: u32) -> Self {
        self.deliveries = Some(deliveries);
        self.redelivered = deliveries > 1;
        self
    }
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is done: do not deliver it again.
    Ack,
    /// Deliver it again.
    Retry {
        /// Not before this has passed.
        after: Duration,
    },
    /// It will never be done: keep it for operators.
    DeadLetter {
        /// Why, in words for an operator. Holds nothing of the body.
        reason: String,
    },
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// As said.
    Settled,
    /// The delivery is no longer ours: settled before, revoked, or out of time. Nothing changed.
    Gone,
}

/// What became of an extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    /// The time counts from now.
    Extended,
    /// The delivery is no longer ours. What has not begun need not begin.
    Gone,
}

/// How long after its first delivery a message may still be delivered again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// For this long: the retention of a topic, the ack wait times the delivery limit.
    Within(Duration),
    /// Until it is acknowledged, however long that takes.
    Unbounded,
}

#[cfg(test)]
fn _a_source_can_be_chosen_at_run_time(_: &dyn Source) {}
