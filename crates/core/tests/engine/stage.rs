//! What the engine's tests share: an engine over a faulty memory store, a hand-moved clock, and eyes for events.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{
    Engine, EngineError, Event, Execution, Failure, Fence, Fingerprint, Key, Lease, MemoryLimits,
    MemoryStore, Observer, Policy, Principal, RecordId, RecoveryHook, Run, Scope, ScopedKey, Store,
};
use onlyonce_testkit::{Faulty, ManualClock};
use tokio::sync::{Notify, oneshot};

pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<Faulty>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) effects: Arc<AtomicU32>,
}

pub(crate) type Answer = Result<Run<u32, String>, EngineError>;

impl Stage {
    pub(crate) async fn new(policy: Policy) -> Self {
        Self::with_hook(policy, None).await
    }

    pub(crate) async fn with_hook(policy: Policy, hook: Option<Arc<dyn RecoveryHook>>) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self::over(MemoryStore::new(clock.clone(), MemoryLimits::default()), clock, policy, hook).await
    }

    pub(crate) async fn over(
        store: impl Store,
        clock: Arc<ManualClock>,
        policy: Policy,
        hook: Option<Arc<dyn RecoveryHook>>,
    ) -> Self {
        let store = Arc::new(Faulty::new(Arc::new(store)));
        let seen = Arc::new(Seen::default());
        let mut builder =
            Engine::builder(store.clone()).policy(policy).clock(clock.clone()).observer(seen.clone());
        if let Some(hook) = hook {
            builder = builder.recovery_hook(hook);
        }
        let engine = builder.build().await.unwrap();
        Self { engine, clock, store, seen, effects: Arc::default() }
    }

    pub(crate) fn asked(&self, body: &[u8]) -> Fingerprint {
        self.engine.fingerprint().field("body", body).finish()
    }

    /// Runs work that has its effect and returns `value`.
    pub(crate) async fn call(&self, value: u32) -> Answer {
        self.call_with(move |_| async move { Ok(value) }).await
    }

    /// Runs `work` after its effect was counted.
    pub(crate) async fn call_with<F>(&self, work: impl FnOnce(Execution) -> F + Send + 'static) -> Answer
    where
        F: Future<Output = Result<u32, Failure<String>>> + Send + 'static,
    {
        let effects = self.effects.clone();
        let work = move |execution| {
            effects.fetch_add(1, Ordering::SeqCst);
            work(execution)
        };
        self.engine.run(&key("order-7"), self.asked(b"body"), work).await
    }

    /// Starts work that runs until the returned sender says with what to end. Resolves once the work has begun.
    pub(crate) async fn start(&self) -> (tokio::task::JoinHandle<Answer>, oneshot::Sender<Ended>) {
        let (end, ended) = oneshot::channel::<Ended>();
        let begun = Arc::new(Notify::new());
        let (engine, asked, effects, beginning) =
            (self.engine.clone(), self.asked(b"body"), self.effects.clone(), begun.clone());
        let call = tokio::spawn(async move {
            engine
                .run(&key("order-7"), asked, move |_| async move {
                    effects.fetch_add(1, Ordering::SeqCst);
                    beginning.notify_one();
                    ended.await.unwrap_or_else(|_| panic!("nobody says how to end"))
                })
                .await
        });
        begun.notified().await;
        (call, end)
    }

    pub(crate) fn effects(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }
}

pub(crate) type Ended = Result<u32, Failure<String>>;

pub(crate) fn key(text: &str) -> ScopedKey {
    Scope::new("test", Principal::named("alice")).key(Key::new(text).unwrap())
}

pub(crate) fn policy() -> Policy {
    Policy::default().lease(Lease::new(LEASE).unwrap())
}

/// Remembers events and lets tests wait for one.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    events: Mutex<Vec<Event>>,
    more: Notify,
}

impl Seen {
    pub(crate) async fn until(&self, wanted: Event) {
        loop {
            let more = self.more.notified();
            if self.has(wanted) {
                return;
            }
            more.await;
        }
    }

    pub(crate) fn has(&self, wanted: Event) -> bool {
        self.events.lock().unwrap().contains(&wanted)
    }

    pub(crate) fn count(&self, wanted: Event) -> usize {
        self.events.lock().unwrap().iter().filter(|event| **event == wanted).count()
    }
}

impl Observer for Seen {
    fn event(&self, _: &RecordId, _: Fence, event: Event) {
        self.events.lock().unwrap().push(event);
        self.more.notify_waiters();
    }
}

/// The value of an answer that has one, and whether it was replayed.
#[track_caller]
pub(crate) fn done(answer: Answer) -> (u32, bool) {
    match answer {
        Ok(Run::Done(done)) => (done.value, done.replayed),
        other => panic!("expected a value, got {other:?}"),
    }
}

/// The conflict of an answer.
#[track_caller]
pub(crate) fn conflict(answer: Answer) -> onlyonce_core::Conflict {
    match answer {
        Ok(Run::Conflict(conflict)) => conflict,
        other => panic!("expected a conflict, got {other:?}"),
    }
}

/// Moves the clock whenever someone sleeps on it, until `task` ends.
pub(crate) async fn with_time_passing<T>(stage: &Stage, step: Duration, task: impl Future<Output = T>) -> T {
    let mut task = Box::pin(task);
    loop {
        tokio::select! {
            biased;
            answer = &mut task => return answer,
            () = stage.clock.slept_on_for(Duration::from_millis(1)) => stage.clock.advance(step),
        }
        tokio::task::yield_now().await;
    }
}
