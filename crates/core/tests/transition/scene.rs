//! One record, a clock and a fence source moved by hand, and short words for what is done to the record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::{Completed, CompletedBy, Recovery, State, StepName};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Actor, Change, Claim, ClaimAnswer, Complete, CompleteAnswer, Erase, EraseAnswer,
    Grant, Held, Moment, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve, ResolveAnswer,
    StepAnswer, Sweep, SweepAnswer, Token, Transition, Verdict, apply,
};
use onlyonce_core::{
    Fence, Fingerprint, Lease, Outcome, Owner, Record, RecordId, Retention, Timestamp, UnknownPolicy,
};
use onlyonce_testkit::fixture::{self, LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION};

/// When every scene begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_000_000);
/// What the fence source offers in every scene, unless told otherwise.
pub(crate) const FIRST_FENCE: u64 = 7;
pub(crate) const POLICIES: [UnknownPolicy; 4] =
    [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun];
pub(crate) const NOT_EXECUTED: Verdict = Verdict::NotExecuted { force: false };

/// The owner of the first grant.
pub(crate) const FIRST: Owner = Owner::from_bytes([1; 16]);
/// Another owner.
pub(crate) const SECOND: Owner = Owner::from_bytes([2; 16]);
/// Yet another one.
pub(crate) const THIRD: Owner = Owner::from_bytes([3; 16]);

#[derive(Debug, Clone)]
pub(crate) struct Scene {
    pub(crate) stored: Option<Record>,
    pub(crate) now: Timestamp,
    /// What the fence source offers next.
    pub(crate) next_fence: Fence,
    /// Whether the last command changed nothing.
    pub(crate) kept: bool,
}

impl Scene {
    /// Nothing is stored.
    pub(crate) fn new() -> Self {
        Self { stored: None, now: START, next_fence: fence(FIRST_FENCE), kept: true }
    }

    /// IN FLIGHT, granted to [`FIRST`] just now.
    pub(crate) fn in_flight() -> (Self, Token) {
        let mut scene = Self::new();
        let token = scene.granted(FIRST, UnknownPolicy::Hold);
        (scene, token)
    }

    /// COMPLETED by [`FIRST`] just now, with the body "done".
    pub(crate) fn completed() -> (Self, Token) {
        let (mut scene, token) = Self::in_flight();
        assert_eq!(scene.complete(token, "done"), CompleteAnswer::Completed);
        (scene, token)
    }

    /// RELEASED by [`FIRST`] just now, with its fingerprint kept.
    pub(crate) fn released() -> (Self, Token) {
        let (mut scene, token) = Self::in_flight();
        assert_eq!(scene.release(token, true), ReleaseAnswer::Released);
        (scene, token)
    }

    /// UNKNOWN, abandoned by [`FIRST`] just now.
    pub(crate) fn unknown() -> (Self, Token) {
        let (mut scene, token) = Self::in_flight();
        assert_eq!(scene.abandon(token), AbandonAnswer::Abandoned);
        (scene, token)
    }

    /// UNKNOWN, and [`SECOND`] has just begun to find out.
    pub(crate) fn recovering() -> (Self, Token) {
        let (mut scene, token) = Self::unknown();
        let answer = scene.claim(SECOND, UnknownPolicy::Query);
        assert!(matches!(answer, ClaimAnswer::Recover(_)), "{answer:?}");
        (scene, token)
    }

    /// Sealed just now, after [`FIRST`] abandoned it.
    pub(crate) fn sealed() -> (Self, Token) {
        let (mut scene, token) = Self::unknown();
        let answer = scene.claim(SECOND, UnknownPolicy::Seal);
        assert!(matches!(answer, ClaimAnswer::Replay(_)), "{answer:?}");
        (scene, token)
    }

    /// Resolved just now with the body "found", after [`FIRST`] abandoned it.
    pub(crate) fn resolved() -> (Self, Token) {
        let (mut scene, token) = Self::unknown();
        assert_eq!(scene.resolve(token.fence, executed("found")), ResolveAnswer::Resolved);
        (scene, token)
    }

