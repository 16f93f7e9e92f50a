//! What becomes of a batch: one transaction, or one for each message when that fails.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use onlyonce_core::BoxError;
use tokio::sync::{Semaphore, mpsc};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::suspects::Suspects;
use super::{BatchFuture, Batches};
use crate::consumer::ConsumerError;
use crate::consumer::extend::Flights;
use crate::consumer::intake::{Intake, Placed};
use crate::consumer::settle::Settling;
use crate::decision::{Fate, dead};
use crate::handler::Handled;
use crate::message::Message;
use crate::source::Settlement;

/// Everything that runs.
pub(super) struct Lanes {
    batches: Batches,
    flights: Arc<Flights>,
    settling: mpsc::Sender<Settling>,
    /// Connections that nobody uses right now.
    idle: Mutex<Vec<Client>>,
    suspects: Suspects,
    tasks: TaskTracker,
    /// Cancelled when a shutdown no longer waits.
    giving_up: CancellationToken,
}

/// A delivery, its place, and the name that its mark has.
struct Named {
    placed: Placed,
    name: String,
}

enum Failure {
    /// The database is away, or says no before the handler ran: nobody's fault.
    Away(BoxError),
    /// The connection was lost, or given up, while the handler had it or with the commit: perhaps a message's fault.
    Lost(BoxError),
    /// The handler says no, or what it wrote cannot be committed.
    Handler(Handled),
}

impl Failure {
    fn of_commit(error: tokio_postgres::Error) -> Self {
        match error.code() {
            // The server says no to what the handler wrote: a constraint that is checked at the end.
            Some(code) => Self::Handler(Handled::retry(format!("the commit failed with {}", code.code()))),
            // A lost reply may hide a commit: the messages come again, and find their marks or not.
            None => Self::Lost(error.into()),
        }
    }
}

impl Lanes {
    pub(super) fn new(batches: Batches, flights: Arc<Flights>, settling: mpsc::Sender<Settling>) -> Self {
        Self {
            batches,
            flights,
            settling,
            idle: Mutex::default(),
            suspects: Suspects::default(),
            tasks: TaskTracker::new(),
            giving_up: CancellationToken::new(),
        }
    }

    pub(super) async fn fetch_all(
        self: &Arc<Self>,
        intake: &Intake,
        lanes: Arc<Semaphore>,
    ) -> Result<(), ConsumerError> {
        loop {
            // ORDER: a free lane first. What waits for one is better fetched later, as part of a fuller batch.
            let lane = intake.unless_stopping(Arc::clone(&lanes).acquire_owned()).await;
            let Some(Ok(lane)) = lane else { return Ok(()) };
            let deliveries = intake.next(self.batches.batch_max).await?;
            if deliveries.is_empty() {
                return Ok(());
            }
            for (delivery, _) in &deliveries {
                self.flights.take_off(delivery.tag);
            }
            let run = Arc::clone(self);
            self.tasks.spawn(async move {
                tokio::select! {
                    () = run.handle(deliveries) => {}
                    () = run.giving_up.cancelled() => {}
                }
                drop(lane);
            });
        }
    }

