//! Points at which a process can be made to stop, so that it can be killed or paused there.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

/// Where a process can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Window {
    /// Fetched, not claimed.
    W0,
    /// Claimed, the effect not begun.
    W1,
    /// The effect had (or not yet committed), the mark not set.
    W2,
    /// The mark set, the delivery not settled.
    W3,
}

/// The windows at which one process stops, once each, until it is let go.
#[derive(Debug, Clone, Default)]
pub struct Stops(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    armed: Mutex<Vec<Window>>,
    reached: Notify,
    go_on: Notify,
}

impl Stops {
    /// Stops at `window`.
    pub fn at(window: Window) -> Self {
        let stops = Self::default();
        stops.armed().push(window);
        stops
    }

    /// Passes `window`, or stops there if it is one to stop at.
    pub async fn pass(&self, window: Window) {
        let stops = {
            let mut armed = self.armed();
            let at = armed.iter().position(|armed| *armed == window);
            at.map(|at| armed.swap_remove(at)).is_some()
        };
        if stops {
            self.0.reached.notify_one();
            self.0.go_on.notified().await;
        }
    }

    /// Waits until the process has stopped.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }

    /// Lets it go on.
    pub fn let_go(&self) {
        self.0.go_on.notify_one();
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, Vec<Window>> {
        self.0.armed.lock().expect("nobody panics with it")
    }
}
