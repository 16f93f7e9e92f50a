//! What operators, recovery hooks and the sweeper do: resolve, erase, sweep.

use super::command::{Erase, EraseAnswer, Resolve, ResolveAnswer, Sweep, SweepAnswer, Verdict};
use super::{Change, Moment, Transition, view};
use crate::clock::Timestamp;
use crate::outcome::Outcome;
use crate::record::{Completed, CompletedBy, Record, State, StateKind};
use crate::scope::RecordId;

impl Transition for Resolve {
    type Answer = ResolveAnswer;

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, ResolveAnswer) {
        let Some(seen) = view(stored, now) else {
            return (Change::Keep, ResolveAnswer::Absent);
        };
        if seen.fence != self.fence {
            return (Change::Keep, ResolveAnswer::Stale(seen.fence));
        }
        match (&seen.state, &self.verdict) {
            (State::Unknown { .. }, Verdict::Executed(outcome)) => executed(&seen, outcome, now),
            (State::Unknown { .. }, Verdict::NotExecuted { force }) => not_executed(&seen, *force, now),
            (State::Unknown { since, expires_at, .. }, Verdict::StillUnknown) => {
                let state = State::Unknown { since: *since, expires_at: *expires_at, recovery: None };
                (Change::Put(Record { state, ..seen.into_owned() }), ResolveAnswer::Resolved)
            }
            (State::Completed(completed), verdict) => completed_already(&seen, completed, verdict, now),
            (State::Released { .. }, Verdict::NotExecuted { .. }) => (Change::Keep, ResolveAnswer::Already),
            (State::InFlight { .. } | State::Released { .. }, _) => {
                (Change::Keep, ResolveAnswer::NotUnknown(seen.kind()))
            }
        }
    }
}

/// A sealed record only says that nobody knew, so it can still be resolved; any other answer stands.
fn completed_already(
    seen: &Record,
    completed: &Completed,
    verdict: &Verdict,
    now: Timestamp,
) -> (Change, ResolveAnswer) {
    match (completed.by, verdict) {
        (CompletedBy::Resolve, Verdict::Executed(outcome)) if completed.outcome == *outcome => {
            (Change::Keep, ResolveAnswer::Already)
        }
        (CompletedBy::Seal, Verdict::Executed(outcome)) => executed(seen, outcome, now),
        (CompletedBy::Seal, Verdict::NotExecuted { force: false }) if completed.late.is_some() => {
            (Change::Keep, ResolveAnswer::Contradicted)
        }
        (CompletedBy::Seal, Verdict::NotExecuted { force }) => not_executed(seen, *force, now),
        _ => (Change::Keep, ResolveAnswer::NotUnknown(StateKind::Completed)),
    }
}

fn executed(seen: &Record, outcome: &Outcome, now: Timestamp) -> (Change, ResolveAnswer) {
    let completed = Completed {
        outcome: outcome.clone(),
        by: CompletedBy::Resolve,
        at: now,
        expires_at: now + seen.retention.get(),
        late: None,
    };
    (Change::Put(Record { state: State::Completed(completed), ..seen.clone() }), ResolveAnswer::Resolved)
}

/// "Not executed" is final only when the attempt can no longer run: a slow one would act after we were told that it
/// had not.
fn not_executed(seen: &Record, force: bool, now: Timestamp) -> (Change, ResolveAnswer) {
    if now < seen.run_until && !force {
        return (Change::Keep, ResolveAnswer::TooEarly(now.until(seen.run_until)));
    }
    let state = State::Released { expires_at: now + seen.retention.get() };
    (Change::Put(Record { state, ..seen.clone() }), ResolveAnswer::Resolved)
}

impl Transition for Erase {
    type Answer = EraseAnswer;

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, EraseAnswer) {
        let Some(seen) = view(stored, now) else {
            return (Change::Keep, EraseAnswer::Absent);
        };
        let mut record = seen.into_owned();
        match &mut record.state {
            State::InFlight { .. } => return (Change::Keep, EraseAnswer::InFlight),
            State::Completed(completed) => {
                completed.outcome = completed.outcome.erased();
                completed.late = None;
            }
            State::Released { .. } | State::Unknown { .. } => {}
        }
        for step in &mut record.steps {
            // The name stays: a step that is forgotten would be made, and its effect had, a second time.
            step.value = None;
        }
        (Change::Put(record), EraseAnswer::Erased)
    }
}

impl Transition for Sweep {
    type Answer = SweepAnswer;

    fn id(&self) -> &RecordId {
        &self.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, SweepAnswer) {
        match (stored, view(stored, now)) {
            (Some(_), None) => (Change::Remove, SweepAnswer::Removed),
            (Some(record), Some(seen)) if record.is_lapsed(now) => {
                (Change::Put(seen.into_owned()), SweepAnswer::MadeUnknown)
            }
            _ => (Change::Keep, SweepAnswer::Kept),
        }
    }
}
