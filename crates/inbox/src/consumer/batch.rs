//! From deliveries to claims: who is named how, who is a twin within the batch, and what runs under a grant.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::engine::{Ending, Execution, Performing, Request};
use onlyonce_core::{Fingerprint, RecordId};
use tokio::sync::OwnedSemaphorePermit;

use super::intake::Placed;
use super::run::Run;
use super::settle::Settling;
use super::{Consumer, OnMissingId};
use crate::decision::{Ended, Fate, dead, done, ending};
use crate::handler::{Handled, Handler, Work};
use crate::source::{Delivery, Settlement, Tag};

/// One delivery on its way to being settled.
struct Flight {
    tag: Tag,
    place: OwnedSemaphorePermit,
}

/// Deliveries of one message in one batch: the first is claimed, the others share its fate.
struct Twins {
    flights: Vec<Flight>,
    record: RecordId,
    work: Work,
    attempt: Arc<AtomicU32>,
    deliveries: u32,
}

impl Run {
    /// Claims the named ones in one round trip and sees each to its settlement. There is a turn for each.
    pub(super) async fn take(self: &Arc<Self>, deliveries: Vec<Placed>, mut turns: OwnedSemaphorePermit) {
        let Consumer { name, engine, ids, .. } = &self.consumer;
        let mut twins: Vec<Twins> = Vec::new();
        let mut calls = Vec::new();
        let mut known: HashMap<(RecordId, Fingerprint), usize> = HashMap::new();
        for (delivery, place) in deliveries {
            self.flights.take_off(delivery.tag);
            let flight = Flight { tag: delivery.tag, place };
            let Some(id) = ids.find(&delivery.message) else {
                self.nameless(delivery, flight, turns.split(1)).await;
                continue;
            };
            let fingerprint = engine.fingerprint().field("body", &delivery.message.body).finish();
            let request = Request::new(engine.secret(), id.for_consumer(name), fingerprint.clone());
            match known.entry((request.id(), fingerprint)) {
                Entry::Occupied(first) => twins[*first.get()].flights.push(flight),
                Entry::Vacant(slot) => {
                    slot.insert(twins.len());
                    let attempt = Arc::new(AtomicU32::new(0));
                    let deliveries = delivery.deliveries.unwrap_or(1);
                    let work = Work { message: Arc::new(delivery.message), id: Some(id), execution: None };
                    let (record, flights) = (request.id(), vec![flight]);
                    calls.push((request, self.work(work.clone(), &attempt, turns.split(1))));
                    twins.push(Twins { flights, record, work, attempt, deliveries });
                }
            }
        }
        if twins.is_empty() {
            return;
        }
        match engine.perform_many(calls) {
            Ok(performing) => {
                for (twins, performing) in twins.into_iter().zip(performing) {
                    self.tasks.spawn(Arc::clone(self).see_through(twins, performing));
                }
            }
            // Shutting down: nothing was begun.
            Err(_) => {
                for flight in twins.into_iter().flat_map(|twins| twins.flights) {
                    self.settle(flight, Settlement::Retry { after: Duration::ZERO }, Fate::GivenBack).await;
                }
            }
        }
    }

    /// What runs under the grant of a message, in its turn.
    fn work(
        self: &Arc<Self>,
        work: Work,
        attempt: &Arc<AtomicU32>,
        turn: Option<OwnedSemaphorePermit>,
    ) -> impl FnOnce(Execution) -> std::pin::Pin<Box<dyn Future<Output = Ending<Ended>> + Send>> + Send + 'static
    {
        let (handler, attempt) = (Arc::clone(&self.consumer.handler), Arc::clone(attempt));
        move |execution| {
            Box::pin(async move {
                let _turn = turn;
                attempt.store(execution.attempt(), Ordering::Relaxed);
                ending(handler.handle(Work { execution: Some(execution), ..work }).await)
            })
        }
    }

    async fn see_through(self: Arc<Self>, twins: Twins, performing: Performing<Ended>) {
        let replied = performing.await;
        if let Err(error) = &replied {
            tracing::warn!(%error, source = ?std::error::Error::source(error), "a message was not begun");
        }
        let attempt = twins.attempt.load(Ordering::Relaxed);
        let outcome = done(&replied).cloned();
        let (settlement, fate) = self.consumer.rulings.settle(replied, attempt, twins.deliveries);
        if fate == Fate::StoreFailed {
            self.store_is_away.store(true, Ordering::Relaxed);
        }
        let mut fate = fate;
        for flight in twins.flights {
            if let (Fate::Duplicate, Some(outcome)) = (fate, &outcome) {
                // Whatever it does, the delivery is settled.
                let told = AssertUnwindSafe(|| {
                    self.consumer.handler.duplicate(&twins.work, &twins.record, outcome);
                });
                if catch_unwind(told).is_err() {
                    tracing::warn!(consumer = &*self.consumer.name, "the handler panicked at a duplicate");
                }
            }
            self.settle(flight, settlement.clone(), fate).await;
            if fate == Fate::Done {
                fate = Fate::Duplicate;
            }
        }
    }

    async fn settle(&self, flight: Flight, settlement: Settlement, fate: Fate) {
        self.consumer.counts.fate(fate);
        if let Settlement::DeadLetter { reason } = &settlement {
            tracing::warn!(
                consumer = &*self.consumer.name,
                reason,
                ?fate,
                "a message goes to the dead letters"
            );
        } else if fate == Fate::Mismatched {
            tracing::warn!(consumer = &*self.consumer.name, "a message's id was used for another message");
        }
        let Flight { tag, place } = flight;
        // The settler outlives every sender, unless it was given up at the end of a shutdown.
        let _ = self.settling.send(Settling { tag, settlement, _place: place }).await;
    }

    async fn nameless(
        self: &Arc<Self>,
        delivery: Delivery,
        flight: Flight,
        turn: Option<OwnedSemaphorePermit>,
    ) {
        match self.consumer.on_missing_id {
            OnMissingId::DeadLetter => {
                let (settlement, _) = dead("nothing names it: it cannot be told from its duplicates");
                self.settle(flight, settlement, Fate::Nameless).await;
            }
            OnMissingId::Run => {
                self.tasks.spawn(Arc::clone(self).run_unprotected(delivery, flight, turn));
            }
        }
    }

    /// Runs a message that nothing names, at every delivery.
    async fn run_unprotected(
        self: Arc<Self>,
        delivery: Delivery,
        flight: Flight,
        _turn: Option<OwnedSemaphorePermit>,
    ) {
        let attempt = delivery.deliveries.unwrap_or(1);
        let work = Work { message: Arc::new(delivery.message), id: None, execution: None };
        let handler: Arc<dyn Handler> = Arc::clone(&self.consumer.handler);
        // A task of its own: a panic stays in there.
        let handled = tokio::spawn(async move { handler.handle(work).await }).await;
        let rulings = &self.consumer.rulings;
        let (settlement, fate) = match handled {
            Ok(Handled::Done(_)) => (Settlement::Ack, Fate::Nameless),
            Ok(Handled::Retry { why, after }) => rulings.failed(&why, after, attempt),
            Ok(Handled::Unknown { why }) => rulings.failed(&why, None, attempt),
            Ok(Handled::Refused { why }) => dead(why),
            Err(_) => rulings.failed("the handler panicked", None, attempt),
        };
        self.settle(flight, settlement, fate).await;
    }
}
