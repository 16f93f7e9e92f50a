//! A clock that stands still until a test moves it, and knows who sleeps on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use onlyonce_core::clock::Sleep;
use onlyonce_core::{Clock, Timestamp};
use tokio::sync::{Notify, oneshot};

/// A clock moved by hand.
pub struct ManualClock {
    state: Mutex<Sleepers>,
    changed: Notify,
}

struct Sleepers {
    now: Timestamp,
    made: u64,
    waiting: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        let state = Mutex::new(Sleepers { now, made: 0, waiting: BTreeMap::new() });
        Self { state, changed: Notify::new() }
    }

    /// Moves the clock and wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.now = state.now + by;
        let first_later = (state.now + Duration::from_millis(1), 0);
        let later = state.waiting.split_off(&first_later);
        let due = std::mem::replace(&mut state.waiting, later);
        drop(state);
        for sleeper in due.into_values() {
            let _ = sleeper.send(());
        }
    }

    /// Waits until someone sleeps for at least `duration` from now: the event to wait for before moving the clock.
    pub async fn slept_on_for(&self, duration: Duration) {
        self.slept_on(|until, now| until >= now + duration).await;
    }

    /// Waits until someone sleeps for exactly `duration` from now: where others sleep for longer anyway.
    pub async fn slept_on_for_exactly(&self, duration: Duration) {
        self.slept_on(|until, now| until == now + duration).await;
    }

    async fn slept_on(&self, is_it: impl Fn(Timestamp, Timestamp) -> bool) {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                state.waiting.retain(|_, sleeper| !sleeper.is_closed());
                if state.waiting.keys().any(|(until, _)| is_it(*until, state.now)) {
                    return;
                }
            }
            changed.await;
        }
    }

    fn slept_until(&self, mut state: MutexGuard<'_, Sleepers>, at: Timestamp) -> Sleep {
        if at <= state.now {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        state.made += 1;
        let key = (at, state.made);
        state.waiting.insert(key, wake);
        drop(state);
        self.changed.notify_waiters();
        Box::pin(async move {
            let _ = woken.await;
        })
    }

    fn state(&self) -> MutexGuard<'_, Sleepers> {
        self.state.lock().unwrap()
    }
}

impl Default for ManualClock {
    /// Starts in 2026, so that times look like times.
    fn default() -> Self {
        Self::at(Timestamp::from_millis(1_790_000_000_000))
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({})", self.state().now)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state().now
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let state = self.state();
        let at = state.now + duration;
        self.slept_until(state, at)
    }

    fn sleep_until(&self, at: Timestamp) -> Sleep {
        self.slept_until(self.state(), at)
    }
}
