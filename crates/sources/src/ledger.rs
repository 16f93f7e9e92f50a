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
    /// How large the bodies among `ready` are together.
    ready_bytes: usize,
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
            ready_bytes: 0,
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
                    let taken = state.take_ready(max);
                    drop(state);
                    // There is room now for whoever reads ahead.
                    self.asked.notify_waiters();
                    return Ok(taken);
                }
                if let Some(failure) = state.failure.take() {
                    return Err(failure);
                }
            }
            arrived.await;
        }
    }

    /// Waits until somebody would take more than is ready, and says how many.
    #[cfg(any(feature = "redis-streams", feature = "nats", test))]
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

    /// Puts deliveries where `fetch` finds them, all at once: whoever waits gets them as one batch. What arrives after
    /// closing is only kept, to be given back.
    pub(crate) fn deliver_all(&self, deliveries: impl IntoIterator<Item = (Message, Before, H)>) {
        let mut state = self.state();
        let next = state.next;
        for (message, before, handle) in deliveries {
            state.deliver(message, before, handle);
        }
        if state.next == next {
            return;
        }
        state.failure = None;
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Puts one delivery where `fetch` finds it.
    #[cfg(any(feature = "rabbitmq", feature = "kafka", test))]
    pub(crate) fn deliver(&self, message: Message, before: Before, handle: H) {
        self.deliver_all([(message, before, handle)]);
    }

    /// How many more deliveries, and bytes of them, may be read ahead when `bytes_max` bytes may.
    #[cfg(feature = "kafka")]
    pub(crate) fn left(&self, bytes_max: usize) -> (usize, usize) {
        let state = self.state();
        (FETCH_MAX.saturating_sub(state.ready.len()), bytes_max.saturating_sub(state.ready_bytes))
    }

    /// Waits until no more than `count` deliveries with `bytes` bytes wait to be fetched.
    #[cfg(feature = "kafka")]
    pub(crate) async fn drained(&self, count: usize, bytes: usize) {
        loop {
            let mut asked = std::pin::pin!(self.asked.notified());
            asked.as_mut().enable();
            {
                let state = self.state();
                if state.ready.len() <= count && state.ready_bytes <= bytes {
                    return;
                }
            }
            asked.await;
        }
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
        let before = state.open.len();
        state.open.retain(|_, handle| !is_gone(handle));
        let gone = before - state.open.len();
        let State { ready, open, .. } = &mut *state;
        ready.retain(|delivery| open.contains_key(&delivery.tag));
        state.ready_bytes = state.ready.iter().map(|delivery| delivery.message.body.len()).sum();
        drop(state);
        self.asked.notify_waiters();
        gone
    }

    /// No more fetching.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.ready.clear();
        state.ready_bytes = 0;
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

impl<H> State<H> {
    fn deliver(&mut self, message: Message, before: Before, handle: H) {
        let tag = Tag::new(self.next);
        self.next += 1;
        let bytes = message.body.len();
        let delivery = match before {
            #[cfg(any(feature = "redis-streams", feature = "nats", feature = "kafka", test))]
            Before::Counted(deliveries) => Delivery::new(tag, message).counted(deliveries),
            #[cfg(any(feature = "rabbitmq", feature = "kafka"))]
            Before::Flagged(redelivered) => Delivery::new(tag, message).redelivered(redelivered),
        };
        self.open.insert(tag, handle);
        if !self.is_closed {
            self.ready.push_back(delivery);
            self.ready_bytes += bytes;
        }
    }

    fn take_ready(&mut self, max: usize) -> Vec<Delivery> {
        let count = max.min(self.ready.len());
        let taken: Vec<Delivery> = self.ready.drain(..count).collect();
        self.ready_bytes -= taken.iter().map(|delivery| delivery.message.body.len()).sum::<usize>();
        taken
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

    #[cfg(feature = "kafka")]
    #[tokio::test]
    async fn there_is_room_again_when_somebody_has_fetched() {
        let ledger = Arc::new(Ledger::new());
        ledger.deliver_all(
            (0..4_u8).map(|handle| (Message::new(vec![handle; 10]), Before::Counted(1), handle)),
        );
        assert_eq!(ledger.left(100), (FETCH_MAX - 4, 60));
        assert_eq!(ledger.left(30), (FETCH_MAX - 4, 0));
        let drained = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { ledger.drained(2, 15).await }
        });
        // Whether it listens by now or looks later, it sees all of this.
        for (fetched, is_over) in [(1, false), (1, false), (1, true)] {
            assert_eq!(ledger.fetch(fetched).await.unwrap().len(), 1);
            if is_over {
                break;
            }
            tokio::task::yield_now().await;
            assert!(!drained.is_finished(), "two are few enough, and too large");
        }
        drained.await.unwrap();
        assert_eq!(ledger.forget(|_| true), 4, "also those that were fetched");
        assert_eq!(ledger.left(100), (FETCH_MAX, 100));
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
