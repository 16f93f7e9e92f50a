//! The consumer: fetch a batch, claim it in one round trip, run what is new, complete in one round trip, settle.
//!
//! Every delivery is settled on every path, and acknowledged only when an outcome is on record:
//!
//! ```text
//! fetch ─▶ id ─▶ claim_many ─┬─ Granted  ─▶ handler (bounded) ─┬─ done    ─▶ complete_many ─▶ ack
//!                            │                                 ├─ retry   ─▶ release       ─▶ again, later
//!                            │                                 ├─ refused ─▶ release       ─▶ dead letter
//!                            │                                 └─ unknown ─▶ abandon       ─▶ again, by the policy
//!                            ├─ Replay   ─▶ ack: it was done
//!                            ├─ Busy     ─▶ again, when the lease is over; never ack
//!                            ├─ Held     ─▶ dead letter: as many attempts as there may be
//!                            ├─ Mismatch ─▶ dead letter, or reported
//!                            └─ no store ─▶ again, later; nothing ran
//! ```
//!
//! A message that kills the process is counted too: its attempt is on record, in a commit of its own, before the handler
//! begins.

mod batch;
mod builder;
mod counts;
mod error;
pub(crate) mod extend;
pub(crate) mod intake;
pub(crate) mod run;
pub(crate) mod settle;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Engine;

use crate::decision::Rulings;
use crate::handler::Handler;
use crate::id::IdRules;
use crate::source::Source;

pub use builder::{ConsumerBuilder, message_policy};
pub use counts::{Counts, Tally};
pub use error::{ConsumerError, ConsumerErrorKind};

/// What to do with a message that nothing names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMissingId {
    /// To the dead letters: it cannot be told from its duplicates. The default.
    #[default]
    DeadLetter,
    /// Run it at every delivery, unprotected.
    Run,
}

/// What to do when records are kept for a shorter time than the source may deliver again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnShortRetention {
    /// Do not start: a message delivered after its record is gone would run again. The default.
    #[default]
    Refuse,
    /// Warn and start.
    Warn,
}

/// Handles the messages of a source once each. Made by [`Consumer::builder`], started by [`Consumer::run`].
///
/// ```
/// use std::sync::Arc;
/// use onlyonce_core::MemoryStore;
/// use onlyonce_inbox::{Consumer, Handled, MemoryBroker, Message, Work};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = MemoryBroker::default();
/// for _ in 0..3 {
///     broker.publish(Message::new("pay").with_header("event-id", "order-7"));
/// }
/// let handler = |work: Work| async move {
///     println!("attempt {}", work.attempt());
///     Handled::done()
/// };
/// let store = Arc::new(MemoryStore::default());
/// let consumer = Consumer::builder("billing", Arc::new(broker.source()), store, handler).build().await?;
/// let counts = consumer.counts();
/// consumer.run(broker.until(|broker| broker.unsettled() == 0)).await?;
/// assert_eq!((counts.now().done, counts.now().duplicates), (1, 2));
/// # Ok(())
/// # }
/// ```
pub struct Consumer {
    name: Arc<str>,
    engine: Engine,
    source: Arc<dyn Source>,
    handler: Arc<dyn Handler>,
    ids: IdRules,
    on_missing_id: OnMissingId,
    rulings: Rulings,
    concurrency: usize,
    batch_max: usize,
    drain_for: Duration,
    counts: Arc<Counts>,
}

impl Consumer {
    /// What this consumer did so far; stays readable while and after it runs.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// The engine behind it, for operators' reads.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("source", &self.source)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
