//! Whole batches in one transaction: one statement marks them, the handler has the effects of the new ones, one commit.
//!
//! The fastest way to handle small messages exactly once. A batch that fails is handled again one by one, so that one bad
//! message holds up nobody. What it does without, compared with an [`Inbox`](super::Inbox): bodies are not compared, no
//! outcome is kept, and attempts are counted only where the broker counts deliveries.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use onlyonce_core::{BoxError, Clock, SystemClock};
use tokio::sync::{Semaphore, mpsc};
use tokio_postgres::{Client, Transaction};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::InboxError;
use super::marks::Marks;
use crate::consumer::extend::Flights;
use crate::consumer::intake::{Intake, Placed};
use crate::consumer::run::stopped_by;
use crate::consumer::settle::{Outlet, Settling};
use crate::consumer::{ConsumerError, Counts};
use crate::decision::{Backoff, Fate, OnMismatch, Rulings, dead};
use crate::handler::Handled;
use crate::id::IdRules;
use crate::message::Message;
use crate::source::{Settlement, Source};

/// How long a shutdown waits for what is under way.
const DRAIN_FOR: Duration = Duration::from_secs(20);
/// How many deliveries a message has, where the broker counts them.
const DELIVERIES_MAX: u32 = 5;

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

    /// Handles messages until `stop` resolves or the source is closed, then settles everything and closes the source.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), ConsumerError> {
        let in_flight_max = self.batch_max * (self.connections + 1);
        let (source, clock) = (Arc::clone(&self.source), Arc::clone(&self.clock));
        let (outlet, settling) = Outlet::open(&source, &clock, &self.counts, in_flight_max);
        let stopping = CancellationToken::new();
        let (counts, bounds) = (Arc::clone(&self.counts), (in_flight_max, self.batch_max));
        let intake = Intake::new(Arc::clone(&source), Arc::clone(&clock), counts, bounds, stopping.clone());
        let lanes = Arc::new(Semaphore::new(self.connections));
        let run = Arc::new(Run {
            flights: Arc::clone(outlet.flights()),
            settling,
            idle: Mutex::default(),
            tasks: TaskTracker::new(),
            batches: self,
        });
        let ended = stopped_by(stop, &stopping, run.fetch_all(&intake, lanes)).await;
        run.tasks.close();
        tokio::select! {
            () = run.tasks.wait() => {}
            () = clock.sleep(DRAIN_FOR) => {}
        }
        drop(run);
        outlet.close(DRAIN_FOR).await;
        let closed = source.close().await;
        ended.and(closed.map_err(ConsumerError::from))
    }
}

struct Run {
    batches: Batches,
    flights: Arc<Flights>,
    settling: mpsc::Sender<Settling>,
    /// Connections that nobody uses right now.
    idle: Mutex<Vec<Client>>,
    tasks: TaskTracker,
}

impl Run {
    async fn fetch_all(
        self: &Arc<Self>,
        intake: &Intake,
        lanes: Arc<Semaphore>,
    ) -> Result<(), ConsumerError> {
        loop {
            let deliveries = intake.next().await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            for (delivery, _) in &deliveries {
                self.flights.take_off(delivery.tag);
            }
            // INVARIANT: the semaphore is never closed.
            let Ok(lane) = Arc::clone(&lanes).acquire_owned().await else { return Ok(()) };
            let run = Arc::clone(self);
            self.tasks.spawn(async move {
                run.handle(deliveries).await;
                drop(lane);
            });
        }
    }

    async fn handle(&self, deliveries: Vec<Placed>) {
        let (mut named, mut names) =
            (Vec::with_capacity(deliveries.len()), Vec::with_capacity(deliveries.len()));
        for (delivery, place) in deliveries {
            match self.batches.ids.find(&delivery.message) {
                Some(id) => {
                    let kind = if id.is_position() { "position" } else { "id" };
                    names.push(format!("{kind}:{}", id.key().as_str()));
                    named.push((delivery, place));
                }
                None => {
                    let (settlement, _) = dead("nothing names it: it cannot be told from its duplicates");
                    self.settle((delivery, place), settlement, Fate::Nameless).await;
                }
            }
        }
        match self.in_one_transaction(&named, &names).await {
            Ok(fresh) => self.acknowledge(named, &fresh).await,
            Err(failure @ Failure::Database(_)) => self.fail(named, failure).await,
            Err(failure) if named.len() == 1 => self.fail(named, failure).await,
            // One by one: one bad message must not hold up the others.
            Err(_) => {
                for (placed, name) in named.into_iter().zip(names) {
                    let one = vec![placed];
                    match self.in_one_transaction(&one, &[name]).await {
                        Ok(fresh) => self.acknowledge(one, &fresh).await,
                        Err(failure) => self.fail(one, failure).await,
                    }
                }
            }
        }
    }