    /// Every state in which `token` is that of the last grant, by name. The lease of "lapsed" has just passed.
    pub(crate) fn each() -> Vec<(&'static str, Self, Token)> {
        let name = |name, (scene, token)| (name, scene, token);
        let mut lapsed = Self::in_flight();
        lapsed.0.advance(LEASE);
        vec![
            name("in flight", Self::in_flight()),
            name("lapsed", lapsed),
            name("completed", Self::completed()),
            name("sealed", Self::sealed()),
            name("resolved", Self::resolved()),
            name("released", Self::released()),
            name("unknown", Self::unknown()),
            name("recovering", Self::recovering()),
        ]
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    /// The same scene, later.
    pub(crate) fn after(&self, by: Duration) -> Self {
        Self { now: self.now + by, ..self.clone() }
    }

    /// Runs `command` and keeps what it changes.
    pub(crate) fn run<C: Transition>(&mut self, command: &C) -> C::Answer {
        let moment = Moment { now: self.now, next_fence: self.next_fence };
        let (change, answer) = apply(self.stored.as_ref(), command, moment);
        self.kept = change == Change::Keep;
        match change {
            Change::Keep => {}
            Change::Put(record) => self.stored = Some(record),
            Change::Remove => self.stored = None,
        }
        answer
    }

    pub(crate) fn claim(&mut self, owner: Owner, policy: UnknownPolicy) -> ClaimAnswer {
        self.run(&claim(owner, policy))
    }

    /// Claims for another request.
    pub(crate) fn claim_other(&mut self, owner: Owner, policy: UnknownPolicy) -> ClaimAnswer {
        self.run(&Claim { fingerprint: other_fingerprint(), ..claim(owner, policy) })
    }

    /// Claims and expects a new grant.
    pub(crate) fn granted(&mut self, owner: Owner, policy: UnknownPolicy) -> Token {
        let fence = match self.claim(owner, policy) {
            ClaimAnswer::Granted(grant) => Some(grant.fence),
            _ => None,
        };
        assert!(!self.kept, "a new grant is written");
        Token { id: id(), owner, fence: fence.expect("a grant") }
    }

    pub(crate) fn renew(&mut self, token: Token) -> RenewAnswer {
        self.run(&Renew { token, lease: Lease::new(LEASE).expect("a lease") })
    }

    pub(crate) fn complete(&mut self, token: Token, body: &'static str) -> CompleteAnswer {
        self.run(&Complete { token, outcome: fixture::outcome(body), retention: None })
    }

    pub(crate) fn release(&mut self, token: Token, keep_fingerprint: bool) -> ReleaseAnswer {
        self.run(&Release { token, keep_fingerprint })
    }

    pub(crate) fn abandon(&mut self, token: Token) -> AbandonAnswer {
        self.run(&Abandon { token })
    }

    pub(crate) fn step(&mut self, token: Token, name: &str, value: impl Into<Bytes>) -> StepAnswer {
        self.run(&RecordStep { token, name: StepName::new(name).expect("a name"), value: value.into() })
    }

    pub(crate) fn resolve(&mut self, fence: Fence, verdict: Verdict) -> ResolveAnswer {
        self.run(&Resolve { id: id(), fence, verdict, actor: Actor::Operator("alice".into()) })
    }

    pub(crate) fn erase(&mut self) -> EraseAnswer {
        self.run(&Erase { id: id() })
    }

    pub(crate) fn sweep(&mut self) -> SweepAnswer {
        self.run(&Sweep { id: id() })
    }

    /// What is stored.
    pub(crate) fn record(&self) -> &Record {
        self.stored.as_ref().expect("a record is stored")
    }

    /// The completion that is stored.
    pub(crate) fn completion(&self) -> &Completed {
        let completed = match &self.record().state {
            State::Completed(completed) => Some(completed),
            _ => None,
        };
        completed.expect("a completed record is stored")
    }

    /// When what is stored may go.
    pub(crate) fn expires_at(&self) -> Timestamp {
        self.record().expires_at().expect("a record that is not in flight")
    }
}

pub(crate) fn id() -> RecordId {
    RecordId::from_bytes([1; 32])
}

pub(crate) fn fence(number: u64) -> Fence {
    Fence::new(number).expect("below 2^53")
}

/// The fence `by` above that of `token`.
pub(crate) fn above(token: Token, by: u64) -> Fence {
    fence(token.fence.get() + by)
}

pub(crate) fn claim(owner: Owner, policy: UnknownPolicy) -> Claim {
    Claim { id: id(), fingerprint: fingerprint(), owner, terms: Arc::new(fixture::terms(policy)) }
}

/// The fingerprint of the request that every scene is about.
pub(crate) fn fingerprint() -> Fingerprint {
    fixture::fingerprint(b"body")
}

/// The fingerprint of another request under the same key.
pub(crate) fn other_fingerprint() -> Fingerprint {
    fixture::fingerprint(b"another body")
}

pub(crate) fn executed(body: &'static str) -> Verdict {
    Verdict::Executed(fixture::outcome(body))
}

pub(crate) fn granted(fence: Fence, attempt: u32) -> ClaimAnswer {
    ClaimAnswer::Granted(Grant { fence, attempt, steps: Vec::new() })
}

pub(crate) fn held(token: Token, age: Duration) -> ClaimAnswer {
    ClaimAnswer::Held(Held { fence: token.fence, age })
}

/// The record of a first grant at [`START`].
pub(crate) fn first_record(state: State) -> Record {
    Record {
        fence: fence(FIRST_FENCE),
        attempt: 1,
        owner: FIRST,
        fingerprint: Some(fingerprint()),
        created_at: START,
        granted_at: START,
        run_until: START + RUN_MAX,
        retention: Retention::new(RETENTION).expect("a retention"),
        unknown_retention: Retention::new(UNKNOWN_RETENTION).expect("a retention"),
        remote: false,
        steps: Vec::new(),
        state,
    }
}

/// The state of a record that was completed at `at`.
pub(crate) fn completed(at: Timestamp, by: CompletedBy, outcome: Outcome) -> State {
    State::Completed(Completed { outcome, by, at, expires_at: at + RETENTION, late: None })
}

/// The state of a record that has been unknown since `since`, as was noticed at once.
pub(crate) fn unknown(since: Timestamp, recovery: Option<Recovery>) -> State {
    State::Unknown { since, expires_at: since + UNKNOWN_RETENTION, recovery }
}

/// One millisecond before, at, and one after `edge`, each with whether `edge` has been reached.
pub(crate) fn around(edge: Duration) -> [(Duration, bool); 3] {
    [(edge.saturating_sub(TICK), false), (edge, true), (edge + TICK, true)]
}
