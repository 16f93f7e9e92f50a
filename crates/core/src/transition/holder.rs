//! What the owner of a grant does: renew, complete, release, abandon, record a step.
//!
//! Every command shows a [`Token`]; a stale one changes nothing and is answered Fenced.

use super::command::{
    Abandon, AbandonAnswer, Complete, CompleteAnswer, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer,
    StepAnswer, Token,
};
use super::{Change, Moment, Transition};
use crate::clock::Timestamp;
use crate::record::{Completed, CompletedBy, Record, STEPS_BYTES_MAX, STEPS_MAX, State, Step};
use crate::scope::RecordId;

/// The record, if `token` is that of its last grant.
fn held_by<'r>(stored: Option<&'r Record>, token: &Token) -> Option<&'r Record> {
    stored.filter(|record| record.owner == token.owner && record.fence == token.fence)
}

/// The record, if `token` holds it IN FLIGHT with a lease that has not passed.
fn live<'r>(stored: Option<&'r Record>, token: &Token, now: Timestamp) -> Option<&'r Record> {
    held_by(stored, token)
        .filter(|record| matches!(record.state, State::InFlight { lease_until } if now < lease_until))
}

impl Transition for Renew {
    type Answer = RenewAnswer;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, RenewAnswer) {
        let Some(record) = live(stored, &self.token, now).filter(|record| now < record.run_until) else {
            return (Change::Keep, RenewAnswer::Fenced);
        };
        // Extended, never shortened: renewals may arrive in another order than they were sent.
        let lease_until = record.run_until.min(record.due_at().max(now + self.lease.get()));
        let record = Record { state: State::InFlight { lease_until }, ..record.clone() };
        (Change::Put(record), RenewAnswer::Renewed(now.until(lease_until)))
    }
}

impl Transition for Complete {
    type Answer = CompleteAnswer;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    #[inline]
    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, CompleteAnswer) {
        let Some(record) = held_by(stored, &self.token).filter(|record| !record.is_expired(now)) else {
            return (Change::Keep, CompleteAnswer::Fenced);
        };
        match &record.state {
            // Also past the lease: the same fence turns unknown into known.
            State::InFlight { .. } | State::Unknown { .. } => {
                let retention = self.retention.unwrap_or(record.retention);
                let completed = Completed {
                    outcome: self.outcome.clone(),
                    by: CompletedBy::Execution,
                    at: now,
                    expires_at: now + retention.get(),
                    late: None,
                };
                (Change::Put(record.with_state(State::Completed(completed))), CompleteAnswer::Completed)
            }
            State::Completed(completed) => self.again(record, completed),
            State::Released { .. } => (Change::Keep, CompleteAnswer::Fenced),
        }
    }
}

impl Complete {
    /// A completion of what is completed already, under the same fence.
    fn again(&self, record: &Record, completed: &Completed) -> (Change, CompleteAnswer) {
        let by_execution = completed.by == CompletedBy::Execution;
        if completed.outcome == self.outcome || (by_execution && completed.outcome.is_erased()) {
            return (Change::Keep, CompleteAnswer::Already);
        }
        if by_execution {
            return (Change::Keep, CompleteAnswer::Alarm);
        }
        if completed.late.is_some() || completed.outcome.is_erased() {
            // One late outcome is kept, and none once the record was erased: that would bring the body back.
            return (Change::Keep, CompleteAnswer::Late);
        }
        let completed = Completed { late: Some(Box::new(self.outcome.clone())), ..completed.clone() };
        (Change::Put(Record { state: State::Completed(completed), ..record.clone() }), CompleteAnswer::Late)
    }
}

impl Transition for Release {
    type Answer = ReleaseAnswer;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, ReleaseAnswer) {
        // A lease that has passed may have been acted upon: only a live owner can say that nothing happened.
        let Some(record) = live(stored, &self.token, now) else {
            return (Change::Keep, ReleaseAnswer::Fenced);
        };
        let record = Record {
            fingerprint: record.fingerprint.clone().filter(|_| self.keep_fingerprint),
            state: State::Released { expires_at: now + record.retention.get() },
            ..record.clone()
        };
        (Change::Put(record), ReleaseAnswer::Released)
    }
}

impl Transition for Abandon {
    type Answer = AbandonAnswer;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, AbandonAnswer) {
        let Some(record) = held_by(stored, &self.token).filter(|record| !record.is_expired(now)) else {
            return (Change::Keep, AbandonAnswer::Fenced);
        };
        match record.state {
            State::InFlight { lease_until } => {
                let state = State::Unknown {
                    since: now.min(lease_until),
                    expires_at: now + record.unknown_retention.get(),
                    recovery: None,
                };
                (Change::Put(Record { state, ..record.clone() }), AbandonAnswer::Abandoned)
            }
            State::Unknown { .. } => (Change::Keep, AbandonAnswer::Abandoned),
            State::Completed(_) | State::Released { .. } => (Change::Keep, AbandonAnswer::Fenced),
        }
    }
}

impl Transition for RecordStep {
    type Answer = StepAnswer;

    fn id(&self) -> &RecordId {
        &self.token.id
    }

    fn decide(&self, stored: Option<&Record>, Moment { now, .. }: Moment) -> (Change, StepAnswer) {
        let Some(record) = live(stored, &self.token, now) else {
            return (Change::Keep, StepAnswer::Fenced);
        };
        if let Some(step) = record.steps.iter().find(|step| step.name == self.name) {
            let answer = step.value.clone().map_or(StepAnswer::Erased, StepAnswer::Already);
            return (Change::Keep, answer);
        }
        if record.steps.len() >= STEPS_MAX || record.steps_weight() + self.value.len() > STEPS_BYTES_MAX {
            return (Change::Keep, StepAnswer::Full);
        }
        let mut record = record.clone();
        record.steps.push(Step { name: self.name.clone(), value: Some(self.value.clone()) });
        (Change::Put(record), StepAnswer::Recorded)
    }
}
