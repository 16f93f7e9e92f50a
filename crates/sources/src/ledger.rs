//! What was delivered and is not settled yet, and what waits to be fetched. Knows no broker.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onlyonce_inbox::source::FETCH_MAX;
use onlyonce_inbox::{Delivery, Message, SourceError, Tag};
use tokio::sync::Notify;

/// The deliveries of one source. `H` is what the broker knows each of them by.
#[derive(Debug)]
pub(crate) struct Ledger<H> {
    state: Mutex<State<H>>,
    /// Wakes those who fetch.
    arrived: Notify,
    /// Wakes whoever reads from the broker.
    asked: Notify,
}

#[derive(Debug)]
struct State<H> {
    next: u64,
    /// Delivered by the broker, and fetched by nobody yet. Each of them is also in `open`.
    ready: VecDeque<Delivery>,
    open: HashMap<Tag, H>,
    /// How many deliveries those who wait would take.
    wanted: usize,
    /// Why nothing arrives, until somebody was told.
    failure: Option<SourceError>,
    is_closed: bool,
}

/// How a message was delivered before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It is counted: this is delivery number so much.
    #[cfg(any(feature = "redis-streams", feature = "nats", feature = "kafka", test))]
    Counted(u32),
    /// The broker says only whether there was one.
    #[cfg(any(feature = "rabbitmq", feature = "kafka"))]
    Flagged(bool),
}

impl<H> Ledger<H> {
    pub(crate) fn new() -> Self {
        let state = State {
            next: 1,
            ready: VecDeque::new(),
            open: HashMap::new(),
            wanted: 0,
            failure: None,
            is_closed: false,
        };
        Self { state: Mutex::new(state), arrived: Notify::new(), asked: Notify::new() }
    }

    /// Waits for deliveries and takes up to `max` of them. None: closed.
    pub(crate) async fn fetch(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let max = max.clamp(1, FETCH_MAX);
        let _wish = Wish::new(self, max);
        loop {
            let mut arrived = std::pin::pin!(self.arrived.notified());
            // ORDER: listen before looking, or what arrives in between wakes nobody.
            arrived.as_mut().enable();
            {
                let mut state = self.state();
                if state.is_closed {
                    return Ok(Vec::new());
                }
                if !state.ready.is_empty() {
                    let count = max.min(state.ready.len());
                    return Ok(state.ready.drain(..count).collect());
                }
                if let Some(failure) = state.failure.take() {
                    return Err(failure);
                }
            }
            arrived.await;
        }
    }

    /// Waits until somebody would take more than is ready, and says how many.
    #[cfg(any(feature = "redis-streams", feature = "nats", feature = "kafka", test))]
    pub(crate) async fn demand(&self) -> usize {
        loop {
            let mut asked = std::pin::pin!(self.asked.notified());
            asked.as_mut().enable();
            let missing = {
                let state = self.state();
                state.wanted.saturating_sub(state.ready.len())
            };
            if missing > 0 {
                return missing.min(FETCH_MAX);
            }
            asked.await;
        }
    }

    /// Puts a delivery where `fetch` finds it. What arrives after closing is only kept, to be given back.
    pub(crate) fn deliver(&self, message: Message, before: Before, handle: H) {
        let mut state = self.state();
        let tag = Tag::new(state.next);
        state.next += 1;
        let delivery = match before {
            #[cfg(any(feature = "redis-streams", feature = "nats", feature = "kafka", test))]
            Before::Counted(deliveries) => Delivery::new(tag, message).counted(deliveries),
            #[cfg(any(feature = "rabbitmq", feature = "kafka"))]
            Before::Flagged(redelivered) => Delivery::new(tag, message).redelivered(redelivered),
        };
        state.open.insert(tag, handle);
        if !state.is_closed {
            state.ready.push_back(delivery);
        }
        state.failure = None;
        drop(state);
        self.arrived.notify_waiters();
    }

    /// How many deliveries wait to be fetched.
    #[cfg(feature = "kafka")]
    pub(crate) fn ready(&self) -> usize {
        self.state().ready.len()
    }

    /// Tells the next one who fetches why nothing arrives.
    pub(crate) fn fail(&self, failure: SourceError) {
        self.state().failure = Some(failure);
        self.arrived.notify_waiters();
    }

    /// All is well again: nobody need be told of a failure that is over.
    pub(crate) fn recover(&self) {
        self.state().failure = None;
    }

