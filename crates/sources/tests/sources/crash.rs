//! The crash windows of `onlyonce_inbox::suite` on real brokers: what a killed consumer held comes back to another.
//!
//! The consumers' time and the store's is moved by hand, as fast as the broker's own passes: a machine that stalls does
//! not end a lease.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Clock, Lease, MemoryLimits, MemoryStore, Store};
use onlyonce_inbox::Message;
use onlyonce_testkit::ManualClock;

/// How often whoever waits looks again.
pub(crate) const STEP: Duration = Duration::from_millis(5);

/// A stage with a store, and the time they go by.
pub(crate) struct Crash<S> {
    pub(crate) stage: S,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
}

impl<S> Crash<S> {
    pub(crate) fn on(stage: S) -> Arc<Self> {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>, MemoryLimits::default()));
        // Also while the suite waits for a process to end, which may wait for its own time.
        let ticking = Arc::downgrade(&clock);
        tokio::spawn(async move {
            while let Some(clock) = ticking.upgrade() {
                clock.advance(STEP);
                drop(clock);
                // tidy: sleep because the broker's own time passes
                tokio::time::sleep(STEP).await;
            }
        });
        Arc::new(Self { stage, clock, store })
    }
}

/// Long for a thread to stall, short for a retry to wait for a part of it.
pub(crate) fn lease() -> Lease {
    Lease::new(Duration::from_secs(8)).expect("a lease")
}

/// A dead letter as the suite wants it.
pub(crate) fn letter((headers, body): (Vec<(String, String)>, Vec<u8>)) -> Message {
    headers.into_iter().fold(Message::new(body), |message, (name, value)| message.with_header(name, value))
}

/// The suite's fixture on a stage: `$options` for its sources, and what the stage does when deliveries are taken away,
/// when a lease's time passes, and while the suite waits.
#[macro_export]
macro_rules! crash_fixture {
    ($stage:ty, $options:expr, $take_away:expr, $pass:expr, $idle:expr) => {
        impl onlyonce_inbox::suite::Fixture for $crate::crash::Crash<$stage> {
            async fn open(&self) -> std::sync::Arc<dyn onlyonce_inbox::Source> {
                std::sync::Arc::from(self.stage.open($options).await)
            }

            async fn store(&self) -> std::sync::Arc<dyn onlyonce_core::Store> {
                std::sync::Arc::clone(&self.store)
            }

            async fn publish(&self, message: onlyonce_inbox::Message) {
                let text = |value: &bytes::Bytes| String::from_utf8_lossy(value).into_owned();
                let headers: Vec<_> =
                    message.headers.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
                let headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
                self.stage.publish(&headers, &message.body).await;
            }

            async fn dead_letters(&self) -> Vec<onlyonce_inbox::Message> {
                self.stage.dead_letters().await.into_iter().map($crate::crash::letter).collect()
            }

            async fn take_away(&self) {
                ($take_away)(&self.stage).await;
            }

            fn clock(&self) -> std::sync::Arc<dyn onlyonce_core::Clock> {
                std::sync::Arc::clone(&self.clock) as _
            }

            fn lease(&self) -> onlyonce_core::Lease {
                $crate::crash::lease()
            }

            async fn pass(&self, time: std::time::Duration) {
                self.clock.advance(time);
                ($pass)(&self.stage).await;
            }

            async fn idle(&self) {
                // tidy: sleep because the broker's own time passes
                tokio::time::sleep($crate::crash::STEP).await;
                ($idle)(&self.stage).await;
            }
        }
    };
}

/// Windows at once, each on a stage of its own; all but Z, which takes deliveries away, when none is named.
#[macro_export]
macro_rules! crash_windows {
    (|$name:ident| $stage:expr) => {
        $crate::crash_windows!(|$name| $stage;
            w0_killed_before_the_claim,
            w1_killed_before_the_effect,
            w2_killed_before_the_mark,
            w2_killed_before_the_mark_under_hold,
            w3_killed_before_the_acknowledgement,
            f_failed_and_tried_again,
            x_the_store_is_away,
            p_kills_every_process,
            d_published_twice,
            k_killed_again_and_again,
        )
    };
    (|$name:ident| $stage:expr; $($window:ident),+ $(,)?) => { async {
        tokio::join!($(async {
            let $name = stringify!($window);
            let fixture = $crate::crash::Crash::on($stage);
            onlyonce_inbox::suite::$window(fixture, onlyonce_inbox::suite::Ledger::default()).await;
        }),+)
    } };
}
