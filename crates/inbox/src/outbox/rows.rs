//! What the relay asks of the tables, one statement each.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

use super::{Outbox, Outgoing};
use crate::message::{Headers, Message};
use crate::transactional::InboxError;

/// What waits in an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Backlog {
    /// Events to be delivered.
    pub open: u64,
    /// Events that are not tried again until someone says so.
    pub parked: u64,
    /// How long the oldest open one has been waiting.
    pub oldest: Duration,
}

/// An event that is leased to this relay.
#[derive(Debug)]
pub(super) struct Leased {
    pub(super) bucket: i16,
    pub(super) outgoing: Outgoing,
    /// How often the broker has refused it.
    pub(super) refusals: i32,
}

/// What becomes of an event that was not delivered.
#[derive(Debug)]
pub(super) struct Undelivered {
    pub(super) again_in: Duration,
    /// How often the broker has refused it by now.
    pub(super) refusals: i32,
    /// Why it is parked, if it is.
    pub(super) parked: Option<String>,
}

impl Outbox {
    /// Leases up to `most` open events, the first of each key, in order.
    pub(super) async fn lease(
        &self,
        client: &Client,
        most: i64,
        lease: Duration,
    ) -> Result<Vec<Leased>, InboxError> {
        // What is open is found by being open: a row that was committed late is as open as any other.
        let statement = format!(
            "WITH open AS ( \
                 SELECT o.bucket, o.id FROM {0}.outbox o \
                 WHERE o.delivered_at IS NULL AND o.parked IS NULL AND o.due_at <= clock_timestamp() \
                     AND (o.leased_until IS NULL OR o.leased_until <= clock_timestamp()) \
                     AND (o.order_key IS NULL OR NOT EXISTS ( \
                         SELECT FROM {0}.outbox e \
                         WHERE e.order_key = o.order_key AND e.delivered_at IS NULL AND e.seq < o.seq)) \
                 ORDER BY o.seq LIMIT $1 FOR UPDATE OF o SKIP LOCKED) \
             UPDATE {0}.outbox o SET leased_until = clock_timestamp() + $2 * interval '1 millisecond', \
                 generation = o.generation + 1, attempts = o.attempts + 1 \
             FROM open WHERE o.bucket = open.bucket AND o.id = open.id \
             RETURNING o.bucket, o.id, o.topic, o.order_key, o.header_names, o.header_values, o.body, \
                 o.generation, o.attempts, o.seq, o.refusals",
            self.schema
        );
        let arguments: [(&(dyn ToSql + Sync), Type); 2] = [(&most, Type::INT8), (&millis(lease), Type::INT8)];
        let rows = client.query_typed(&statement, &arguments).await.map_err(InboxError::database)?;
        let mut leased: Vec<(i64, Leased)> = rows.iter().map(read).collect::<Result<_, _>>()?;
        leased.sort_by_key(|(seq, _)| *seq);
        Ok(leased.into_iter().map(|(_, leased)| leased).collect())
    }

    /// Marks events as delivered, and says how many still were this relay's.
    pub(super) async fn delivered(&self, client: &Client, events: &[&Leased]) -> Result<u64, InboxError> {
        let statement = format!(
            "UPDATE {0}.outbox o SET delivered_at = clock_timestamp(), leased_until = NULL \
             FROM unnest($1::smallint[], $2::text[], $3::bigint[]) AS d (bucket, id, generation) \
             WHERE o.bucket = d.bucket AND o.id = d.id AND o.generation = d.generation \
                 AND o.delivered_at IS NULL RETURNING o.id",
            self.schema
        );
        let (buckets, ids, generations) = tokens(events);
        let arguments: [(&(dyn ToSql + Sync), Type); 3] =
            [(&buckets, Type::INT2_ARRAY), (&ids, Type::TEXT_ARRAY), (&generations, Type::INT8_ARRAY)];
        let rows = client.query_typed(&statement, &arguments).await.map_err(InboxError::database)?;
        Ok(rows.len() as u64)
    }

    /// Gives events back, to be tried again or to be parked.
    pub(super) async fn undelivered(
        &self,
        client: &Client,
        events: &[(&Leased, Undelivered)],
    ) -> Result<(), InboxError> {
        let statement = format!(
            "UPDATE {0}.outbox o SET leased_until = NULL, parked = d.parked, refusals = d.refusals, \
                 due_at = clock_timestamp() + d.again * interval '1 millisecond' \
             FROM unnest($1::smallint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::integer[]) \
                 AS d (bucket, id, generation, again, parked, refusals) \
             WHERE o.bucket = d.bucket AND o.id = d.id AND o.generation = d.generation \
                 AND o.delivered_at IS NULL",
            self.schema
        );
        let leased: Vec<&Leased> = events.iter().map(|(leased, _)| *leased).collect();
        let (buckets, ids, generations) = tokens(&leased);
        let again: Vec<i64> = events.iter().map(|(_, undelivered)| millis(undelivered.again_in)).collect();
        let parked: Vec<Option<&str>> =
            events.iter().map(|(_, undelivered)| undelivered.parked.as_deref()).collect();
        let refusals: Vec<i32> = events.iter().map(|(_, undelivered)| undelivered.refusals).collect();
        let arguments: [(&(dyn ToSql + Sync), Type); 6] = [
            (&buckets, Type::INT2_ARRAY),
            (&ids, Type::TEXT_ARRAY),
            (&generations, Type::INT8_ARRAY),
            (&again, Type::INT8_ARRAY),
            (&parked, Type::TEXT_ARRAY),
            (&refusals, Type::INT4_ARRAY),
        ];
        client.query_typed(&statement, &arguments).await.map(drop).map_err(InboxError::database)
    }

