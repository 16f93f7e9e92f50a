//! The crash windows with effect and mark in one transaction of a real server: none lost, none twice.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, Store};
use onlyonce_inbox::suite::{Fixture, Transactional};
use onlyonce_inbox::{MemoryBroker, Message, Source};

use crate::stage::Stage;

struct OnPostgres {
    stage: Stage,
    broker: MemoryBroker,
    effect: Transactional,
}

impl OnPostgres {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let (broker, effect) = (MemoryBroker::new(stage.clock.clone()), stage.database.effect().await);
        Self { stage, broker, effect }
    }
}

impl Fixture for OnPostgres {
    async fn open(&self) -> Arc<dyn Source> {
        Arc::new(self.broker.source())
    }

    async fn store(&self) -> Arc<dyn Store> {
        self.stage.store().await
    }

    async fn publish(&self, message: Message) {
        self.broker.publish(message);
    }

    async fn dead_letters(&self) -> Vec<Message> {
        self.broker.dead_letters().into_iter().map(|(message, _)| message).collect()
    }

    async fn take_away(&self) {
        self.broker.revoke_all();
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.stage.clock.clone()
    }

    fn lease(&self) -> Lease {
        Lease::DEFAULT
    }

    async fn pass(&self, time: Duration) {
        self.stage.clock.advance(time);
    }

    async fn idle(&self) {
        const STEP: Duration = Duration::from_millis(1);
        if self.broker.out() == 0 && self.broker.delayed() > 0 {
            return self.stage.clock.advance(Duration::from_millis(100));
        }
        // tidy: sleep because time must pass for calls of the server that failed, and no faster than the server's own
        tokio::time::sleep(STEP).await;
        self.stage.clock.advance(STEP);
    }
}

onlyonce_inbox::crash_suite!(OnPostgres::new(), |fixture: &OnPostgres| fixture.effect.clone());

/// As many kills as the long run is asked for: `cargo xtask soak` makes 2,000, whatever its seconds say.
#[test]
fn soak_kills_lose_nothing_and_repeat_nothing() {
    let is_long = std::env::var_os("ONLYONCE_SOAK_SECONDS").is_some();
    let kills = if is_long { 2_000 } else { 4 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let fixture = Arc::new(OnPostgres::new().await);
        let effect = fixture.effect.clone();
        onlyonce_inbox::suite::killed_again_and_again(fixture, effect, kills).await;
    });
    runtime.shutdown_background();
}