    /// Waits for what is under way; no longer than `patience`.
    pub(super) async fn drain(&self, patience: Duration) {
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => return,
            () = self.batches.clock.sleep(patience) => {}
        }
        tracing::warn!(
            "a batch did not end while shutting down: it is rolled back and will be delivered again"
        );
        self.giving_up.cancel();
        self.tasks.wait().await;
    }

    async fn handle(&self, deliveries: Vec<Placed>) {
        let (mut batch, mut alone) = (Vec::with_capacity(deliveries.len()), Vec::new());
        for placed in deliveries {
            match self.batches.ids.find(&placed.0.message) {
                Some(id) => {
                    let kind = if id.is_position() { "position" } else { "id" };
                    let name = format!("{kind}:{}", id.key().as_str());
                    let to = if self.suspects.contains(&name) { &mut alone } else { &mut batch };
                    to.push(Named { placed, name });
                }
                None => {
                    let (settlement, _) = dead("nothing names it: it cannot be told from its duplicates");
                    self.settle(placed, settlement, Fate::Nameless).await;
                }
            }
        }
        match self.in_one_transaction(&batch).await {
            Ok(fresh) => self.acknowledge(batch, &fresh).await,
            Err(failure @ Failure::Away(_)) => self.fail(batch, &failure).await,
            Err(failure) if batch.len() == 1 => self.fail(batch, &failure).await,
            // One by one: one bad message must not hold up the others.
            Err(_) => self.one_by_one(batch).await,
        }
        self.one_by_one(alone).await;
    }

    async fn one_by_one(&self, batch: Vec<Named>) {
        let mut rest = batch.into_iter();
        while let Some(one) = rest.next() {
            let mut one = vec![one];
            match self.in_one_transaction(&one).await {
                Ok(fresh) => self.acknowledge(one, &fresh).await,
                Err(failure @ Failure::Away(_)) => {
                    one.extend(rest);
                    return self.fail(one, &failure).await;
                }
                Err(failure) => self.fail(one, &failure).await,
            }
        }
    }

    /// Marks, has the effects of the new ones, commits: for each, whether it was new.
    async fn in_one_transaction(&self, batch: &[Named]) -> Result<Vec<bool>, Failure> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let mut client = self.client().await.map_err(Failure::Away)?;
        let mut transaction = self.within("beginning", client.transaction()).await.map_err(Failure::Away)?;
        let names: Vec<&str> = batch.iter().map(|named| named.name.as_str()).collect();
        let marking = self.batches.marks.once_many(&mut transaction, &self.batches.name, &names);
        let fresh = self.within("marking", marking).await.map_err(Failure::Away)?;
        let messages: Vec<&Message> = batch
            .iter()
            .zip(&fresh)
            .filter(|(_, fresh)| **fresh)
            .map(|(named, _)| &named.placed.0.message)
            .collect();
        if !messages.is_empty() {
            let handling = unpanicked(self.batches.handler.handle(&mut transaction, &messages));
            let handled = tokio::select! {
                handled = handling => handled,
                () = self.batches.clock.sleep(self.batches.run_max) => {
                    return Err(Failure::Lost("the handler took longer than it may".into()));
                }
            };
            if let Err(handled) = handled {
                // A handler that lost its connection did not fail: it may have been a message, or not.
                self.within("rolling back", transaction.rollback()).await.map_err(Failure::Lost)?;
                self.idle().push(client);
                return Err(Failure::Handler(handled));
            }
        }
        let committing = async { transaction.commit().await.map_err(Failure::of_commit) };
        tokio::select! {
            committed = committing => committed?,
            () = self.batches.clock.sleep(self.batches.call_max) => {
                return Err(Failure::Lost("committing took longer than it may".into()));
            }
        }
        self.idle().push(client);
        Ok(fresh)
    }

    async fn client(&self) -> Result<Client, BoxError> {
        let idle = self.idle().pop().filter(|client| !client.is_closed());
        match idle {
            Some(client) => Ok(client),
            None => self.within("connecting", (self.batches.connect)()).await,
        }
    }

    /// A call of the database that is not waited for without end.
    async fn within<T, E: Into<BoxError>>(
        &self,
        doing: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, BoxError> {
        tokio::select! {
            done = call => done.map_err(Into::into),
            () = self.batches.clock.sleep(self.batches.call_max) => {
                Err(format!("{doing} took longer than it may").into())
            }
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Client>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn acknowledge(&self, batch: Vec<Named>, fresh: &[bool]) {
        for (named, fresh) in batch.into_iter().zip(fresh) {
            self.suspects.acquit(&named.name);
            let fate = if *fresh { Fate::Done } else { Fate::Duplicate };
            self.settle(named.placed, Settlement::Ack, fate).await;
        }
    }

    async fn fail(&self, batch: Vec<Named>, failure: &Failure) {
        if let Failure::Away(error) | Failure::Lost(error) = failure {
            tracing::warn!(%error, source = ?error.source(), count = batch.len(), "messages could not be handled");
        }
        for Named { placed, name } in batch {
            let deliveries = placed.0.deliveries.unwrap_or(1);
            let (settlement, fate) = self.ruling(failure, &name, deliveries);
            if fate == Fate::DeadLettered {
                self.suspects.acquit(&name);
            }
            self.settle(placed, settlement, fate).await;
        }
    }

    fn ruling(&self, failure: &Failure, name: &str, deliveries: u32) -> (Settlement, Fate) {
        let rulings = &self.batches.rulings;
        match failure {
            Failure::Handler(Handled::Refused { why }) => dead(why.clone()),
            Failure::Handler(Handled::Retry { why, after }) => rulings.failed(why, *after, deliveries),
            Failure::Handler(Handled::Unknown { why }) => rulings.failed(why, None, deliveries),
            Failure::Handler(Handled::Done(_)) => rulings.failed("the handler failed", None, deliveries),
            Failure::Lost(error) => {
                let attempt = self.suspects.accuse(name).max(deliveries);
                rulings.failed(&format!("its connection was lost: {error}"), None, attempt)
            }
            Failure::Away(_) => {
                (Settlement::Retry { after: rulings.backoff.after(deliveries) }, Fate::StoreFailed)
            }
        }
    }

    async fn settle(&self, (delivery, place): Placed, settlement: Settlement, fate: Fate) {
        self.batches.counts.fate(fate);
        let settling = Settling { tag: delivery.tag, settlement, _place: place };
        let _ = self.settling.send(settling).await;
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
