//! What a well-behaved caller may do next, and what it makes of an answer. It knows only what it was told.
//!
//! Callers have no names: a caller without a call is like any other. What has a name is the owner of a call.

use std::time::Duration;

use onlyonce_core::transition::{Answer, ClaimAnswer, RenewAnswer};

use crate::letter::{Letter, Order};
use crate::setup::{LEASE, RUN_MAX, Setup, Ticks};

/// Where a caller stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Caller {
    /// It has no call to make, or has forgotten it in a crash.
    Idle,
    /// It has made an owner, and has no answer to its claim yet.
    Claiming {
        /// The owner.
        owner: u8,
        /// How long ago the claim was first sent: its own deadline counts from there.
        age: Ticks,
    },
    /// It was granted the record.
    Holding(Holding),
    /// It was asked to find out what became of an attempt.
    Recovering {
        /// The attempt in question.
        fence: u8,
        /// How long that attempt may still run.
        quiet_in: Ticks,
    },
}

/// A caller with a grant. The grant may be lost; it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Holding {
    /// The owner.
    pub owner: u8,
    /// The fence.
    pub fence: u8,
    /// For how long it may begin, by its own reckoning.
    pub begin_within: Ticks,
    /// For how long its work may take effect; counts only where there are no zombies.
    pub run_within: Ticks,
    /// How far the work is.
    pub work: Work,
    /// What it is about to do.
    pub intent: Intent,
}

/// How far the work of an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// Nothing was sent: it provably did not happen.
    Untouched,
    /// The deadline was checked; the effect may come at any time.
    UnderWay,
    /// The effect has happened.
    Done,
}

/// What the owner of a grant is about to do. It does not go back on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Intent {
    /// To work and to complete.
    Finish,
    /// To give the key back.
    Release {
        /// Whether the next request must be the same.
        keep_fingerprint: bool,
    },
    /// To leave it; a result that comes all the same is still reported.
    Abandon,
}

impl Caller {
    /// What it may tell the store. `happened` is what a hook would find out.
    pub fn orders(&self, happened: bool, setup: &Setup) -> Vec<Order> {
        match self {
            Self::Idle => Vec::new(),
            Self::Claiming { .. } => vec![Order::Claim],
            Self::Holding(holding) => holding.orders(setup),
            Self::Recovering { .. } if happened => vec![Order::ResolveExecuted, Order::ResolveStillUnknown],
            Self::Recovering { quiet_in: 0, .. } => {
                vec![Order::ResolveNotExecuted, Order::ResolveStillUnknown]
            }
            Self::Recovering { .. } => vec![Order::ResolveStillUnknown],
        }
    }

    /// `order` with this caller's token.
    pub fn letter(&self, order: Order) -> Letter {
        match *self {
            Self::Idle => Letter::unsigned(0, order),
            Self::Claiming { owner, .. } => Letter { order, fence: 0, owner },
            Self::Holding(Holding { owner, fence, .. }) => Letter { order, fence, owner },
            Self::Recovering { fence, .. } => Letter::unsigned(fence, order),
        }
    }

    /// What it becomes by sending `order`, before any answer.
    #[must_use]
    pub fn sent(self, order: Order) -> Self {
        match (self, order) {
            (Self::Holding(holding), Order::Release { keep_fingerprint }) => {
                Self::Holding(Holding { intent: Intent::Release { keep_fingerprint }, ..holding })
            }
            (Self::Holding(holding), Order::Abandon) => {
                Self::Holding(Holding { intent: Intent::Abandon, ..holding })
            }
            // A hook is asked once; without an answer, the recovery ends with its lease.
            (Self::Recovering { .. }, _) => Self::Idle,
            (caller, _) => caller,
        }
    }

    /// What it becomes when it hears `answer`.
    #[must_use]
    pub fn told(self, answer: &Answer) -> Self {
        match (self, answer) {
            (Self::Claiming { owner, age }, Answer::Claim(answer)) => claimed(owner, age, answer),
            (Self::Holding(holding), Answer::Renew(answer)) => {
                let begin_within = match answer {
                    RenewAnswer::Renewed(left) => ticks(*left),
                    RenewAnswer::Fenced => 0,
                };
                Self::Holding(Holding { begin_within, ..holding })
            }
            (Self::Holding(_), Answer::Complete(_) | Answer::Release(_))
            | (Self::Holding(Holding { work: Work::Untouched, .. }), Answer::Abandon(_)) => Self::Idle,
            (caller, _) => caller,
        }
    }

