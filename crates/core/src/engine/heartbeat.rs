//! Keeps the lease of a running attempt, and knows when it can no longer be kept.

use std::sync::Arc;
use std::time::Duration;

use super::alarm::{Alarm, Waiting};
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
    /// When the next renewal is due.
    next: Timestamp,
    /// When the owner must stop, on its own clock.
    deadline: Timestamp,
    lease_ends_at: Timestamp,
    is_lost: bool,
    alarm: Alarm,
}

impl Heartbeat {
    /// The heartbeat of a grant whose claim was sent at `claimed_at`, and was waited for with `alarm`.
    pub(super) fn new(
        shared: Arc<Shared>,
        token: Token,
        lease: Lease,
        claimed_at: Timestamp,
        alarm: Alarm,
    ) -> Self {
        let deadline = deadline(claimed_at, lease.get());
        let lease_ends_at = claimed_at + lease.get();
        let next = claimed_at + interval(lease);
        let renew = Renew { token, lease };
        Self { shared, renew, next, deadline, lease_ends_at, is_lost: false, alarm }
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
        self.keep_until(Timestamp::MAX).await;
    }

    /// The same, but no longer than until `at`.
    async fn keep_until(&mut self, at: Timestamp) {
        while !self.is_lost {
            let due = self.next.min(self.deadline);
            // Most attempts end before this does, and never ask for the time.
            self.alarm.until(due.min(at), &*self.shared.clock).await;
            if at < due {
                return;
            }
            self.beat(at).await;
            if self.shared.clock.now() >= at {
                return;
            }
        }
    }

    /// Renews the lease, if there is still time for it. What is not answered until `at` is sent again later.
    async fn beat(&mut self, at: Timestamp) {
        let now = self.shared.clock.now();
        if now >= self.deadline {
            return self.lose();
        }
        let Self { shared, renew, alarm, .. } = self;
        let answer = tokio::select! {
            answer = shared.store.renew(renew) => answer,
            () = alarm.until(self.deadline.min(at), &*shared.clock) => {
                if self.deadline <= at {
                    self.lose();
                }
                return;
            }
        };
        match answer {
            Ok(RenewAnswer::Renewed(left)) => {
                // ORDER: the deadline counts from before the renewal was sent.
                (self.deadline, self.lease_ends_at) = (deadline(now, left), now + left);
                self.next = now + interval(self.renew.lease);
            }
            Ok(RenewAnswer::Fenced) => self.lose(),
            Err(error) => {
                self.shared.observe_failure(&self.renew.token.id, self.renew.token.fence, &error);
                // A failed renewal is tried again this soon; the deadline bounds how often.
                let soon = interval(self.renew.lease) / RENEWALS_PER_LEASE;
                self.next = self.shared.clock.now() + soon;
            }
        }
    }

    fn lose(&mut self) {
        self.is_lost = true;
        self.shared.observe(&self.renew.token.id, self.renew.token.fence, Event::LeaseLost);
    }
}

impl Waiting for Heartbeat {
    /// Keeps the lease meanwhile. Its end does not end the wait: a late completion by the same fence is welcome.
    async fn until(&mut self, at: Timestamp) {
        self.keep_until(at).await;
        self.alarm.until(at, &*self.shared.clock).await;
    }
}

fn interval(lease: Lease) -> Duration {
    lease.get() / RENEWALS_PER_LEASE
}

fn deadline(sent_at: Timestamp, lease: Duration) -> Timestamp {
    sent_at + lease / MARGIN_OF_LEASE * (MARGIN_OF_LEASE - 1)
}
