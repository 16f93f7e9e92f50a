//! Watches one record from the outside: what the answers promised so far, and which promise was broken.
//!
//! It goes by answers, terms and time alone. It never asks `broken_invariant`, and it reads the record only as anyone
//! may: through `view`, through a claim, and by whether a removed one was in flight.

use std::collections::BTreeMap;

use onlyonce_core::record::{CompletedBy, State};
use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Answer, Change, Claim, ClaimAnswer, Command, Complete, CompleteAnswer,
    EraseAnswer, Grant, Moment, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer, Resolve,
    ResolveAnswer, Token, Verdict, transition, view,
};
use onlyonce_core::{Fence, Fingerprint, Outcome, Owner, Record, Timestamp, UnknownPolicy};
use onlyonce_testkit::fixture::{LEASE, RETENTION, UNKNOWN_RETENTION};

use crate::scene::{POLICIES, claim};

/// What the answers so far say about the record.
#[derive(Debug, Clone, PartialEq)]
enum Phase {
    Absent,
    Live { until: Timestamp },
    Unknown { not_forgotten_before: Timestamp },
    Released { until: Timestamp },
    Completed(Promise),
}

/// An answer that was acknowledged, and must be read until it expires.
#[derive(Debug, Clone, PartialEq)]
struct Promise {
    outcome: Outcome,
    by: CompletedBy,
    until: Timestamp,
}

/// A grant, as it was answered.
#[derive(Debug, Clone, Copy)]
struct Given {
    token: Token,
    attempt: u32,
    /// Which life of the record it belongs to: one begins with every attempt 1.
    life: usize,
}