    /// What waits.
    pub async fn backlog(&self, client: &Client) -> Result<Backlog, InboxError> {
        let statement = format!(
            "SELECT count(*) FILTER (WHERE parked IS NULL), count(*) FILTER (WHERE parked IS NOT NULL), \
                 coalesce(extract(epoch FROM clock_timestamp() - min(written_at) FILTER (WHERE parked IS NULL)), 0) \
                     ::double precision \
             FROM {}.outbox WHERE delivered_at IS NULL",
            self.schema
        );
        let row = client.query_one(&statement, &[]).await.map_err(InboxError::database)?;
        let count = |at| row.try_get::<_, i64>(at).map(i64::unsigned_abs).map_err(InboxError::database);
        let oldest: f64 = row.try_get(2).map_err(InboxError::database)?;
        Ok(Backlog { open: count(0)?, parked: count(1)?, oldest: Duration::from_secs_f64(oldest.max(0.0)) })
    }

    /// Has a parked event tried again, as a new generation: `false` when there is no such one.
    pub async fn unpark(&self, client: &Client, id: &str) -> Result<bool, InboxError> {
        let statement = format!(
            "UPDATE {}.outbox SET parked = NULL, attempts = 0, refusals = 0, generation = generation + 1, \
                 due_at = clock_timestamp() WHERE id = $1 AND parked IS NOT NULL AND delivered_at IS NULL",
            self.schema
        );
        Ok(client.execute(&statement, &[&id]).await.map_err(InboxError::database)? > 0)
    }

    /// Empties the table whose turn is next, if all in it is delivered. `false` when it is left as it is: something in it is
    /// open, or somebody uses it right now.
    pub async fn rotate(&self, client: &mut Client) -> Result<bool, InboxError> {
        let next = format!("SELECT {}", self.bucket(1));
        let bucket: i16 = client
            .query_one(&next, &[])
            .await
            .and_then(|row| row.try_get(0))
            .map_err(InboxError::database)?;
        let table = format!("{}.outbox_{bucket}", self.schema);
        let look = format!(
            "SELECT EXISTS (SELECT FROM {table}) AND NOT EXISTS (SELECT FROM {table} WHERE delivered_at IS NULL)"
        );
        let transaction = client.transaction().await.map_err(InboxError::database)?;
        let is_over = async || {
            let row = transaction.query_one(&look, &[]).await.map_err(InboxError::database)?;
            row.try_get::<_, bool>(0).map_err(InboxError::database)
        };
        if !is_over().await? {
            return Ok(false);
        }
        // ORDER: locked, then looked at again. A transaction that has written to the table and not ended yet keeps the
        // lock from us: its rows are never thrown away.
        let locked = format!("SET LOCAL lock_timeout = '200ms'; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE");
        if transaction.batch_execute(&locked).await.is_err() || !is_over().await? {
            return Ok(false);
        }
        let emptied = transaction.batch_execute(&format!("TRUNCATE {table}")).await;
        emptied.map_err(InboxError::database)?;
        transaction.commit().await.map_err(InboxError::database)?;
        Ok(true)
    }
}

fn tokens<'e>(events: &[&'e Leased]) -> (Vec<i16>, Vec<&'e str>, Vec<i64>) {
    let buckets = events.iter().map(|leased| leased.bucket).collect();
    let ids = events.iter().map(|leased| leased.outgoing.id.as_str()).collect();
    let generations = events.iter().map(|leased| leased.outgoing.generation).collect();
    (buckets, ids, generations)
}

fn read(row: &Row) -> Result<(i64, Leased), InboxError> {
    let read = || -> Result<(i64, Leased), tokio_postgres::Error> {
        let id: String = row.try_get(1)?;
        let (names, values): (Vec<String>, Vec<Vec<u8>>) = (row.try_get(4)?, row.try_get(5)?);
        let mut headers: Headers = names.into_iter().zip(values).collect();
        headers.add("event-id", Bytes::from(id.clone()));
        let mut message = Message::new(row.try_get::<_, Vec<u8>>(6)?);
        message.headers = headers;
        let outgoing = Outgoing {
            id,
            topic: row.try_get(2)?,
            order_key: row.try_get(3)?,
            message,
            generation: row.try_get(7)?,
            attempt: row.try_get(8)?,
        };
        Ok((row.try_get(9)?, Leased { bucket: row.try_get(0)?, outgoing, refusals: row.try_get(10)? }))
    };
    read().map_err(InboxError::database)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
