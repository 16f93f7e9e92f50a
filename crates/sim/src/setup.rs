//! How large the model is, under which policy it runs, and how long things last in it. Values only.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{Terms, UnknownPolicy};
use onlyonce_core::{Fingerprint, Lease, Retention, Rules};

use crate::defect::Defect;
use crate::letter::Tag;

/// A distance in time. One tick is a millisecond of the state machine's clock.
pub type Ticks = u8;

/// How long an owner may work without renewing.
pub const LEASE: Ticks = 2;
/// How long one attempt may take: longer than a lease, so that a renewal is worth something.
pub const RUN_MAX: Ticks = 3;
/// How long an answer is kept.
pub const RETENTION: Ticks = 2;
/// How long an unknown outcome is kept: longer than it is held, so that `hold` gets to seal.
pub const UNKNOWN_RETENTION: Ticks = 3;
/// How long `hold` holds before it seals.
pub const HOLD_FOR: Ticks = 2;
/// How many attempts `rerun` makes.
pub const ATTEMPTS_MAX: u8 = 2;

/// One configuration of the model.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each turns a part of the model on, whatever the others say"
)]
pub struct Setup {
    /// How many callers there are at a time. They make any number of calls.
    pub callers: u8,
    /// How many delayed commands are under way at a time, at most.
    pub letters: usize,
    /// What to do about unknown outcomes.
    pub policy: UnknownPolicy,
    /// Whether some calls differ, and in what.
    pub other: Option<Other>,
    /// Which assumption of `query` does not hold, to see that it is needed.
    pub without: Option<Assumption>,
    /// Whether operators step in, by resolving and erasing.
    pub operators: bool,
    /// Whether owners record a step.
    pub steps: bool,
    /// Whether to remember which owners were granted the record: see
    /// [`I16_STRICT`](crate::properties::I16_STRICT).
    pub strict_owners: bool,
    /// Whether a state tells what the last step showed. Needed to see that something happens at all; doubles the
    /// number of states.
    pub events: bool,
    /// What is wrong with the state machine, if anything.
    pub defect: Option<Defect>,
}

/// How some calls differ from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Other {
    /// They are another request under the same key. Owners may then also release without keeping the fingerprint.
    Request,
    /// They come under another policy.
    Policy(UnknownPolicy),
}

/// What `query` cannot do without, beyond a hook that tells the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assumption {
    /// Who says "not executed" has looked when the attempt could no longer run. The store only knows when it was told.
    LateLook,
    /// No work takes effect after the maximum run time of its attempt, counted from before its claim was sent.
    BoundedRun,
}

impl Setup {
    /// Two callers, one delayed command, and operators.
    pub const fn new(policy: UnknownPolicy) -> Self {
        Self {
            callers: 2,
            letters: 1,
            policy,
            other: None,
            without: None,
            operators: true,
            steps: false,
            strict_owners: false,
            events: false,
            defect: None,
        }
    }

    /// Whether the calls differ in their requests.
    pub fn has_two_requests(&self) -> bool {
        self.other == Some(Other::Request)
    }

    /// Whether some calls come under `policy`.
    pub fn has_policy(&self, policy: UnknownPolicy) -> bool {
        self.policy == policy || self.other == Some(Other::Policy(policy))
    }

    /// The policy of the call of `owner`.
    pub fn policy_of(&self, owner: u8) -> UnknownPolicy {
        match self.other {
            Some(Other::Policy(policy)) if is_other(owner) => policy,
            _ => self.policy,
        }
    }

    /// Which request the call of `owner` makes: 0 or 1.
    pub fn request_of(&self, owner: u8) -> u8 {
        u8::from(self.has_two_requests() && is_other(owner))
    }

    /// Whether the work of a grant is started at most once, whatever happens: no call comes under another policy.
    pub fn is_once(&self) -> bool {
        !self.has_policy(UnknownPolicy::Query) && !self.has_policy(UnknownPolicy::Rerun)
    }

    /// Whether work may take effect long after its attempt: not under `query`, where a hook must be able to know.
    pub fn has_zombies(&self) -> bool {
        !self.has_policy(UnknownPolicy::Query) || self.without == Some(Assumption::BoundedRun)
    }
}

/// Whether the call of `owner` is one of those that differ.
pub(crate) const fn is_other(owner: u8) -> bool {
    owner & 1 == 1
}

/// What claims carry, made once.
#[derive(Debug, Clone)]
pub(crate) struct Papers {
    terms: [Arc<Terms>; 2],
    fingerprints: [Fingerprint; 2],
}

impl Papers {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            terms: [0, 1].map(|owner| Arc::new(terms(setup.policy_of(owner)))),
            fingerprints: [0, 1]
                .map(|owner| Fingerprint::from_parts(Rules::standard(), [setup.request_of(owner); 32])),
        }
    }

    pub(crate) fn terms(&self, owner: u8) -> Arc<Terms> {
        Arc::clone(&self.terms[usize::from(is_other(owner))])
    }

    pub(crate) fn fingerprint(&self, owner: u8) -> Fingerprint {
        self.fingerprints[usize::from(is_other(owner))].clone()
    }
}

fn terms(policy: UnknownPolicy) -> Terms {
    let of = |ticks: Ticks| Duration::from_millis(ticks.into());
    Terms {
        lease: Lease::new(of(LEASE)).expect("a few ms are a lease"),
        run_max: of(RUN_MAX),
        retention: Retention::new(of(RETENTION)).expect("a few ms are a retention"),
        unknown_retention: Retention::new(of(UNKNOWN_RETENTION)).expect("a few ms are a retention"),
        unknown: policy,
        attempts_max: ATTEMPTS_MAX.into(),
        hold_for: of(HOLD_FOR),
        sealed: Tag::Indeterminate.outcome(),
        ..Terms::default()
    }
}
