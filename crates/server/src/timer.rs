//! A deadline that is cheap to move: the runtime's timer is touched only when it fires or must fire earlier.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock;

/// A deadline, set or not.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Timer {
    /// Is over after `duration` from now.
    pub(crate) fn set(&mut self, duration: Duration) {
        self.set_until(clock::after(duration));
    }

    /// Is over at `deadline`.
    pub(crate) fn set_until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    pub(crate) fn clear(&mut self) {
        self.deadline = None;
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.deadline.is_some()
    }

    /// Whether the deadline has passed. If not, the task is woken when it does.
    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = self.deadline else { return false };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            match sleep.as_mut().poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(()) if sleep.deadline() >= deadline => {
                    self.deadline = None;
                    self.sleep = None;
                    return true;
                }
                // It was set for an earlier deadline, which has been moved since.
                Poll::Ready(()) => sleep.as_mut().reset(deadline),
            }
        }
    }
}
