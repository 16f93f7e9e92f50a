//! Whether a grant is lost, and how those who work under it hear of it.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Said once, and heard by all who wait for it then or later.
#[derive(Debug, Default)]
pub(super) struct Lost {
    is_said: AtomicBool,
    said: Notify,
}

impl Lost {
    /// Says that the grant is lost.
    pub(super) fn say(&self) {
        // ORDER: written before anyone is woken, and read by those who wait after they are entered: nobody misses it.
        self.is_said.store(true, Ordering::SeqCst);
        self.said.notify_waiters();
    }

    /// Resolves once it is said.
    pub(super) async fn heard(&self) {
        // Entered when it is made: what is said from here on wakes it.
        let said = self.said.notified();
        if !self.is_said.load(Ordering::SeqCst) {
            said.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn it_is_heard_by_those_who_wait_and_by_those_who_come_later() {
        let lost = Arc::new(Lost::default());
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let lost = Arc::clone(&lost);
                tokio::spawn(async move { lost.heard().await })
            })
            .collect();
        tokio::task::yield_now().await;
        lost.say();
        for waiting in waiting {
            waiting.await.unwrap();
        }
        lost.heard().await;
    }
}
