//! What the tests stand on: effects that are counted, and a consumer of a broker in this process.

pub(crate) mod counted;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{Lease, MemoryLimits, MemoryStore, Policy, Store};
use onlyonce_inbox::consumer::message_policy;
use onlyonce_inbox::{
    Backoff, Consumer, ConsumerBuilder, ConsumerError, Counts, Handled, Handler, MemoryBroker, Message,
    Tally, Work,
};
use onlyonce_testkit::ManualClock;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// How often each message had its effect.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Arc<Mutex<BTreeMap<String, u32>>>);

impl Effects {
    pub(crate) fn add(&self, work: &Work) {
        let name = String::from_utf8(work.message().body.to_vec()).unwrap();
        *self.0.lock().unwrap().entry(name).or_default() += 1;
    }

    pub(crate) fn of(&self, name: &str) -> u32 {
        self.0.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u32> {
        self.0.lock().unwrap().clone()
    }

    /// A handler that has its effect and is done.
    pub(crate) fn handler(&self) -> impl Handler + use<> {
        let effects = self.clone();
        move |work: Work| {
            effects.add(&work);
            async { Handled::done() }
        }
    }
}

/// A broker, a store and a clock moved by hand for all of them.
pub(crate) struct Stage {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) broker: MemoryBroker,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) effects: Effects,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        let broker = MemoryBroker::new(clock.clone());
        Self { clock, broker, store, effects: Effects::default() }
    }

    pub(crate) fn on(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn publish(&self, name: &str) {
        self.broker.publish(message(name));
    }

    pub(crate) fn builder(&self, handler: impl Handler) -> ConsumerBuilder {
        Consumer::builder("billing", Arc::new(self.broker.source()), self.store.clone(), handler)
            .clock(self.clock.clone())
            .policy(policy())
            .backoff(Backoff { first: Duration::from_secs(1), longest: Duration::from_mins(5) })
    }

    /// Starts a consumer with this handler.
    pub(crate) async fn start(&self, handler: impl Handler) -> Started {
        Started::new(self.builder(handler).build().await.unwrap())
    }

    /// Waits until every message is acknowledged or dead.
    pub(crate) async fn settled(&self) {
        self.broker.until(|broker| broker.unsettled() == 0).await;
    }

    /// Moves the clock, by a second at a time, until what is delayed has come again and is settled.
    pub(crate) async fn settled_in_time(&self) {
        loop {
            self.broker.until(|broker| broker.out() == 0).await;
            if self.broker.unsettled() == 0 {
                return;
            }
            self.clock.advance(Duration::from_secs(1));
            self.broker.until(|broker| broker.delayed() > 0 || broker.unsettled() == 0).await;
        }
    }
}

pub(crate) fn policy() -> Policy {
    message_policy().lease(Lease::new(LEASE).unwrap()).attempts_max(3)
}

pub(crate) fn message(name: &str) -> Message {
    Message::new(name.to_owned()).with_header("event-id", format!("id of {name}"))
}

/// A consumer at work.
pub(crate) struct Started {
    pub(crate) counts: Arc<Counts>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<Result<(), ConsumerError>>,
}

impl Started {
    pub(crate) fn new(consumer: Consumer) -> Self {
        let counts = consumer.counts();
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(consumer.run(async move {
            let _ = stopped.await;
        }));
        Self { counts, stop: Some(stop), running }
    }

    pub(crate) fn tell_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops it and gives its numbers. A delivery that was fetched and not settled fails the test.
    pub(crate) async fn stop(mut self) -> Tally {
        self.tell_to_stop();
        self.running.await.unwrap().unwrap();
        let counts = self.counts.now();
        assert_eq!(counts.settled + counts.gone, counts.fetched, "every delivery is settled: {counts:?}");
        counts
    }
}

/// A handler that stops half way until it is let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Door {
    arrived: Arc<Notify>,
    open: Arc<Notify>,
}

impl Door {
    pub(crate) async fn pass(&self) {
        self.arrived.notify_one();
        self.open.notified().await;
    }

    pub(crate) async fn reached(&self) {
        self.arrived.notified().await;
    }

    pub(crate) fn let_go(&self) {
        self.open.notify_one();
    }
}

/// Lets everyone do what they can without more time: on one thread, nothing is left over after so many turns.
pub(crate) async fn quiet() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// Runs a test on two threads.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(test)
}
