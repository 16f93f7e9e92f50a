//! The commands of the state machine and their answers.
//!
//! Expected answers are values: Busy, Replay, Mismatch, Held and Fenced are not errors. Nothing here decides anything.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::fingerprint::{Fingerprint, Rules};
use crate::lease::{Lease, Retention};
use crate::outcome::{Outcome, Tombstone};
use crate::record::{CompletedBy, Fence, Owner, StateKind, Step, StepName};
use crate::scope::RecordId;

/// Any command, for oracles and logs. Stores take the commands themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is documented on its command")]
pub enum Command {
    Claim(Claim),
    Renew(Renew),
    Complete(Complete),
    Release(Release),
    Abandon(Abandon),
    RecordStep(RecordStep),
    Resolve(Resolve),
    Erase(Erase),
    Sweep(Sweep),
}

impl Command {
    /// The record it is about.
    pub const fn id(&self) -> &RecordId {
        match self {
            Self::Claim(command) => &command.id,
            Self::Renew(command) => &command.token.id,
            Self::Complete(command) => &command.token.id,
            Self::Release(command) => &command.token.id,
            Self::Abandon(command) => &command.token.id,
            Self::RecordStep(command) => &command.token.id,
            Self::Resolve(command) => &command.id,
            Self::Erase(command) => &command.id,
            Self::Sweep(command) => &command.id,
        }
    }
}

/// Any answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each variant is documented on its answer")]
pub enum Answer {
    Claim(ClaimAnswer),
    Renew(RenewAnswer),
    Complete(CompleteAnswer),
    Release(ReleaseAnswer),
    Abandon(AbandonAnswer),
    RecordStep(StepAnswer),
    Resolve(ResolveAnswer),
    Erase(EraseAnswer),
    Sweep(SweepAnswer),
}

/// What to do with a record whose outcome nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum UnknownPolicy {
    /// Refuse retries until someone finds out; after `hold_for`, seal. At most one execution.
    #[default]
    Hold,
    /// Close the record with an "indeterminate" answer. At most one execution, in bounded time.
    Seal,
    /// Ask a hook what happened. Exactly one execution, if the hook tells the truth.
    Query,
    /// Run again with the next fence, up to `attempts_max`. At least one execution.
    Rerun,
}

/// The conditions under which a claim is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Terms {
    /// How long the owner may work without renewing.
    pub lease: Lease,
    /// How long one attempt may take in all.
    pub run_max: Duration,
    /// How long the record is kept once completed or released.
    pub retention: Retention,
    /// How long the record is kept while unknown.
    pub unknown_retention: Retention,
    /// What to do if the record is unknown.
    pub unknown: UnknownPolicy,
    /// How many grants `rerun` may make in all.
    pub attempts_max: u32,
    /// How long `hold` holds before it seals.
    pub hold_for: Duration,
    /// What a sealed record answers.
    pub sealed: Outcome,
    /// Whether the owner lives outside the process that keeps the store.
    pub remote: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Lease::DEFAULT,
            run_max: Duration::from_mins(5),
            retention: Retention::DEFAULT,
            unknown_retention: Retention::UNKNOWN_DEFAULT,
            unknown: UnknownPolicy::Hold,
            attempts_max: 3,
            hold_for: Duration::from_hours(24),
            sealed: Outcome::tombstone(0, Tombstone::Indeterminate),
            remote: false,
        }
    }
}

/// Asks to become the owner. Repeating it with the same owner gets the same grant back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// The operation.
    pub id: RecordId,
    /// What the request looks like.
    pub fingerprint: Fingerprint,
    /// The secret of this attempt. A new attempt needs a new one.
    pub owner: Owner,
    /// The conditions.
    pub terms: Arc<Terms>,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ClaimAnswer {
    /// You run it.
    Granted(Grant),
    /// It is done; this is the answer.
    Replay(Replay),
    /// Someone runs it, or finds out what happened.
    Busy(Busy),
    /// Nobody knows whether it happened, and the policy is not to guess.
    Held(Held),
    /// The key was used for another request.
    Mismatch {
        /// The rules of the stored fingerprint, when they are not those of the claim: compare by them before refusing.
        rules: Option<Rules>,
    },
    /// Find out what happened, then `resolve`. Nothing may be run under this grant.
    Recover(RecoverGrant),
    /// This owner was granted the record before and lost it. An owner is for one attempt.
    Fenced,
}

/// The right to run the work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// To be shown with everything the owner does.
    pub fence: Fence,
    /// 1 for the first grant.
    pub attempt: u32,
    /// What earlier attempts recorded.
    pub steps: Vec<Step>,
}

/// A recorded answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Replay {
    /// The answer.
    pub outcome: Outcome,
    /// Who completed it.
    pub by: CompletedBy,
    /// The fence it was completed under.
    pub fence: Fence,
    /// The attempt that produced it.
    pub attempt: u32,
    /// How long ago it was completed.
    pub age: Duration,
    /// How long it will still be kept.
    pub left: Duration,
}