    /// Marks, has the effects of the new ones, commits: for each, whether it was new.
    async fn in_one_transaction(&self, placed: &[Placed], names: &[String]) -> Result<Vec<bool>, Failure> {
        if placed.is_empty() {
            return Ok(Vec::new());
        }
        let mut client = self.client().await.map_err(Failure::Database)?;
        let mut transaction = client.transaction().await.map_err(|error| Failure::Database(error.into()))?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let marked = self.batches.marks.once_many(&mut transaction, &self.batches.name, &names).await;
        let fresh = marked.map_err(|error| Failure::Database(error.into()))?;
        let messages: Vec<&Message> = placed
            .iter()
            .zip(&fresh)
            .filter(|(_, fresh)| **fresh)
            .map(|((delivery, _), _)| &delivery.message)
            .collect();
        if !messages.is_empty() {
            let handling = self.batches.handler.handle(&mut transaction, &messages);
            if let Err(handled) = unpanicked(handling).await {
                // A handler that lost its connection did not fail.
                transaction.rollback().await.map_err(|error| Failure::Database(error.into()))?;
                return Err(Failure::Handler(handled));
            }
        }
        transaction.commit().await.map_err(Failure::of_commit)?;
        self.idle().push(client);
        Ok(fresh)
    }

    async fn client(&self) -> Result<Client, BoxError> {
        let idle = self.idle().pop().filter(|client| !client.is_closed());
        match idle {
            Some(client) => Ok(client),
            None => (self.batches.connect)().await,
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn acknowledge(&self, placed: Vec<Placed>, fresh: &[bool]) {
        for (placed, fresh) in placed.into_iter().zip(fresh) {
            let fate = if *fresh { Fate::Done } else { Fate::Duplicate };
            self.settle(placed, Settlement::Ack, fate).await;
        }
    }

    async fn fail(&self, placed: Vec<Placed>, failure: Failure) {
        for placed in placed {
            let deliveries = placed.0.deliveries.unwrap_or(1);
            let rulings = &self.batches.rulings;
            let (settlement, fate) = match &failure {
                Failure::Handler(Handled::Refused { why }) => dead(why.clone()),
                Failure::Handler(Handled::Retry { why, after }) => rulings.failed(why, *after, deliveries),
                Failure::Handler(Handled::Unknown { why }) => rulings.failed(why, None, deliveries),
                Failure::Handler(Handled::Done(_)) => rulings.failed("the handler failed", None, deliveries),
                Failure::Database(error) => {
                    tracing::warn!(%error, source = ?error.source(), "a batch could not be handled");
                    let after = rulings.backoff.after(deliveries);
                    (Settlement::Retry { after }, Fate::StoreFailed)
                }
            };
            self.settle(placed, settlement, fate).await;
        }
    }

    async fn settle(&self, (delivery, place): Placed, settlement: Settlement, fate: Fate) {
        self.batches.counts.fate(fate);
        let settling = Settling { tag: delivery.tag, settlement, _place: place };
        let _ = self.settling.send(settling).await;
    }
}

enum Failure {
    Handler(Handled),
    Database(BoxError),
}

impl Failure {
    fn of_commit(error: tokio_postgres::Error) -> Self {
        match error.code() {
            // The server says no to what the handler wrote: a constraint that is checked at the end.
            Some(code) => Self::Handler(Handled::retry(format!("the commit failed with {}", code.code()))),
            // A lost reply may hide a commit: the messages come again, and find their marks or not.
            None => Self::Database(error.into()),
        }
    }
}

/// A panic in a handler is a failure of its batch, and no reason to leave deliveries unsettled.
async fn unpanicked(mut handling: BatchFuture<'_>) -> Result<(), Handled> {
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx))) {
        Ok(polled) => polled,
        Err(_) => Poll::Ready(Err(Handled::unknown("the handler panicked"))),
    })
    .await
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
