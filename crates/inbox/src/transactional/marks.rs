//! The plain shape: one row in `processed_events` for each event, in the caller's transaction, one statement for many.
//!
//! Less than an [`Inbox`](super::Inbox): no attempts, no fences, no outcome. What it has is the whole of exactly-once for
//! effects in the same transaction: the row and the effect are there together or not at all, and a second delivery at
//! the same moment waits in the statement until the first transaction ends.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use super::driver::Driver;
use super::error::{InboxError, schema_name};

/// The most events in one statement.
pub const MARKS_MAX: usize = 10_000;
/// The most rows that one clean-up deletes.
const SWEEP_MAX: u32 = 10_000;

/// A `processed_events` table.
#[derive(Clone, PartialEq, Eq)]
pub struct Marks {
    schema: String,
}

impl Marks {
    /// The table in `schema`, which is a lower-case name.
    pub fn new(schema: &str) -> Result<Self, InboxError> {
        Ok(Self { schema: schema_name(schema)? })
    }

    /// The statements that make the table. May be run again.
    pub fn migration(&self) -> String {
        include_str!("../../sql/processed_events.sql").replace("{schema}", &self.schema)
    }

    /// Marks `event` for `consumer`: `false` when it was marked before. Then there is nothing to do.
    pub async fn once(
        &self,
        transaction: &mut impl Driver,
        consumer: &str,
        event: &str,
    ) -> Result<bool, InboxError> {
        Ok(self.once_many(transaction, consumer, &[event]).await? == [true])
    }

    /// Marks many events in one statement: for each, in order, whether it is new. Of two that are the same the first is.
    ///
    /// A batch that meets another transaction's event waits for that transaction to end. Rows are written in the order of
    /// the ids, so that two batches do not wait for each other.
    pub async fn once_many(
        &self,
        transaction: &mut impl Driver,
        consumer: &str,
        events: &[&str],
    ) -> Result<Vec<bool>, InboxError> {
        if events.len() > MARKS_MAX {
            return Err(InboxError::misuse("at most 10000 events are marked at a time"));
        }
        if consumer.is_empty() || events.iter().any(|event| event.is_empty()) {
            return Err(InboxError::misuse("a consumer and an event have names"));
        }
        let statement = format!(
            "INSERT INTO {}.processed_events (consumer, event_id) SELECT $1, unnest($2::text[]) \
             ON CONFLICT DO NOTHING RETURNING event_id",
            self.schema
        );
        // ORDER: by their bytes, whatever a database's own order of texts is. Here, and not there: it costs them less.
        let mut ordered = events.to_vec();
        ordered.sort_unstable();
        ordered.dedup();
        let fresh = transaction.texts(&statement, consumer, &ordered).await?;
        let mut fresh: HashSet<&str> = fresh.iter().map(String::as_str).collect();
        Ok(events.iter().map(|event| fresh.remove(event)).collect())
    }

    /// Deletes some marks that are older than `retention`, and says how many: again when it is as many as asked for.
    /// Marks that somebody holds are left for the next time.
    pub async fn sweep(
        &self,
        transaction: &mut impl Driver,
        consumer: &str,
        retention: Duration,
        limit: u32,
    ) -> Result<usize, InboxError> {
        let statement = format!(
            "WITH old AS (SELECT consumer, event_id FROM {0}.processed_events \
             WHERE consumer = $1 AND processed_at < clock_timestamp() - ($2::text[])[1]::interval \
             ORDER BY processed_at LIMIT {1} FOR UPDATE SKIP LOCKED) \
             DELETE FROM {0}.processed_events gone USING old \
             WHERE gone.consumer = old.consumer AND gone.event_id = old.event_id RETURNING gone.event_id",
            self.schema,
            limit.min(SWEEP_MAX)
        );
        let retention = format!("{} milliseconds", retention.as_millis());
        Ok(transaction.texts(&statement, consumer, &[&retention]).await?.len())
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks({}.processed_events)", self.schema)
    }
}
