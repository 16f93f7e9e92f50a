//! Keeps the lease of a running attempt, and knows when it can no longer be kept.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::clock::{Sleep, Timestamp};
use crate::lease::Lease;
use crate::observe::Event;
use crate::transition::{Renew, RenewAnswer, Token};

/// Renews at a third of the lease, so that two renewals may fail before the lease is in danger.
const RENEWALS_PER_LEASE: u32 = 3;
/// One in so many parts of a lease is given up for safety: the owner stops while the store still keeps the lease.
const MARGIN_OF_LEASE: u32 = 10;

pub(super) struct Heartbeat {
    shared: Arc<Shared>,
    renew: Renew,
    renewed_at: Timestamp,
    /// When the owner must stop, on its own clock.
    deadline: Timestamp,
    lease_ends_at: Timestamp,
    /// When the next renewal is due, and who wakes us then. It outlives a [`Self::keep`] that is not waited for to its
    /// end: a grant is kept twice, while its work runs and while its end is told, and mostly needs no renewal in either.
    waking: Option<(Timestamp, Sleep)>,
}

impl Heartbeat {
    /// The heartbeat of a grant whose claim was sent at `claimed_at`.
    pub(super) fn new(shared: Arc<Shared>, token: Token, lease: Lease, claimed_at: Timestamp) -> Self {
        let deadline = deadline(claimed_at, lease.get());
        let lease_ends_at = claimed_at + lease.get();
        let renew = Renew { token, lease };
        Self { shared, renew, renewed_at: claimed_at, deadline, lease_ends_at, waking: None }
    }

    /// Whether the attempt must not go on, or not even begin.
    pub(super) fn is_over(&self) -> bool {
        self.shared.clock.now() >= self.deadline
    }

    /// When the store may give the record to someone else, at the earliest.
    pub(super) fn lease_ends_at(&self) -> Timestamp {
        self.lease_ends_at
    }

    /// Returns when the lease is lost or about to be: the attempt must not go on.
    pub(super) async fn keep(&mut self) {
        let interval = self.renew.lease.get() / RENEWALS_PER_LEASE;
        // A failed renewal is tried again this soon; the deadline bounds how often.
        let soon = interval / RENEWALS_PER_LEASE;
        let mut next = self.renewed_at + interval;
        loop {
            // Most attempts end before this does, and never ask for the time.
            self.wake_at(next.min(self.deadline)).await;
            let now = self.shared.clock.now();
            if now >= self.deadline {
                break;
            }
            if now < next {
                continue;
            }
            // ORDER: the deadline counts from before the renewal is sent.
            let sent_at = now;
            let answer = tokio::select! {
                answer = self.shared.store.renew(&self.renew) => answer,
                () = self.shared.clock.sleep_until(self.deadline) => break,
            };
            match answer {
                Ok(RenewAnswer::Renewed(left)) => {
                    (self.renewed_at, self.deadline) = (sent_at, deadline(sent_at, left));
                    self.lease_ends_at = sent_at + left;
                    next = sent_at + interval;
                }
                Ok(RenewAnswer::Fenced) => break,
                Err(error) => {
                    self.shared.observe_failure(&self.renew.token.id, self.renew.token.fence, &error);
                    next = self.shared.clock.now() + soon;
                }
            }
        }
        self.shared.observe(&self.renew.token.id, self.renew.token.fence, Event::LeaseLost);
    }

    async fn wake_at(&mut self, at: Timestamp) {
        let (_, sleep) = match &mut self.waking {
            Some(waking) if waking.0 == at => waking,
            other => other.insert((at, self.shared.clock.sleep_until(at))),
        };
        sleep.as_mut().await;
        self.waking = None;
    }
}

fn deadline(sent_at: Timestamp, lease: Duration) -> Timestamp {
    sent_at + lease / MARGIN_OF_LEASE * (MARGIN_OF_LEASE - 1)
}
