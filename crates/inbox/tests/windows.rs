//! The broker in this process keeps the contract of a source, and every crash window holds on it, with time moved by hand.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, MemoryLimits, MemoryStore, Store};
use onlyonce_inbox::suite::{Fixture, Ledger};
use onlyonce_inbox::{MemoryBroker, Message, Source, Trouble};
use onlyonce_testkit::ManualClock;

struct InMemory {
    clock: Arc<ManualClock>,
    broker: MemoryBroker,
    store: Arc<dyn Store>,
    /// How many settlements fail after deliveries were taken away. Then time goes on by itself, for those who try again.
    refusals: usize,
}

impl InMemory {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        Self { broker: MemoryBroker::new(clock.clone()), clock, store, refusals: 0 }
    }
}

impl Fixture for InMemory {
    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.broker.source())
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn publish(&self, message: Message) {
        self.broker.publish(message);
    }

    async fn dead_letters(&self) -> Vec<Message> {
        self.broker.dead_letters().into_iter().map(|(message, _)| message).collect()
    }

    async fn take_away(&self) {
        self.broker.revoke_all();
        self.broker.trouble(Trouble::RefuseSettlement, self.refusals);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn lease(&self) -> Lease {
        Lease::DEFAULT
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    async fn idle(&self) {
        const STEP: Duration = Duration::from_millis(1);
        if self.refusals > 0 {
            // tidy: sleep because time must go on, and no faster than that of a process that stalls
            tokio::time::sleep(STEP).await;
            return self.clock.advance(STEP);
        }
        if self.broker.out() == 0 && self.broker.delayed() > 0 {
            self.clock.advance(Duration::from_millis(100));
        }
        tokio::task::yield_now().await;
    }
}

mod leased {
    use super::{InMemory, Ledger};

    onlyonce_inbox::crash_suite!(async { InMemory::new() }, |_: &InMemory| Ledger::default());

    /// The one that was frozen settles at a second or third try, for which it has to wait.
    #[test]
    fn z_paused_past_its_lease_on_a_broker_that_is_away_then() {
        let make = async { InMemory { refusals: 4, ..InMemory::new() } };
        onlyonce_inbox::suite::run(make, |fixture| {
            onlyonce_inbox::suite::z_paused_past_its_lease(fixture, Ledger::default())
        });
    }
}

mod contract {
    use super::InMemory;

    onlyonce_inbox::source_suite!(async { InMemory::new() });
}
