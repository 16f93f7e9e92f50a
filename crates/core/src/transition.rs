//! The state machine: what each command does to a record. Pure, and the reference for every store.
//!
//! No clock, no socket, no await: the time and the next fence are arguments. A store is right when it answers as
//! this file answers; the store suite, the model test and the model checker all use it as their oracle.
//!
//! | file | commands | who gives them |
//! |---|---|---|
//! | [`command`] | the commands and their answers | – |
//! | `claim` | claim | whoever wants to run the work |
//! | `holder` | renew, complete, release, abandon, `record_step` | the owner of a grant |
//! | `operator` | resolve, erase, sweep | operators, hooks and the sweeper |
//!
//! First match wins, in this order: expired → ABSENT; other fingerprint → Mismatch; lease passed → UNKNOWN (also for
//! the same owner); same owner; the rest. IN FLIGHT past its lease reads as UNKNOWN in every command but `complete`.

pub mod command;

mod claim;
mod holder;
mod operator;

use std::borrow::Cow;

use crate::clock::Timestamp;
use crate::record::{CompletedBy, Fence, Record, State};
use crate::scope::RecordId;

pub use command::{
    Abandon, AbandonAnswer, Actor, Answer, Busy, Claim, ClaimAnswer, Command, Complete, CompleteAnswer,
    Erase, EraseAnswer, Grant, Held, RecordStep, RecoverGrant, Release, ReleaseAnswer, Renew, RenewAnswer,
    Replay, Resolve, ResolveAnswer, StepAnswer, Sweep, SweepAnswer, Terms, Token, UnknownPolicy, Verdict,
};

/// What the store knows at the instant of a command: its own time, and the fence its own source offers next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The store's clock.
    pub now: Timestamp,
    /// What the store's fence source offers: larger than every fence it granted before, also to other records.
    pub next_fence: Fence,
}

/// What a store must write, in the same atomic step as its read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "short-lived, and most commands write: boxing would cost more")]
pub enum Change {
    /// Nothing.
    Keep,
    /// This record, in place of what was there.
    Put(Record),
    /// Nothing may be left.
    Remove,
}

/// A command that knows what it does to a record.
pub trait Transition {
    /// What the command answers.
    type Answer;

    /// The record it is about.
    fn id(&self) -> &RecordId;

    /// The change and the answer, given what is stored. Called through [`apply`], which checks the invariants.
    fn decide(&self, stored: Option<&Record>, moment: Moment) -> (Change, Self::Answer);
}

/// Runs one command against what is stored.
#[inline]
pub fn apply<C: Transition>(stored: Option<&Record>, command: &C, moment: Moment) -> (Change, C::Answer) {
    let (change, answer) = command.decide(stored, moment);
    if let Some(broken) = broken_invariant(stored, &change, moment.now) {
        // Nothing was written yet: stopping here is safe, going on is not.
        unreachable!("our bug: transition broke {broken}");
    }
    (change, answer)
}

/// The state machine as one function: [`apply`] for a command of any kind.
pub fn transition(stored: Option<&Record>, command: &Command, moment: Moment) -> (Change, Answer) {
    match command {
        Command::Claim(command) => wrap(apply(stored, command, moment), Answer::Claim),
        Command::Renew(command) => wrap(apply(stored, command, moment), Answer::Renew),
        Command::Complete(command) => wrap(apply(stored, command, moment), Answer::Complete),
        Command::Release(command) => wrap(apply(stored, command, moment), Answer::Release),
        Command::Abandon(command) => wrap(apply(stored, command, moment), Answer::Abandon),
        Command::RecordStep(command) => wrap(apply(stored, command, moment), Answer::RecordStep),
        Command::Resolve(command) => wrap(apply(stored, command, moment), Answer::Resolve),
        Command::Erase(command) => wrap(apply(stored, command, moment), Answer::Erase),
        Command::Sweep(command) => wrap(apply(stored, command, moment), Answer::Sweep),
    }
}

fn wrap<A>((change, answer): (Change, A), wrap: impl FnOnce(A) -> Answer) -> (Change, Answer) {
    (change, wrap(answer))
}

/// The record as every command but `complete` reads it: `None` once expired, UNKNOWN once its lease has passed.
///
/// This is also what operators are shown.
pub fn view(stored: Option<&Record>, now: Timestamp) -> Option<Cow<'_, Record>> {
    let record = stored.filter(|record| !record.is_expired(now))?;
    match record.state {
        State::InFlight { lease_until } if now >= lease_until => {
            let state = State::Unknown {
                since: lease_until,
                // Counted from now and not from the lease: whoever must find out gets the whole time, even when no
                // sweep came by for weeks, and IN FLIGHT is never removed without having been UNKNOWN (I12).
                expires_at: now + record.unknown_retention.get(),
                recovery: None,
            };
            Some(Cow::Owned(Record { state, ..record.clone() }))
        }
        _ => Some(Cow::Borrowed(record)),
    }
}

/// Names the invariant of DESIGN §2 that a change would break, if any. Checked on every change, also in production.
pub fn broken_invariant(before: Option<&Record>, change: &Change, now: Timestamp) -> Option<&'static str> {
    let before = before?;
    match change {
        Change::Keep => None,
        Change::Remove => (!before.is_expired(now)).then_some("I12: removed before its expiry"),
        Change::Put(after) => {
            let granted = after.fence != before.fence;
            let finished = matches!(&before.state, State::Completed(_)) && !before.is_expired(now);
            if after.fence < before.fence {
                Some("I2: a fence went down")
            } else if !granted && after.owner != before.owner {
                Some("I1: two owners under one fence")
            } else if granted && finished {
                Some("I5: a grant between COMPLETED and expiry")
            } else if granted && matches!(before.state, State::InFlight { lease_until } if now < lease_until)
            {
                Some("I6: a second grant while the first was live")
            } else if finished && !keeps_the_answer(before, after) {
                Some("I3: a recorded answer changed")
            } else {
                None
            }
        }
    }
}

/// Whether `after` still answers what `before` answered, its body perhaps erased. A sealed record only said that
/// nobody knows; to find out is not to change an answer.
fn keeps_the_answer(before: &Record, after: &Record) -> bool {
    match (&before.state, &after.state) {
        (State::Completed(before), _) if before.by == CompletedBy::Seal => true,
        (State::Completed(before), State::Completed(after)) => {
            after.expires_at == before.expires_at
                && (after.outcome == before.outcome || after.outcome == before.outcome.erased())
        }
        _ => false,
    }
}
