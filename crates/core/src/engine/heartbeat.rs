//! Keeps the lease of a running attempt, and knows when it can no longer be kept.

use std::sync::Arc;
use std::time::Duration;

use super::shared::Shared;
use crate::clock::Timestamp;
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
}

impl Heartbeat {
    /// The heartbeat of a grant whose claim was sent at `claimed_at`.
    pub(super) fn new(shared: Arc<Shared>, token: Token, lease: Lease, claimed_at: Timestamp) -> Self {
        let deadline = deadline(claimed_at, lease.get());
        let lease_ends_at = claimed_at + lease.get();
        Self { shared, renew: Renew { token, lease }, renewed_at: claimed_at, deadline, lease_ends_at }
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
            let now = self.shared.clock.now();
            if now >= self.deadline {
                break;
            }
            if now < next {
                self.shared.clock.sleep_until(next.min(self.deadline)).await;
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
}

fn deadline(sent_at: Timestamp, lease: Duration) -> Timestamp {
    sent_at + lease / MARGIN_OF_LEASE * (MARGIN_OF_LEASE - 1)
}
