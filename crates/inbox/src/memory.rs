//! A broker in this process, for tests of consumers: it keeps the [`Source`](crate::Source) contract, and misbehaves
//! within it as brokers do, on request: duplicates, reordering, gaps, lost acknowledgements, rebalances, outages.
//!
//! ```
//! use onlyonce_inbox::{MemoryBroker, Message, Settlement, Source as _};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let broker = MemoryBroker::default();
//! broker.publish(Message::new("hello").with_header("event-id", "e-1"));
//! let source = broker.source();
//! let delivery = source.fetch(10).await?.remove(0);
//! source.settle(vec![(delivery.tag, Settlement::Ack)]).await?;
//! assert_eq!(broker.unsettled(), 0);
//! # Ok(())
//! # }
//! ```

mod shelf;
mod source;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onlyonce_core::{Clock, SystemClock};
use tokio::sync::Notify;

use self::shelf::Shelf;
use crate::message::Message;
use crate::source::Horizon;

pub use source::MemorySource;

/// What goes wrong next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// A message is delivered to two consumers at once, or twice to one.
    Duplicate,
    /// An acknowledgement gets lost: it is answered Settled, and the message is delivered again.
    LoseAck,
    /// A settlement cannot be made: the broker is away.
    RefuseSettlement,
    /// A fetch fails: the broker is away.
    RefuseFetch,
    /// A retry with a delay is refused: no rights to where it would wait. One without is taken.
    RefuseDelay,
    /// A dead letter cannot be kept: the broker is away.
    RefuseDeadLetter,
}

/// How a broker misbehaves by chance, in a thousand; the same for the same seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chances {
    /// Where chance begins.
    pub seed: u64,
    /// Deliveries that come twice.
    pub duplicated: u32,
    /// Deliveries that come out of order.
    pub reordered: u32,
    /// Acknowledgements that get lost.
    pub acks_lost: u32,
    /// Settlements that fail.
    pub settlements_refused: u32,
}

/// One topic with one group of consumers. Cheap to clone.
#[derive(Clone)]
pub struct MemoryBroker(Arc<Shared>);

pub(crate) struct Shared {
    clock: Arc<dyn Clock>,
    unsettled_max: Option<Duration>,
    horizon: Horizon,
    shelf: Mutex<Shelf>,
    changed: Notify,
}

impl Shared {
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }
}

impl MemoryBroker {
    /// A broker that goes by `clock`. Its deliveries may stay unsettled as long as their consumer lives.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with(clock, None, Horizon::Unbounded)
    }

    /// A broker whose deliveries come again after `unsettled_max`, and not after `horizon`.
    pub fn with(clock: Arc<dyn Clock>, unsettled_max: Option<Duration>, horizon: Horizon) -> Self {
        let shelf = Mutex::new(Shelf::default());
        Self(Arc::new(Shared { clock, unsettled_max, horizon, shelf, changed: Notify::new() }))
    }

    /// Publishes a message; it gets a position if it has none.
    pub fn publish(&self, message: Message) {
        let now = self.0.clock.now();
        self.0.shelf().put(message, now);
        self.0.changed.notify_waiters();
    }

    /// Leaves out `count` positions, as a compacted or transactional topic does.
    pub fn leave_a_gap(&self, count: u64) {
        self.0.shelf().leave_a_gap(count);
    }

    /// One more consumer of the group. What it leaves unsettled when it is dropped goes to the others.
    pub fn source(&self) -> MemorySource {
        MemorySource::new(Arc::clone(&self.0))
    }

    /// The next `times` occasions meet `trouble`.
    pub fn trouble(&self, trouble: Trouble, times: usize) {
        self.0.shelf().script.extend(std::iter::repeat_n(trouble, times));
    }

    /// Misbehaves by chance from now on.
    pub fn by_chance(&self, chances: Chances) {
        self.0.shelf().chance(chances);
    }

    /// Takes every delivery away from whoever has it, as a rebalance does.
    pub fn revoke_all(&self) {
        self.0.shelf().revoke_all();
        self.0.changed.notify_waiters();
    }

    /// Messages that are neither acknowledged nor dead-lettered.
    pub fn unsettled(&self) -> usize {
        self.0.shelf().len()
    }

    /// Deliveries that somebody has.
    pub fn out(&self) -> usize {
        self.0.shelf().out()
    }

    /// Messages that wait for their delay to pass.
    pub fn delayed(&self) -> usize {
        self.0.shelf().delayed(self.0.clock.now())
    }

    /// How many deliveries were made in all.
    pub fn deliveries(&self) -> u64 {
        self.0.shelf().delivered
    }

    /// How many extensions were made in all.
    pub fn extensions(&self) -> u64 {
        self.0.shelf().extended
    }

    /// What was dead-lettered, and why.
    pub fn dead_letters(&self) -> Vec<(Message, String)> {
        self.0.shelf().dead.iter().map(|(_, message, reason)| (message.clone(), reason.clone())).collect()
    }

    /// Puts what was dead-lettered back, as an operator would. Their positions stay.
    pub fn redrive(&self) {
        let now = self.0.clock.now();
        self.0.shelf().redrive(now);
        self.0.changed.notify_waiters();
    }

    /// Waits until `is_so`, which is asked after every change.
    pub async fn until(&self, is_so: impl Fn(&Self) -> bool + Send) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if is_so(self) {
                return;
            }
            changed.await;
        }
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryBroker({} unsettled)", self.unsettled())
    }
}