#[derive(Debug)]
pub(crate) struct Watch {
    phase: Phase,
    grants: Vec<Given>,
    /// The fingerprint that the last grant was for, until it is forgotten.
    fingerprint: Option<Fingerprint>,
    completions: BTreeMap<Fence, u32>,
    broken: Vec<(&'static str, String)>,
}

/// A command, what came of it, and when.
pub(crate) struct Seen<'a> {
    pub(crate) before: Option<&'a Record>,
    pub(crate) command: &'a Command,
    pub(crate) change: &'a Change,
    pub(crate) answer: &'a Answer,
    pub(crate) now: Timestamp,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            phase: Phase::Absent,
            grants: Vec::new(),
            fingerprint: None,
            completions: BTreeMap::new(),
            broken: Vec::new(),
        }
    }

    /// How the promise named `name` was first broken, if it was.
    pub(crate) fn broken(&self, name: &str) -> Option<&str> {
        self.broken.iter().find(|(broken, _)| *broken == name).map(|(_, how)| how.as_str())
    }

    /// Every token that was ever granted, the last one first.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.grants.iter().rev().map(|given| given.token)
    }

    /// The highest fence that was ever granted.
    pub(crate) fn highest(&self) -> Fence {
        self.grants.iter().map(|given| given.token.fence).max().unwrap_or_default()
    }

    fn check(&mut self, name: &'static str, holds: bool, how: impl FnOnce(&Self) -> String) {
        if !holds {
            let how = how(self);
            self.broken.push((name, how));
        }
    }

    /// Takes note of a command that was answered.
    pub(crate) fn note(&mut self, seen: &Seen<'_>) {
        self.pass_time(seen.now);
        self.note_removal(seen);
        self.note_stale(seen);
        let now = seen.now;
        match (seen.command, seen.answer) {
            (Command::Claim(claim), Answer::Claim(answer)) => {
                self.note_claim(claim, answer, *seen.change == Change::Keep, now);
            }
            (Command::Renew(_), Answer::Renew(RenewAnswer::Renewed(left))) => {
                self.phase = Phase::Live { until: now + *left };
            }
            (Command::Complete(complete), Answer::Complete(answer)) => {
                self.note_completion(complete, *answer, now);
            }
            (Command::Release(release), Answer::Release(ReleaseAnswer::Released)) => {
                self.phase = Phase::Released { until: now + RETENTION };
                self.fingerprint.take_if(|_| !release.keep_fingerprint);
            }
            (Command::Abandon(_), Answer::Abandon(AbandonAnswer::Abandoned)) => {
                if let Phase::Live { .. } = self.phase {
                    self.phase = Phase::Unknown { not_forgotten_before: now + UNKNOWN_RETENTION };
                }
            }
            (Command::Resolve(resolve), Answer::Resolve(ResolveAnswer::Resolved)) => {
                self.note_resolution(resolve, now);
            }
            (Command::Erase(_), Answer::Erase(EraseAnswer::Erased)) => {
                if let Phase::Completed(promise) = &mut self.phase {
                    promise.outcome = promise.outcome.erased();
                }
            }
            _ => {}
        }
    }

    /// What the passing of time alone does.
    fn pass_time(&mut self, now: Timestamp) {
        match &self.phase {
            Phase::Live { until } if now >= *until => {
                self.phase = Phase::Unknown { not_forgotten_before: *until + UNKNOWN_RETENTION };
            }
            Phase::Released { until } | Phase::Completed(Promise { until, .. }) if now >= *until => {
                self.phase = Phase::Absent;
            }
            _ => {}
        }
    }

    fn note_claim(&mut self, claim: &Claim, answer: &ClaimAnswer, kept: bool, now: Timestamp) {
        let live = matches!(self.phase, Phase::Live { .. });
        let last = self.grants.last().copied();
        let holds = last.is_some_and(|given| live && given.token.owner == claim.owner);
        let same_request = self.fingerprint.as_ref() == Some(&claim.fingerprint);
        if holds && same_request {
            let same = |grant: &Grant| last.is_some_and(|given| is_grant(given, grant));
            let again = matches!(answer, ClaimAnswer::Granted(grant) if kept && same(grant));
            self.check("I16", again, |_| format!("the live owner claimed again and got {answer:?}"));
        }
        match answer {
            ClaimAnswer::Granted(_) if kept => {
                self.check("I16", holds, |_| "a grant was repeated to someone else".into());
            }
            ClaimAnswer::Granted(grant) => self.note_grant(claim, grant, now),
            ClaimAnswer::Replay(replay) => match &self.phase {
                Phase::Completed(promise) => {
                    let same = promise.outcome == replay.outcome && promise.until == now + replay.left;
                    self.check("I3", same, |_| format!("replayed {replay:?}"));
                }
                Phase::Unknown { not_forgotten_before } => {
                    let until = now + replay.left;
                    let long = until >= (now + RETENTION).max(*not_forgotten_before);
                    self.check("I3", long, |_| format!("sealing shortened the protection: {replay:?}"));
                    let outcome = replay.outcome.clone();
                    self.phase = Phase::Completed(Promise { outcome, by: CompletedBy::Seal, until });
                }
                _ => self.check("I3", false, |watch| format!("replayed out of {:?}", watch.phase)),
            },
            _ => {}
        }
    }

    fn note_grant(&mut self, claim: &Claim, grant: &Grant, now: Timestamp) {
        let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
        let higher = self.grants.iter().all(|given| given.token.fence < grant.fence);
        self.check("I1", higher, |watch| format!("granted {:?} after {:?}", grant.fence, watch.highest()));

        let last = self.grants.last().copied();
        let over = grant.attempt == 1;
        let next = last.is_some_and(|given| given.attempt + 1 == grant.attempt);
        let rerun = claim.terms.unknown == UnknownPolicy::Rerun && grant.attempt <= claim.terms.attempts_max;
        let allowed = match &self.phase {
            Phase::Absent => over,
            Phase::Released { .. } => next,
            Phase::Unknown { not_forgotten_before } => {
                (over && now >= *not_forgotten_before) || (next && rerun)
            }
            Phase::Live { .. } | Phase::Completed(_) => false,
        };
        let finished = matches!(self.phase, Phase::Completed(_));
        let name = if finished { "I5" } else { "I6" };
        self.check(name, allowed, |watch| {
            format!("attempt {} was granted out of {:?}", grant.attempt, watch.phase)
        });

        let life = last.map_or(0, |given| given.life + usize::from(over));
        // A record remembers its last owner only: an owner before that one looks like a new one.
        let fresh = last.is_none_or(|given| given.life != life || given.token.owner != claim.owner);
        self.check("I16", fresh, |_| "one owner had two grants in a row".into());

        self.grants.push(Given { token, attempt: grant.attempt, life });
        self.fingerprint = Some(claim.fingerprint.clone());
        self.phase = Phase::Live { until: now + LEASE.min(claim.terms.run_max) };
    }

    fn note_completion(&mut self, complete: &Complete, answer: CompleteAnswer, now: Timestamp) {
        let outcome = &complete.outcome;
        let current = self.tokens().next() == Some(complete.token);
        if let Phase::Completed(promise) = &self.phase
            && promise.by == CompletedBy::Execution
            && current
            && (promise.outcome == *outcome || promise.outcome.is_erased())
        {
            let again = answer == CompleteAnswer::Already;
            self.check("I16", again, |_| format!("the same completion was answered {answer:?}"));
        }
        if answer == CompleteAnswer::Completed {
            let until = now + complete.retention.map_or(RETENTION, onlyonce_core::Retention::get);
            let promise = Promise { outcome: outcome.clone(), by: CompletedBy::Execution, until };
            self.finish(complete.token.fence, promise);
        }
    }

    fn note_resolution(&mut self, resolve: &Resolve, now: Timestamp) {
        match &resolve.verdict {
            Verdict::Executed(outcome) => {
                let (outcome, by) = (outcome.clone(), CompletedBy::Resolve);
                self.finish(resolve.fence, Promise { outcome, by, until: now + RETENTION });
            }
            Verdict::NotExecuted { .. } => self.phase = Phase::Released { until: now + RETENTION },
            Verdict::StillUnknown => {}
        }
    }

    /// An outcome was accepted. What was known already may not be replaced; what was only sealed may.
    fn finish(&mut self, fence: Fence, promise: Promise) {
        let known = matches!(&self.phase, Phase::Completed(before) if before.by != CompletedBy::Seal);
        self.check("I3", !known, |_| format!("an answer was replaced under {fence:?}"));
        let count = self.completions.entry(fence).or_default();
        *count += 1;
        let once = *count == 1;
        self.check("I4", once, |_| format!("two completions were accepted under {fence:?}"));
        self.phase = Phase::Completed(promise);
    }

    fn note_removal(&mut self, seen: &Seen<'_>) {
        if *seen.change != Change::Remove {
            return;
        }
        let swept = matches!(seen.command, Command::Sweep(_));
        let was = seen.before.map(|record| &record.state);
        let over = match &self.phase {
            Phase::Absent => true,
            Phase::Unknown { not_forgotten_before } => seen.now >= *not_forgotten_before,
            _ => false,
        };
        let allowed = swept && over && !matches!(was, Some(State::InFlight { .. }));
        self.check("I12", allowed, |watch| format!("removed out of {:?}", watch.phase));
        self.phase = Phase::Absent;
    }

    fn note_stale(&mut self, seen: &Seen<'_>) {
        let stale = token_of(seen.command).is_some_and(|token| self.tokens().next() != Some(token));
        let kept = *seen.change == Change::Keep;
        self.check("fencing", kept || !stale, |_| format!("a stale token did {:?}", seen.command));
    }

    /// Reads the record in every way there is, after a command or some time.
    pub(crate) fn read(&mut self, stored: Option<&Record>, now: Timestamp) {
        self.pass_time(now);
        let highest = self.highest();
        let grown = stored.is_none_or(|record| record.fence == highest);
        self.check("I2", grown, |_| format!("the stored fence is not {highest:?}"));

        let Phase::Completed(promise) = self.phase.clone() else { return };
        let seen = view(stored, now);
        let state = seen.as_ref().map(|record| &record.state);
        let same = matches!(state, Some(State::Completed(completed))
            if completed.outcome == promise.outcome && completed.expires_at == promise.until);
        self.check("I3", same, |_| format!("{state:?} is read instead of {promise:?}"));
        for policy in POLICIES {
            let claim = Claim {
                fingerprint: self.fingerprint.clone().expect("completed records keep their fingerprint"),
                ..claim(Owner::from_bytes([0xee; 16]), policy)
            };
            let moment = Moment { now, next_fence: highest };
            let (change, answer) = transition(stored, &Command::Claim(claim), moment);
            let same = matches!(&answer, Answer::Claim(ClaimAnswer::Replay(replay))
                if change == Change::Keep && replay.outcome == promise.outcome);
            self.check("I3", same, |_| format!("a claim was answered {answer:?} instead of {promise:?}"));
        }
    }

    /// The same command came again at the same instant, and this is how the record changed then.
    pub(crate) fn note_repeat(&mut self, command: &Command, unchanged: bool) {
        self.check("I16", unchanged, |_| format!("a repeated command did more: {command:?}"));
    }
}

fn is_grant(given: Given, grant: &Grant) -> bool {
    (given.token.fence, given.attempt) == (grant.fence, grant.attempt)
}

fn token_of(command: &Command) -> Option<Token> {
    match command {
        Command::Renew(Renew { token, .. })
        | Command::Complete(Complete { token, .. })
        | Command::Release(Release { token, .. })
        | Command::Abandon(Abandon { token })
        | Command::RecordStep(RecordStep { token, .. }) => Some(*token),
        Command::Claim(_) | Command::Resolve(_) | Command::Erase(_) | Command::Sweep(_) => None,
    }
}
