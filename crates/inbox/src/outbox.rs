//! Events that leave with their cause: written in the transaction of the effect, published by a relay of their own.
//!
//! ```no_run
//! # use onlyonce_inbox::{Event, MessageId, Outbox};
//! # async fn handle(outbox: &Outbox, transaction: &mut tokio_postgres::Transaction<'_>, incoming: &MessageId)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut emitter = outbox.emitter("billing", incoming);
//! emitter.emit(transaction, &Event::new("payments", "paid").ordered_by("account-7")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! * An event's id is made of the incoming message's id, the consumer and the event's number: a rerun, a second relay and a
//!   broker's own window all see the same one.
//! * The [`Relay`] does not wait for the incoming message to come again: it owns what is not delivered. Each event is
//!   leased under a generation; a relay that was overtaken changes nothing. A lost reply is sent again under the same id,
//!   and a broker's "duplicate" counts as delivered.
//! * Events with the same key go out in order. One that the broker refuses is parked after its attempts, with its key;
//!   others go on.
//! * What is open is found by being open, never by "after the last one": a transaction that commits late is not skipped.
//! * What is delivered goes by `TRUNCATE` of one of three tables that take turns.

mod emit;
mod publish;
mod relay;
mod rows;

use std::fmt;
use std::time::Duration;

use crate::transactional::{InboxError, schema_name};

pub use emit::{Emitter, Event};
pub use publish::{Outgoing, PublishError, PublishFuture, Published, Publisher};
pub use relay::{Relay, RelayOptions, Stepped};
pub use rows::Backlog;

/// How many tables take turns.
const TABLES: u64 = 3;

/// The tables of one outbox. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Outbox {
    schema: String,
    turn: Duration,
}

impl Outbox {
    /// The outbox in `schema`, which is a lower-case name.
    pub fn new(schema: &str) -> Result<Self, InboxError> {
        Ok(Self { schema: schema_name(schema)?, turn: Duration::from_hours(1) })
    }

    /// How long one table takes events before the next does. Default 1 h. All who use the tables must say the same.
    pub fn with_turn(mut self, turn: Duration) -> Result<Self, InboxError> {
        if turn.as_secs() == 0 {
            return Err(InboxError::misuse("a turn lasts at least a second"));
        }
        self.turn = turn;
        Ok(self)
    }

    /// The table whose turn it is, as an expression on the server's clock; `ahead` turns from now.
    fn bucket(&self, ahead: u64) -> String {
        let seconds = self.turn.as_secs();
        format!(
            "((extract(epoch FROM clock_timestamp())::bigint / {seconds} + {ahead}) % {TABLES})::smallint"
        )
    }

    /// The statements that make the tables. May be run again.
    pub fn migration(&self) -> String {
        include_str!("../sql/outbox.sql").replace("{schema}", &self.schema)
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outbox({})", self.schema)
    }
}
