//! A simulated process: a runtime of its own with one consumer, that can be killed, paused and ended.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onlyonce_core::clock::Sleep;
use onlyonce_core::{Clock, Policy, Store, Timestamp};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;

use super::stops::{Stops, Window};
use super::{Effect, Fixture};
use crate::consumer::{Consumer, Counts, OnShortRetention, Tally};
use crate::decision::Backoff;
use crate::handler::{Handled, Work};
use crate::source::{
    Delivery, Extended, Horizon, Settled, Settlement, Source, SourceError, SourceFuture, Tag,
};

/// How long ending or killing a process may take before its threads are left to themselves.
const END_WITHIN: Duration = Duration::from_secs(30);

/// How long a process may take to end before time passes for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How a process is to run.
pub(super) struct Plan {
    pub(super) stops: Stops,
    pub(super) policy: Policy,
    /// Whether its store is away.
    pub(super) store_is_away: bool,
    /// How many attempts fail before one has its effect.
    pub(super) failures: u32,
}

pub(super) struct Process {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    ended: Option<oneshot::Receiver<()>>,
    counts: Arc<Counts>,
    clock: Arc<PausableClock>,
}

impl Process {
    pub(super) async fn start<F: Fixture, E: Effect>(fixture: &Arc<F>, effect: &E, plan: Plan) -> Self {
        let (fixture, effect) = (Arc::clone(fixture), effect.clone());
        let starting = tokio::task::spawn_blocking(move || Self::start_here(&*fixture, effect, plan));
        starting.await.expect("a process starts")
    }

    fn start_here<F: Fixture, E: Effect>(fixture: &F, effect: E, plan: Plan) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let clock = Arc::new(PausableClock::new(fixture.clock()));
        let consumer = runtime.block_on(consumer(fixture, effect, plan, Arc::clone(&clock)));
        let counts = consumer.counts();
        let (stop, stopped) = oneshot::channel::<()>();
        let (end, ended) = oneshot::channel();
        runtime.spawn(async move {
            let stopped = async move {
                let _ = stopped.await;
            };
            consumer.run(stopped).await.expect("the source goes on");
            let _ = end.send(());
        });
        Self { runtime: Some(runtime), stop: Some(stop), ended: Some(ended), counts, clock }
    }

    /// Ends it without warning: nothing of it runs again.
    pub(super) async fn kill(mut self) {
        let runtime = self.runtime.take();
        let killing = tokio::task::spawn_blocking(move || {
            if let Some(runtime) = runtime {
                runtime.shutdown_timeout(END_WITHIN);
            }
        });
        killing.await.expect("a process can be killed");
    }

    /// Ends it as an orchestrator would, and gives its numbers.
    pub(super) async fn end<F: Fixture>(mut self, fixture: &F) -> Tally {
        drop(self.stop.take());
        if let Some(mut ended) = self.ended.take() {
            // Something in it may wait for time that is moved by hand, and nobody else moves it any more.
            while timeout(PATIENCE, &mut ended).await.map(|ended| ended.expect("the consumer ends")).is_err()
            {
                fixture.pass(fixture.lease().get() / 8).await;
            }
        }
        let counts = self.counts.now();
        self.kill().await;
        assert_eq!(counts.settled + counts.gone, counts.fetched, "every delivery is settled: {counts:?}");
        counts
    }

    pub(super) fn counts(&self) -> Tally {
        self.counts.now()
    }

    /// Stops its time: it renews nothing, extends nothing and notices nothing.
    pub(super) fn pause(&self) {
        self.clock.is_paused.store(true, Ordering::SeqCst);
    }

    pub(super) fn resume(&self) {
        self.clock.is_paused.store(false, Ordering::SeqCst);
        self.clock.resumed.notify_waiters();
    }
}

async fn consumer<F: Fixture, E: Effect>(
    fixture: &F,
    effect: E,
    plan: Plan,
    clock: Arc<PausableClock>,
) -> Consumer {
    let Plan { stops, policy, store_is_away, failures } = plan;
    let store = fixture.store().await;
    let store: Arc<dyn Store> = if store_is_away { Arc::new(super::away::Away(store)) } else { store };
    let source = Stopping { source: fixture.open().await, stops: stops.clone() };
    let handler = move |work: Work| {
        let (effect, stops) = (effect.clone(), stops.clone());
        async move {
            if work.attempt() <= failures {
                return Handled::retry("on purpose");
            }
            effect.handle(work, stops).await
        }
    };
    // Time that is moved by hand is moved by leases: retries must not need more of it.
    let longest = fixture.lease().get() / 4;
    Consumer::builder("suite", Arc::new(source), store, handler)
        .policy(policy.lease(fixture.lease()))
        .backoff(Backoff { first: longest / 8, longest })
        .on_short_retention(OnShortRetention::Warn)
        .drain_for(fixture.lease().get())
        .clock(clock)
        .build()
        .await
        .expect("a consumer can be built")
}

/// A source that stops after a fetch and before a settlement.
#[derive(Debug)]
struct Stopping {
    source: Arc<dyn Source>,
    stops: Stops,
}

impl Source for Stopping {
    fn fetch(&self, max: usize) -> SourceFuture<'_, Vec<Delivery>> {
        Box::pin(async move {
            let fetched = self.source.fetch(max).await;
            self.stops.pass(Window::W0).await;
            fetched
        })
    }

    fn settle(
        &self,
        settlements: Vec<(Tag, Settlement)>,
    ) -> SourceFuture<'_, Vec<Result<Settled, SourceError>>> {
        Box::pin(async move {
            if settlements.iter().any(|(_, settlement)| *settlement == Settlement::Ack) {
                self.stops.pass(Window::W3).await;
            }
            self.source.settle(settlements).await
        })
    }

    fn extend<'a>(&'a self, tags: &'a [Tag]) -> SourceFuture<'a, Vec<Result<Extended, SourceError>>> {
        self.source.extend(tags)
    }

    fn unsettled_max(&self) -> Option<Duration> {
        self.source.unsettled_max()
    }

    fn horizon(&self) -> Horizon {
        self.source.horizon()
    }

    fn lag(&self) -> SourceFuture<'_, Option<u64>> {
        self.source.lag()
    }

    fn close(&self) -> SourceFuture<'_, ()> {
        self.source.close()
    }
}

/// A clock whose sleepers do not wake while it is paused, as those of a stopped process do not.
struct PausableClock {
    clock: Arc<dyn Clock>,
    is_paused: Arc<AtomicBool>,
    resumed: Arc<Notify>,
}

impl PausableClock {
    fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, is_paused: Arc::default(), resumed: Arc::default() }
    }

    /// `sleep`, and then until it is resumed.
    fn unless_paused(&self, sleep: Sleep) -> Sleep {
        let (is_paused, resumed) = (Arc::clone(&self.is_paused), Arc::clone(&self.resumed));
        Box::pin(async move {
            sleep.await;
            loop {
                let resumed = resumed.notified();
                tokio::pin!(resumed);
                resumed.as_mut().enable();
                if !is_paused.load(Ordering::SeqCst) {
                    return;
                }
                resumed.await;
            }
        })
    }
}

impl Clock for PausableClock {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.unless_paused(self.clock.sleep(duration))
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.unless_paused(self.clock.sleep_until(at))
    }
}

impl fmt::Debug for PausableClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PausableClock({:?})", self.clock)
    }
}