    /// Takes a delivery out, to settle it: nobody else can meanwhile.
    pub(crate) fn take(&self, tag: Tag) -> Option<H> {
        self.state().open.remove(&tag)
    }

    /// Puts one back that could not be settled.
    pub(crate) fn restore(&self, tag: Tag, handle: H) {
        self.state().open.insert(tag, handle);
    }

    /// Takes every delivery out that `is_gone`, also from those that wait to be fetched.
    #[cfg(any(feature = "rabbitmq", feature = "kafka", test))]
    pub(crate) fn forget(&self, is_gone: impl Fn(&H) -> bool) -> usize {
        let mut state = self.state();
        let gone: Vec<Tag> =
            state.open.iter().filter(|(_, handle)| is_gone(handle)).map(|(tag, _)| *tag).collect();
        for tag in &gone {
            state.open.remove(tag);
        }
        state.ready.retain(|delivery| !gone.contains(&delivery.tag));
        gone.len()
    }

    /// No more fetching.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.ready.clear();
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Takes out everything that is not settled.
    pub(crate) fn drain(&self) -> Vec<H> {
        self.state().open.drain().map(|(_, handle)| handle).collect()
    }

    fn state(&self) -> MutexGuard<'_, State<H>> {
        // Nothing in here panics half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H: Clone> Ledger<H> {
    /// What the broker knows a delivery by.
    pub(crate) fn handle(&self, tag: Tag) -> Option<H> {
        self.state().open.get(&tag).cloned()
    }
}

/// Somebody waits for this many deliveries, for as long as this lives.
struct Wish<'a, H> {
    ledger: &'a Ledger<H>,
    count: usize,
}

impl<'a, H> Wish<'a, H> {
    fn new(ledger: &'a Ledger<H>, count: usize) -> Self {
        ledger.state().wanted += count;
        ledger.asked.notify_waiters();
        Self { ledger, count }
    }
}

impl<H> Drop for Wish<'_, H> {
    fn drop(&mut self) {
        self.ledger.state().wanted -= self.count;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use onlyonce_inbox::SourceErrorKind;

    use super::*;

    fn deliver(ledger: &Ledger<u8>, handle: u8) {
        ledger.deliver(Message::new(vec![handle]), Before::Counted(1), handle);
    }

    #[tokio::test]
    async fn a_fetch_that_is_dropped_loses_nothing() {
        let ledger = Arc::new(Ledger::new());
        let fetching = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { ledger.fetch(2).await.map(|found| found.len()) }
        });
        assert_eq!(ledger.demand().await, 2);
        fetching.abort();
        assert!(fetching.await.is_err());
        deliver(&ledger, 7);
        let found = ledger.fetch(2).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!((ledger.take(found[0].tag), ledger.take(found[0].tag)), (Some(7), None));
    }

    #[tokio::test]
    async fn a_failure_is_told_once_and_forgotten_when_it_is_over() {
        let ledger = Ledger::<u8>::new();
        let failure = || SourceError::new(SourceErrorKind::Unavailable, "testing");
        ledger.fail(failure());
        assert!(ledger.fetch(1).await.is_err());
        ledger.fail(failure());
        deliver(&ledger, 1);
        assert_eq!(ledger.fetch(1).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn closing_wakes_who_waits_and_keeps_what_is_open() {
        let ledger = Arc::new(Ledger::new());
        deliver(&ledger, 1);
        deliver(&ledger, 2);
        let found = ledger.fetch(1).await.unwrap();
        let waiting = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move {
                ledger.fetch(1).await.unwrap();
                ledger.fetch(1).await.map(|found| found.len())
            }
        });
        ledger.demand().await;
        ledger.close();
        assert_eq!(waiting.await.unwrap().unwrap(), 0);
        assert_eq!(ledger.take(found[0].tag), Some(1));
        assert_eq!(ledger.drain(), [2]);
    }

    #[tokio::test]
    async fn what_is_revoked_is_neither_fetched_nor_settled() {
        let ledger = Ledger::new();
        deliver(&ledger, 1);
        deliver(&ledger, 2);
        assert_eq!(ledger.forget(|handle| *handle == 1), 1);
        let found = ledger.fetch(5).await.unwrap();
        assert_eq!((found.len(), ledger.handle(found[0].tag)), (1, Some(2)));
    }
}
