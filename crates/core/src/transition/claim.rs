//! `claim`: the one atomic attempt to become the owner.

use std::time::Duration;

use super::command::{Busy, Claim, ClaimAnswer, Grant, Held, RecoverGrant, Replay, UnknownPolicy};
use super::{Change, Moment, Transition, view};
use crate::clock::Timestamp;
use crate::record::{Completed, CompletedBy, Fence, Record, Recovery, State};
use crate::scope::RecordId;

impl Transition for Claim {
    type Answer = ClaimAnswer;

    fn id(&self) -> &RecordId {
        &self.id
    }

    #[inline]
    fn decide(&self, stored: Option<&Record>, moment: Moment) -> (Change, ClaimAnswer) {
        let Some(seen) = view(stored, moment.now) else {
            // The fence of an expired record still counts: fences never go down, not even across expiry.
            let last = stored.map_or(Fence::default(), |record| record.fence);
            return self.grant(None, last, moment);
        };
        if let Some(stored) = &seen.fingerprint
            && *stored != self.fingerprint
        {
            let rules = (stored.rules() != self.fingerprint.rules()).then(|| stored.rules().clone());
            return (Change::Keep, ClaimAnswer::Mismatch { rules });
        }
        match &seen.state {
            State::InFlight { .. } if seen.owner == self.owner => {
                let grant = Grant { fence: seen.fence, attempt: seen.attempt, steps: seen.steps.clone() };
                (Change::Keep, ClaimAnswer::Granted(grant))
            }
            State::InFlight { lease_until } => busy(*lease_until, moment.now),
            State::Completed(completed) => (Change::Keep, replay(&seen, completed, moment.now)),
            State::Released { .. } => self.grant_again(&seen, moment),
            State::Unknown { .. } => {
                let (change, answer) = self.unknown(&seen, moment);
                // A passed lease becomes UNKNOWN in the same step as whatever the policy says next.
                let lapsed = stored.is_some_and(|record| record.is_lapsed(moment.now));
                let change =
                    if change == Change::Keep && lapsed { Change::Put(seen.into_owned()) } else { change };
                (change, answer)
            }
        }
    }
}

impl Claim {
    /// The UNKNOWN row of the table: by policy.
    fn unknown(&self, seen: &Record, moment: Moment) -> (Change, ClaimAnswer) {
        let State::Unknown { since, expires_at, recovery } = &seen.state else {
            unreachable!("called for UNKNOWN only");
        };
        if let Some(recovery) = recovery.as_ref().filter(|recovery| moment.now < recovery.lease_until) {
            // While someone finds out, nothing may start, whatever the policy of this claim.
            return if recovery.owner == self.owner {
                (Change::Keep, recover(seen, moment.now))
            } else {
                busy(recovery.lease_until, moment.now)
            };
        }
        match self.terms.unknown {
            UnknownPolicy::Seal => self.seal(seen, moment.now),
            UnknownPolicy::Query => {
                let recovery =
                    Recovery { owner: self.owner, lease_until: moment.now + self.terms.lease.get() };
                let state =
                    State::Unknown { since: *since, expires_at: *expires_at, recovery: Some(recovery) };
                (Change::Put(Record { state, ..seen.clone() }), recover(seen, moment.now))
            }
            UnknownPolicy::Rerun if seen.attempt < self.terms.attempts_max => self.grant_again(seen, moment),
            UnknownPolicy::Hold | UnknownPolicy::Rerun => {
                if moment.now >= *since + self.terms.hold_for {
                    return self.seal(seen, moment.now);
                }
                let held = Held { fence: seen.fence, age: since.until(moment.now) };
                (Change::Keep, ClaimAnswer::Held(held))
            }
        }
    }

    /// A grant on top of what is there. An owner is for one attempt, so a claim that arrives a second time after its
    /// grant was lost starts nothing (I16).
    fn grant_again(&self, seen: &Record, moment: Moment) -> (Change, ClaimAnswer) {
        if seen.owner == self.owner {
            return (Change::Keep, ClaimAnswer::Fenced);
        }
        self.grant(Some(seen), seen.fence, moment)
    }

    #[inline]
    fn grant(&self, seen: Option<&Record>, last: Fence, moment: Moment) -> (Change, ClaimAnswer) {
        let Moment { now, next_fence } = moment;
        let Some(fence) = last.after(next_fence) else {
            // No source comes near the end of the fences; a record that claims to be there is never granted again.
            return (Change::Keep, ClaimAnswer::Held(Held { fence: last, age: Duration::ZERO }));
        };
        let attempt = seen.map_or(0, |record| record.attempt).saturating_add(1);
        // Steps belong to one request: when the fingerprint was forgotten, so is what that request recorded.
        let steps = match seen {
            Some(record) if record.fingerprint.is_some() => record.steps.clone(),
            _ => Vec::new(),
        };
        let run_until = now + self.terms.run_max;
        let record = Record {
            fence,
            attempt,
            owner: self.owner,
            fingerprint: Some(self.fingerprint.clone()),
            created_at: seen.map_or(now, |record| record.created_at),
            granted_at: now,
            run_until,
            retention: self.terms.retention,
            unknown_retention: self.terms.unknown_retention,
            remote: self.terms.remote,
            steps: steps.clone(),
            state: State::InFlight { lease_until: run_until.min(now + self.terms.lease.get()) },
        };
        (Change::Put(record), ClaimAnswer::Granted(Grant { fence, attempt, steps }))
    }

    fn seal(&self, seen: &Record, now: Timestamp) -> (Change, ClaimAnswer) {
        let completed = Completed {
            outcome: self.terms.sealed.clone(),
            by: CompletedBy::Seal,
            at: now,
            // Sealing must not shorten how long an unknown outcome protects its key.
            expires_at: (now + seen.retention.get()).max(seen.expires_at().unwrap_or_default()),
            late: None,
        };
        let answer = replay(seen, &completed, now);
        (Change::Put(Record { state: State::Completed(completed), ..seen.clone() }), answer)
    }
}

fn busy(until: Timestamp, now: Timestamp) -> (Change, ClaimAnswer) {
    (Change::Keep, ClaimAnswer::Busy(Busy { left: now.until(until) }))
}

fn recover(seen: &Record, now: Timestamp) -> ClaimAnswer {
    ClaimAnswer::Recover(RecoverGrant {
        fence: seen.fence,
        attempt: seen.attempt,
        quiet_in: now.until(seen.run_until),
        steps: seen.steps.clone(),
    })
}

fn replay(seen: &Record, completed: &Completed, now: Timestamp) -> ClaimAnswer {
    let age: Duration = completed.at.until(now);
    ClaimAnswer::Replay(Replay {
        outcome: completed.outcome.clone(),
        by: completed.by,
        fence: seen.fence,
        attempt: seen.attempt,
        age,
        left: now.until(completed.expires_at),
    })
}