/// How long to leave a record alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Busy {
    /// What is left of the owner's lease.
    pub left: Duration,
}

/// A record whose outcome is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// The fence to resolve it with.
    pub fence: Fence,
    /// How long it has been unknown.
    pub age: Duration,
}

/// The right to find out what happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecoverGrant {
    /// The fence of the attempt in question, to be shown with `resolve`.
    pub fence: Fence,
    /// The attempt in question.
    pub attempt: u32,
    /// What is left until that attempt can no longer be running: before that, "not executed" proves nothing.
    pub quiet_in: Duration,
    /// What that attempt recorded.
    pub steps: Vec<Step>,
}

/// What the owner of a grant shows with every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// The operation.
    pub id: RecordId,
    /// The owner that claimed.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
}

/// Asks for more time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Renew {
    /// Who asks.
    pub token: Token,
    /// For how long from now.
    pub lease: Lease,
}

/// What became of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RenewAnswer {
    /// The lease now ends this much later; less than asked for when the run may not last longer.
    Renewed(Duration),
    /// The grant is lost, or its maximum run time is over.
    Fenced,
}

/// Reports the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Complete {
    /// Who reports.
    pub token: Token,
    /// What came out.
    pub outcome: Outcome,
    /// A retention other than the claim's.
    pub retention: Option<Retention>,
}

/// What became of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompleteAnswer {
    /// Recorded.
    Completed,
    /// This very completion was recorded before.
    Already,
    /// The record was sealed or resolved meanwhile. The outcome is kept for operators; the answer stays.
    Late,
    /// Another outcome was recorded under this fence. Only a bug can do that.
    Alarm,
    /// The grant is lost; nothing changed.
    Fenced,
}

/// Gives the key back: the work did not happen.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Release {
    /// Who knows.
    pub token: Token,
    /// Whether the next request must be the same one. `false` after a refusal, so that it can be corrected.
    pub keep_fingerprint: bool,
}

/// What became of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseAnswer {
    /// The next claim runs.
    Released,
    /// The grant is lost; nothing changed.
    Fenced,
}

/// Gives up without knowing whether the work happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Abandon {
    /// Who gives up.
    pub token: Token,
}

/// What became of an abandonment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AbandonAnswer {
    /// The record is unknown.
    Abandoned,
    /// The grant is lost; nothing changed.
    Fenced,
}

/// Records a value under the grant, once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordStep {
    /// Who records.
    pub token: Token,
    /// Under which name.
    pub name: StepName,
    /// What.
    pub value: Bytes,
}

/// What became of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum StepAnswer {
    /// Recorded.
    Recorded,
    /// The name has a value already: use it.
    Already(Bytes),
    /// The name had a value that was erased: it can be neither used nor made again.
    Erased,
    /// The record keeps no more steps.
    Full,
    /// The grant is lost; nothing changed.
    Fenced,
}

/// Says what happened to an unknown record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolve {
    /// The operation.
    pub id: RecordId,
    /// The fence of the attempt in question.
    pub fence: Fence,
    /// What happened.
    pub verdict: Verdict,
    /// Who says so.
    pub actor: Actor,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The work happened, with this outcome.
    Executed(Outcome),
    /// The work did not happen and no longer can.
    NotExecuted {
        /// Say so although the attempt may still be running, or reported an outcome. For operators who know better.
        force: bool,
    },
    /// It could not be found out. Ends a recovery; the record stays unknown.
    StillUnknown,
}

/// Who resolves, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Actor {
    /// The recovery hook.
    Hook,
    /// A person or script, by name.
    Operator(String),
}

/// What became of a resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResolveAnswer {
    /// Done as said.
    Resolved,
    /// The record says so already.
    Already,
    /// There is nothing to resolve: this is its state.
    NotUnknown(StateKind),
    /// The record is at this fence now.
    Stale(Fence),
    /// "Not executed" cannot be known yet: the attempt may run for this long.
    TooEarly(Duration),
    /// "Not executed" is not so: the owner reported an outcome after the record was sealed.
    Contradicted,
    /// There is no such record.
    Absent,
}

/// Drops what the record holds about a person; the key stays used.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Erase {
    /// The operation.
    pub id: RecordId,
}

/// What became of an erasure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EraseAnswer {
    /// Nothing of the bodies is left.
    Erased,
    /// Someone works on it; erase it afterwards.
    InFlight,
    /// There is no such record.
    Absent,
}

/// Removes the record if it has expired, and makes it UNKNOWN if its lease has passed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sweep {
    /// The operation.
    pub id: RecordId,
}

/// What a sweep did to one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SweepAnswer {
    /// It had expired.
    Removed,
    /// Its lease had passed.
    MadeUnknown,
    /// Nothing was due.
    Kept,
}
