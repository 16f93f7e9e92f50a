//! Whole batches in one transaction: one statement marks them, the handler has the effects of the new ones, one commit.
//!
//! The fastest way to handle small messages exactly once. A batch that fails, or that loses its connection, is handled
//! again one by one, so that one bad message holds up nobody. What it does without, compared with an
//! [`Inbox`](super::Inbox): bodies are not compared, no outcome is kept, and attempts are counted only where the broker
//! counts deliveries; those that cost a connection are counted in this process too.

mod lane;
mod suspects;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{BoxError, Clock, SystemClock};
use tokio::sync::Semaphore;
use tokio_postgres::{Client, Transaction};
use tokio_util::sync::CancellationToken;

use super::error::InboxError;
use super::marks::Marks;
use crate::consumer::intake::Intake;
use crate::consumer::run::stopped_by;
use crate::consumer::settle::Outlet;
use crate::consumer::{ConsumerError, Counts};
use crate::decision::{Backoff, OnMismatch, Rulings};
use crate::handler::Handled;
use crate::id::IdRules;
use crate::message::Message;
use crate::source::Source;
use lane::Lanes;

/// How long a shutdown waits for what is under way.
const DRAIN_FOR: Duration = Duration::from_secs(20);
/// How many deliveries a message has, where the broker counts them.
const DELIVERIES_MAX: u32 = 5;
/// How long the database may take for one call, and a handler for one batch. Defaults; see [`Batches::with_time_limits`].
const CALL_MAX: Duration = Duration::from_secs(30);
const RUN_MAX: Duration = Duration::from_mins(5);

/// What handling a batch returns.
pub type BatchFuture<'t> = Pin<Box<dyn Future<Output = Result<(), Handled>> + Send + 't>>;

/// Has the effects of new messages in a transaction.
pub trait BatchHandler: Send + Sync + 'static {
    /// Has the effects of `messages`, none of which had them before. Nothing counts unless this returns `Ok` and the
    /// transaction commits. An error of a whole batch has each of its messages handled by itself; the error of a single
    /// one says whether it is tried again or refused.
    fn handle<'t, 'c>(
        &'t self,
        transaction: &'t mut Transaction<'c>,
        messages: &'t [&'t Message],
    ) -> BatchFuture<'t>
    where
        'c: 't;
}

type Connecting = Pin<Box<dyn Future<Output = Result<Client, BoxError>> + Send>>;

/// Consumes a source in batches, each in one transaction. Made by [`Batches::new`], started by [`Batches::run`].
pub struct Batches {
    name: Arc<str>,
    source: Arc<dyn Source>,
    marks: Marks,
    handler: Arc<dyn BatchHandler>,
    connect: Box<dyn Fn() -> Connecting + Send + Sync>,
    ids: IdRules,
    batch_max: usize,
    connections: usize,
    call_max: Duration,
    run_max: Duration,
    rulings: Rulings,
    clock: Arc<dyn Clock>,
    counts: Arc<Counts>,
}

impl Batches {
    /// A consumer called `name`, on connections from `connect`.
    pub fn new<C, F>(
        name: &str,
        source: Arc<dyn Source>,
        marks: Marks,
        handler: impl BatchHandler,
        connect: C,
    ) -> Self
    where
        C: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Result<Client, BoxError>> + Send + 'static,
    {
        let rulings = Rulings {
            attempts_max: DELIVERIES_MAX,
            backoff: Backoff::default(),
            on_mismatch: OnMismatch::default(),
        };
        Self {
            name: name.into(),
            source,
            marks,
            handler: Arc::new(handler),
            connect: Box::new(move || Box::pin(connect())),
            ids: IdRules::default(),
            batch_max: 1000,
            connections: 2,
            call_max: CALL_MAX,
            run_max: RUN_MAX,
            rulings,
            clock: Arc::new(SystemClock::new()),
            counts: Arc::new(Counts::default()),
        }
    }

    /// Where ids are looked for.
    #[must_use]
    pub fn with_ids(mut self, ids: IdRules) -> Self {
        self.ids = ids;
        self
    }

    /// How many messages share a transaction at the most (default 1000), and how many transactions run at a time (default
    /// 2: one commits while the other one fills).
    pub fn with_bounds(mut self, batch_max: usize, connections: usize) -> Result<Self, InboxError> {
        if !(1..=crate::source::FETCH_MAX).contains(&batch_max) || !(1..=100).contains(&connections) {
            return Err(InboxError::misuse("a batch has 1 to 1000 messages, on 1 to 100 connections"));
        }
        (self.batch_max, self.connections) = (batch_max, connections);
        Ok(self)
    }

    /// How long the database may take for one call (connecting, beginning, marking, committing; default 30 s) and a handler
    /// for one batch (default 5 min). What takes longer is given up with its connection, and tried again.
    pub fn with_time_limits(mut self, call_max: Duration, run_max: Duration) -> Result<Self, InboxError> {
        if call_max.is_zero() || run_max.is_zero() {
            return Err(InboxError::misuse("nothing can be done in no time"));
        }
        (self.call_max, self.run_max) = (call_max, run_max);
        Ok(self)
    }

    /// How soon a failed message is tried again.
    #[must_use]
    pub const fn with_backoff(mut self, backoff: Backoff) -> Self {
        self.rulings.backoff = backoff;
        self
    }

    /// Where its own time comes from.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What it did so far.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Handles messages until `stop` resolves or the source is closed, then waits for what is under way, gives up what does
    /// not end (it is rolled back and delivered again), and closes the source.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ConsumerError> {
        let in_flight_max = self.batch_max * (self.connections + 1);
        let (source, clock) = (Arc::clone(&self.source), Arc::clone(&self.clock));
        let (outlet, settling) = Outlet::open(&source, &clock, &self.counts, in_flight_max);
        let stopping = CancellationToken::new();
        let (from, time, counts) = (Arc::clone(&source), Arc::clone(&clock), Arc::clone(&self.counts));
        let intake = Intake::new(from, time, counts, in_flight_max, stopping.clone());
        let lanes = Arc::new(Semaphore::new(self.connections));
        let run = Arc::new(Lanes::new(self, Arc::clone(outlet.flights()), settling));
        let ended = stopped_by(stop, &stopping, run.fetch_all(&intake, lanes)).await;
        run.drain(DRAIN_FOR).await;
        drop(run);
        outlet.close(DRAIN_FOR).await;
        let closed = source.close().await;
        ended.and(closed.map_err(ConsumerError::from))
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
