//! Keeps the lease of a running attempt, and knows when it can no longer be kept.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::alarm::{Alarm, Waiting};
use super::shared::Shared;
use crate::clock::Timestamp;
use crate::lease::Lease;
use crate::observe::Event;
use crate::store::StoreError;
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
    /// It goes on while other things are waited for, one after the other.
    renewing: Option<Renewing>,
}

/// A renewal on its way.
struct Renewing {
    sent_at: Timestamp,
    answer: Pin<Box<dyn Future<Output = Result<RenewAnswer, StoreError>> + Send>>,
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
        Self { shared, renew, next, deadline, lease_ends_at, is_lost: false, alarm, renewing: None }
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
            if self.renewing.is_none() {
                let due = self.next.min(self.deadline);
                // Most attempts end before this does, and never ask for the time.
                self.alarm.until(due.min(at), &*self.shared.clock).await;
                if at < due {
                    return;
                }
                self.send();
            } else if !self.is_answered(at).await {
                return;
            }
        }
    }

    /// Sends a renewal, if there is still time for it.
    fn send(&mut self) {
        let now = self.shared.clock.now();
        if now >= self.deadline {
            return self.lose();
        }
        let (shared, renew) = (Arc::clone(&self.shared), self.renew.clone());
        let renewing = Box::pin(async move { shared.store.renew(&renew).await });
        self.renewing = Some(Renewing { sent_at: now, answer: renewing });
    }

    /// Whether the renewal came to an end before `at`, with the lease or without.
    async fn is_answered(&mut self, at: Timestamp) -> bool {
        let Some(Renewing { sent_at, answer }) = &mut self.renewing else { return true };
        let sent_at = *sent_at;
        let answer = tokio::select! {
            answer = answer => answer,
            () = self.alarm.until(self.deadline.min(at), &*self.shared.clock) => {
                let is_too_late = self.deadline <= at;
                if is_too_late {
                    self.lose();
                }
                return is_too_late;
            }
        };
        self.renewing = None;
        match answer {
            Ok(RenewAnswer::Renewed(left)) => {
                // ORDER: the deadline counts from before the renewal was sent.
                (self.deadline, self.lease_ends_at) = (deadline(sent_at, left), sent_at + left);
                self.next = sent_at + interval(self.renew.lease);
            }
            Ok(RenewAnswer::Fenced) => self.lose(),
            Err(error) => {
                self.shared.observe_failure(&self.renew.token.id, self.renew.token.fence, &error);
                // A failed renewal is tried again this soon; the deadline bounds how often.
                let soon = interval(self.renew.lease) / RENEWALS_PER_LEASE;
                self.next = self.shared.clock.now() + soon;
            }
        }
        true
    }

    fn lose(&mut self) {
        (self.is_lost, self.renewing) = (true, None);
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
