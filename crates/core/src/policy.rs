//! How an operation is to be treated: the terms of its claims, and how patient the engine is.
//!
//! Values only. What follows from them is decided in [`transition`](crate::transition) and
//! [`decision`](crate::decision).

use std::time::Duration;

use crate::error::MisuseError;
use crate::lease::{Lease, Retention};
use crate::outcome::Outcome;
use crate::transition::{Terms, UnknownPolicy};

/// The treatment of an operation. Start from the default and change what differs.
///
/// ```
/// use std::time::Duration;
/// use onlyonce_core::{Lease, Policy, UnknownPolicy};
///
/// let policy = Policy::default()
///     .lease(Lease::new(Duration::from_secs(10))?)
///     .wait(Duration::from_secs(2))
///     .unknown(UnknownPolicy::Rerun);
/// policy.check()?;
/// # Ok::<(), onlyonce_core::MisuseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub(crate) terms: Terms,
    pub(crate) wait: Duration,
    pub(crate) waiters_max: usize,
    pub(crate) store_within: Duration,
    pub(crate) claim_for: Duration,
    pub(crate) answer_within: Duration,
    pub(crate) finish_for: Duration,
    pub(crate) quota: Quota,
}

/// How much one principal may use of what this process hands out. What is `None` is not limited.
///
/// Counted by each process for itself, from its start: a bound on what one caller can do to the others, not an invoice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Quota {
    /// Executions at a time.
    pub in_flight_max: Option<u32>,
    /// Records that are kept.
    pub records_max: Option<u64>,
    /// Bytes of kept outcomes.
    pub bytes_max: Option<u64>,
}

impl Quota {
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.in_flight_max.is_none() && self.records_max.is_none() && self.bytes_max.is_none()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            terms: Terms::default(),
            wait: Duration::ZERO,
            waiters_max: 1000,
            store_within: Duration::from_secs(5),
            claim_for: Duration::from_secs(2),
            answer_within: Duration::from_millis(500),
            finish_for: Duration::from_mins(10),
            quota: Quota::default(),
        }
    }
}

impl Policy {
    /// How long an owner may work without renewing. Default 30 s.
    #[must_use]
    pub const fn lease(mut self, lease: Lease) -> Self {
        self.terms.lease = lease;
        self
    }

    /// How long one attempt may take in all, renewals included. Default 5 min, so that nothing runs for ever.
    #[must_use]
    pub const fn run_max(mut self, run_max: Duration) -> Self {
        self.terms.run_max = run_max;
        self
    }

    /// How long answers are kept, from completion. Default 24 h: longer than callers retry.
    #[must_use]
    pub const fn retention(mut self, retention: Retention) -> Self {
        self.terms.retention = retention;
        self
    }

    /// How long unknown outcomes are kept. Default 30 days: people have to find out.
    #[must_use]
    pub const fn unknown_retention(mut self, retention: Retention) -> Self {
        self.terms.unknown_retention = retention;
        self
    }

    /// What to do when nobody knows whether the work happened. Default `hold`: never guess.
    #[must_use]
    pub const fn unknown(mut self, unknown: UnknownPolicy) -> Self {
        self.terms.unknown = unknown;
        self
    }

    /// How many attempts `rerun` may make in all. Default 3.
    #[must_use]
    pub const fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.terms.attempts_max = attempts_max;
        self
    }

    /// How long `hold` holds before it seals. Default 24 h.
    #[must_use]
    pub const fn hold_for(mut self, hold_for: Duration) -> Self {
        self.terms.hold_for = hold_for;
        self
    }

    /// What a sealed record answers. Default a tombstone that says "indeterminate".
    #[must_use]
    pub fn sealed(mut self, sealed: Outcome) -> Self {
        self.terms.sealed = sealed;
        self
    }

    /// Says that owners live outside the process that keeps the store, so that their leases hold across its restart.
    #[must_use]
    pub const fn remote_owners(mut self) -> Self {
        self.terms.remote = true;
        self
    }

    /// How long a duplicate waits for the one that runs. Default zero: it is told at once.
    #[must_use]
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// How many may wait for one key in this process. Default 1000; one more is told at once.
    #[must_use]
    pub const fn waiters_max(mut self, waiters_max: usize) -> Self {
        self.waiters_max = waiters_max;
        self
    }

    /// How long the store may take to answer one command. Default 5 s; after that the command is taken for one that may
    /// have been applied, and repeated.
    #[must_use]
    pub const fn store_within(mut self, store_within: Duration) -> Self {
        self.store_within = store_within;
        self
    }

    /// How long a claim whose reply was lost is repeated before the caller is refused. Default 2 s.
    #[must_use]
    pub const fn claim_for(mut self, claim_for: Duration) -> Self {
        self.claim_for = claim_for;
        self
    }

    /// How long an answer may be kept from the caller because it could not be recorded. Default 500 ms; after that
    /// the caller gets it with the `unrecorded` mark.
    #[must_use]
    pub const fn answer_within(mut self, answer_within: Duration) -> Self {
        self.answer_within = answer_within;
        self
    }

    /// How long recording an outcome is tried in the background. Default 10 min.
    #[must_use]
    pub const fn finish_for(mut self, finish_for: Duration) -> Self {
        self.finish_for = finish_for;
        self
    }

    /// How much one principal may use. Default: no limits.
    #[must_use]
    pub const fn quota(mut self, quota: Quota) -> Self {
        self.quota = quota;
        self
    }

    /// How long a duplicate waits under this policy, for doors that let callers choose within bounds.
    pub const fn waits_for(&self) -> Duration {
        self.wait
    }

    /// The terms of a claim under this policy, for doors that claim by themselves.
    pub const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), MisuseError> {
        const DAY: Duration = Duration::from_hours(24);
        if self.terms.lease.get() < Duration::from_millis(100) {
            return Err(MisuseError::new(
                "the lease is shorter than 100 ms: it could not be renewed in time",
            ));
        }
        if self.store_within.is_zero() || self.store_within > DAY {
            return Err(MisuseError::new("store_within is zero or longer than 24 h"));
        }
        if self.terms.run_max < self.terms.lease.get() {
            return Err(MisuseError::new("run_max is shorter than the lease"));
        }
        if self.terms.run_max > DAY {
            return Err(MisuseError::new("run_max is longer than 24 h"));
        }
        if self.terms.attempts_max == 0 {
            return Err(MisuseError::new("attempts_max is zero"));
        }
        if self.wait > Duration::from_hours(1) {
            return Err(MisuseError::new("wait is longer than 1 h"));
        }
        if self.claim_for > DAY || self.answer_within > DAY || self.finish_for > DAY {
            return Err(MisuseError::new("claim_for, answer_within or finish_for is longer than 24 h"));
        }
        Ok(())
    }
}
