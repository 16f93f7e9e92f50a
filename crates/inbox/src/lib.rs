//! Messages take effect once: what a broker delivers, however often, is run once for each consumer.
//!
//! A [`Source`] delivers messages at least once. Everything here is about the difference between that and *once*:
//!
//! * [`Consumer`] claims each message in a [`Store`](onlyonce_core::Store) before its handler runs, and acknowledges it
//!   only when its outcome is on record.
//! * `Inbox` (feature `postgres`, and `sqlx` for that driver) puts effect and mark into one transaction: exactly once.
//! * `Outbox` (feature `postgres`) writes outgoing events in that transaction, and its `Relay` publishes them.
//! * [`MemoryBroker`] is a broker in this process that misbehaves on request: for tests of your own handlers.
//!
//! | file | what it is for |
//! |---|---|
//! | `message`, `id` | what is delivered, and what names it |
//! | `source` | the contract of everything that delivers |
//! | `memory` | the broker in this process |
//! | `handler` | what a handler gets and says |
//! | `decision` | what follows for a delivery: pure |
//! | `gathered` | commands to the store that travel together |
//! | `consumer` | the loop |
//! | `transactional` | effect and mark in one transaction |
//! | `outbox` | events that leave with their cause |
//! | `suite` | kills, pauses and outages at every window |

pub mod message;
pub mod id;
pub mod source;
pub mod memory;
pub mod handler;
pub mod decision;
mod pass_on;
mod gathered;
pub mod consumer;
#[cfg(feature = "postgres")]
pub mod transactional;
#[cfg(feature = "postgres")]
pub mod outbox;
#[cfg(feature = "suite")]
pub mod suite;

pub use consumer::{
    Consumer, ConsumerBuilder, ConsumerError, ConsumerErrorKind, Counts, OnMissingId, OnShortRetention, Tally,
};
pub use decision::{Backoff, Fate, OnMismatch};
pub use handler::{Handled, Handler, HandlerFuture, MESSAGE_OUTCOME, Work};
pub use id::{IdRule, IdRules, MessageId};
pub use memory::{Chances, MemoryBroker, MemorySource, Trouble};
pub use message::{Headers, Message};
#[cfg(feature = "postgres")]
pub use outbox::{Emitter, Event, Outbox, Outgoing, PublishError, Published, Publisher, Relay, RelayOptions};
pub use source::{
    Delivery, Extended, Horizon, Settled, Settlement, Source, SourceError, SourceErrorKind, SourceFuture, Tag,
};
#[cfg(feature = "postgres")]
pub use transactional::{BatchHandler, Batches, Inbox, InboxError, InboxErrorKind, Marks, Once};