    /// The owner of its call, if it still needs it.
    pub fn owner(&self) -> u8 {
        match *self {
            Self::Claiming { owner, .. } | Self::Holding(Holding { owner, .. }) => owner,
            Self::Idle | Self::Recovering { .. } => 0,
        }
    }

    /// The fence whose effect may still come through this caller.
    pub fn pending(&self) -> Option<u8> {
        match self {
            Self::Holding(holding) if holding.may_still_run() => Some(holding.fence),
            _ => None,
        }
    }

    /// The same caller under another name of its owner.
    #[must_use]
    pub fn with_owner(self, rename: impl Fn(u8) -> u8) -> Self {
        match self {
            Self::Claiming { owner, age } => Self::Claiming { owner: rename(owner), age },
            Self::Holding(holding) => Self::Holding(Holding { owner: rename(holding.owner), ..holding }),
            Self::Idle | Self::Recovering { .. } => self,
        }
    }

    /// The same caller a tick later.
    #[must_use]
    pub fn aged(self, setup: &Setup) -> Self {
        match self {
            Self::Idle => self,
            Self::Claiming { owner, age } => {
                let oldest = if setup.has_zombies() { LEASE } else { LEASE.max(RUN_MAX) };
                Self::Claiming { owner, age: oldest.min(age + 1) }
            }
            Self::Holding(holding) => Self::Holding(Holding {
                begin_within: holding.begin_within.saturating_sub(1),
                run_within: holding.run_within.saturating_sub(1),
                ..holding
            }),
            Self::Recovering { fence, quiet_in } => {
                Self::Recovering { fence, quiet_in: quiet_in.saturating_sub(1) }
            }
        }
    }

    /// The same caller with everything forgotten that no longer makes a difference, so that like states are equal.
    #[must_use]
    pub fn canonical(self, setup: &Setup) -> Self {
        match self {
            Self::Holding(holding) => {
                let counts = !setup.has_zombies() && holding.may_still_run();
                Self::Holding(Holding {
                    begin_within: if holding.may_begin() { holding.begin_within } else { 0 },
                    run_within: if counts { holding.run_within } else { 0 },
                    ..holding
                })
            }
            _ => self,
        }
    }
}

impl Holding {
    /// Whether it may start the work: it looks at its own clock, once.
    pub fn may_begin(&self) -> bool {
        self.intent == Intent::Finish && self.work == Work::Untouched && self.begin_within > 0
    }

    /// Whether the effect may happen now. A zombie's may, long after its lease.
    pub fn may_take_effect(&self, setup: &Setup) -> bool {
        self.work == Work::UnderWay && (setup.has_zombies() || self.run_within > 0)
    }

    /// Whether the work may happen at some time.
    pub fn may_still_run(&self) -> bool {
        match self.work {
            Work::Untouched => self.intent == Intent::Finish,
            Work::UnderWay => true,
            Work::Done => false,
        }
    }

    fn orders(self, setup: &Setup) -> Vec<Order> {
        let mut orders = Vec::new();
        if self.work == Work::Done {
            orders.push(Order::Complete);
        }
        match self.intent {
            Intent::Finish => {
                orders.extend([Order::Renew, Order::Abandon]);
                if self.work == Work::Untouched {
                    orders.push(Order::Release { keep_fingerprint: true });
                    orders.extend(
                        setup.has_two_requests().then_some(Order::Release { keep_fingerprint: false }),
                    );
                    orders.extend(setup.steps.then_some(Order::RecordStep));
                }
            }
            Intent::Release { keep_fingerprint } => orders.push(Order::Release { keep_fingerprint }),
            Intent::Abandon => orders.push(Order::Abandon),
        }
        orders
    }
}

fn claimed(owner: u8, age: Ticks, answer: &ClaimAnswer) -> Caller {
    match answer {
        ClaimAnswer::Granted(grant) => Caller::Holding(Holding {
            owner,
            fence: small(grant.fence.get()),
            begin_within: LEASE.min(RUN_MAX).saturating_sub(age),
            run_within: RUN_MAX.saturating_sub(age),
            work: Work::Untouched,
            intent: Intent::Finish,
        }),
        ClaimAnswer::Recover(grant) => {
            Caller::Recovering { fence: small(grant.fence.get()), quiet_in: ticks(grant.quiet_in) }
        }
        // The next try is another call, with another owner.
        _ => Caller::Idle,
    }
}

/// A duration of the state machine in ticks.
pub(crate) fn ticks(duration: Duration) -> Ticks {
    u8::try_from(duration.as_millis()).expect("durations of the model are small")
}

/// A number of the state machine that the model chose small.
pub(crate) fn small(number: u64) -> u8 {
    u8::try_from(number).expect("numbers of the model are small")
}
