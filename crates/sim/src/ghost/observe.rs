//! What one step of the store told, and whether it may have told that.

use onlyonce_core::transition::{
    AbandonAnswer, Answer, Change, ClaimAnswer, CompleteAnswer, EraseAnswer, Grant, ReleaseAnswer,
    RenewAnswer, Replay, ResolveAnswer, StepAnswer, SweepAnswer, UnknownPolicy,
};

use super::{Event, Ghost, Last, Life, Promise, Standing};
use crate::caller::{small, ticks};
use crate::letter::{Letter, Order, Tag};
use crate::setup::{ATTEMPTS_MAX, LEASE, RETENTION, RUN_MAX, Setup, UNKNOWN_RETENTION};

impl Ghost {
    /// Takes note of one step of the store.
    pub fn observe(
        &mut self,
        letter: Letter,
        (change, answer): (&Change, &Answer),
        setup: &Setup,
    ) -> Option<Event> {
        self.observe_change(letter, change);
        match answer {
            Answer::Claim(answer) => self.observe_claim(letter, answer, setup),
            Answer::Renew(RenewAnswer::Renewed(left)) => {
                self.expect(Promise::StaleToken, self.is_live(letter));
                self.standing = Standing::InFlight { left: ticks(*left) };
                None
            }
            Answer::Complete(answer) => self.observe_complete(letter, *answer),
            Answer::Release(ReleaseAnswer::Released) => {
                self.expect(Promise::StaleToken, self.is_live(letter));
                if letter.order == (Order::Release { keep_fingerprint: false }) {
                    self.request = None;
                }
                self.released();
                None
            }
            Answer::Release(ReleaseAnswer::Fenced) => {
                self.expect(Promise::LiveOwner, !self.is_live(letter));
                Some(Event::Fenced)
            }
            Answer::Abandon(AbandonAnswer::Abandoned) => {
                self.expect(Promise::StaleToken, self.is_welcome(letter));
                self.made_unknown();
                None
            }
            Answer::Abandon(AbandonAnswer::Fenced) => {
                self.expect(Promise::LiveOwner, !self.is_welcome(letter));
                Some(Event::Fenced)
            }
            Answer::Renew(RenewAnswer::Fenced) => Some(Event::Fenced),
            Answer::RecordStep(answer) => self.observe_step(letter, answer),
            Answer::Resolve(ResolveAnswer::Resolved) => self.observe_resolution(letter),
            Answer::Erase(EraseAnswer::Erased) => {
                self.made_unknown();
                self.step = self.step.map(|(fence, _)| (fence, false));
                self.standing = self.standing.erased();
                None
            }
            Answer::Sweep(SweepAnswer::MadeUnknown) => {
                self.expect(Promise::I12, self.standing.is_lapsed());
                self.made_unknown();
                None
            }
            Answer::Resolve(_) | Answer::Erase(_) | Answer::Sweep(_) => None,
        }
    }

    fn observe_change(&mut self, letter: Letter, change: &Change) {
        match change {
            Change::Keep => {}
            Change::Remove => self.expect(Promise::I12, self.standing == Standing::Absent),
            Change::Put(record) => {
                self.expect(Promise::I2, record.fence.get() >= self.fence_max.into());
                self.expect(Promise::StaleToken, !letter.shows_a_token() || self.is_last(letter));
            }
        }
    }

    fn observe_claim(&mut self, letter: Letter, answer: &ClaimAnswer, setup: &Setup) -> Option<Event> {
        let differs = self.request.is_some_and(|request| request != setup.request_of(letter.owner));
        self.expect(Promise::I10, differs == matches!(answer, ClaimAnswer::Mismatch { .. }));
        match answer {
            ClaimAnswer::Granted(grant) => self.granted(letter.owner, grant, setup),
            ClaimAnswer::Replay(replay) => Some(self.replayed(replay, setup.policy_of(letter.owner))),
            ClaimAnswer::Busy(_) => None,
            ClaimAnswer::Held(_) => {
                self.made_unknown();
                Some(Event::Held)
            }
            ClaimAnswer::Recover(_) => {
                self.made_unknown();
                if let Standing::Unknown { asking: asking @ 0, .. } = &mut self.standing {
                    *asking = LEASE;
                }
                Some(Event::Recovering)
            }
            ClaimAnswer::Mismatch { .. } => Some(Event::Mismatched),
            ClaimAnswer::Fenced => {
                self.made_unknown();
                Some(Event::Fenced)
            }
        }
    }

    fn granted(&mut self, owner: u8, grant: &Grant, setup: &Setup) -> Option<Event> {
        let fence = small(grant.fence.get());
        if self.standing.is_live() && self.last.is_some_and(|last| (last.owner, last.fence) == (owner, fence))
        {
            return None;
        }
        self.expect(Promise::I1, fence > self.fence_max);
        self.expect(Promise::I5, !matches!(self.standing, Standing::Completed { .. }));
        self.expect(Promise::I16, self.last.is_none_or(|last| last.owner != owner));
        let unknown = self.standing.is_unknown();
        let attempts = self.lives.last().map_or(0, |life| life.grants);
        let is_asked = matches!(self.standing, Standing::Unknown { asking: 1.., .. });
        let may_rerun =
            setup.policy_of(owner) == UnknownPolicy::Rerun && attempts < ATTEMPTS_MAX && !is_asked;
        self.expect(Promise::I6, !self.standing.is_live() && (!unknown || may_rerun));

        let event = if self.standing == Standing::Absent {
            let life = Life { first_fence: fence, grants: 1, effects: 0, granted: 1, released: 1 };
            self.lives.push(life);
            (self.fence_max > 0).then_some(Event::Reused)
        } else {
            if let Some(life) = self.lives.last_mut() {
                life.grants += 1;
                // Two owners of one fence share one grant.
                life.granted += u8::from(fence > self.fence_max);
            }
            unknown.then_some(Event::TakenOver)
        };
        let event = self.steps_read_back(grant).or(event);
        self.request = Some(setup.request_of(owner));
        self.last = Some(Last { owner, fence, effect: false, completed: false });
        self.fence_max = self.fence_max.max(fence);
        self.standing = Standing::InFlight { left: LEASE.min(RUN_MAX) };
        if setup.strict_owners {
            self.expect(Promise::StrictOwner, self.owners & (1 << owner) == 0);
            self.owners |= 1 << owner;
        }
        event
    }

    /// A later attempt at the same request gets what the earlier ones recorded; a new request gets nothing.
    fn steps_read_back(&mut self, grant: &Grant) -> Option<Event> {
        self.step = self.step.filter(|_| self.request.is_some());
        let read = grant.steps.first().map(|step| step.value.as_ref().map(|value| value[0]));
        let recorded = self.step.map(|(fence, there)| there.then_some(fence));
        self.expect(Promise::Steps, read == recorded);
        read.map(|_| Event::StepReadBack)
    }

    fn replayed(&mut self, replay: &Replay, policy: UnknownPolicy) -> Event {
        let shown = Tag::read(&replay.outcome);
        let fenced = match shown {
            Some(Tag::Reported(fence) | Tag::FoundOut(fence)) => {
                self.last.is_none_or(|last| last.fence != fence)
            }
            _ => false,
        };
        self.expect(Promise::FencedOutcome, !fenced);
        match self.standing {
            Standing::Completed { tag, .. } => {
                self.expect(Promise::I3, shown == Some(tag));
                if tag == Tag::Erased { Event::ErasedReplayed } else { Event::Replayed }
            }
            standing => {
                let may_seal = standing.is_unknown() && policy != UnknownPolicy::Query;
                self.expect(Promise::I3, may_seal && shown == Some(Tag::Indeterminate));
                self.sealed();
                Event::Sealed
            }
        }
    }

    fn observe_complete(&mut self, letter: Letter, answer: CompleteAnswer) -> Option<Event> {
        match answer {
            CompleteAnswer::Completed => {
                self.expect(Promise::StaleToken, self.is_last(letter));
                self.expect(Promise::I4, self.last.is_none_or(|last| !last.completed));
                self.expect(Promise::I3, self.standing.is_open());
                let late = !self.is_live(letter);
                if let Some(last) = &mut self.last {
                    last.completed = true;
                }
                self.completed(Tag::Reported(letter.fence));
                late.then_some(Event::CompletedLate)
            }
            CompleteAnswer::Already | CompleteAnswer::Late => {
                self.expect(Promise::I16, matches!(self.standing, Standing::Completed { .. }));
                None
            }
            // Owners report one outcome only, so this can only be a false alarm.
            CompleteAnswer::Alarm => {
                self.expect(Promise::I16, false);
                None
            }
            CompleteAnswer::Fenced => {
                self.expect(Promise::LiveOwner, !self.is_welcome(letter));
                Some(Event::Fenced)
            }
        }
    }

    fn observe_step(&mut self, letter: Letter, answer: &StepAnswer) -> Option<Event> {
        match answer {
            StepAnswer::Recorded => {
                self.expect(Promise::StaleToken, self.is_live(letter));
                self.expect(Promise::Steps, self.step.is_none());
                self.step = Some((letter.fence, true));
                None
            }
            StepAnswer::Already(value) => {
                self.expect(Promise::Steps, self.step == Some((value[0], true)));
                None
            }
            StepAnswer::Erased => {
                self.expect(Promise::Steps, self.step.is_some_and(|(_, there)| !there));
                None
            }
            StepAnswer::Full => None,
            StepAnswer::Fenced => {
                self.expect(Promise::LiveOwner, !self.is_live(letter));
                Some(Event::Fenced)
            }
        }
    }

    fn observe_resolution(&mut self, letter: Letter) -> Option<Event> {
        let sealed = matches!(self.standing, Standing::Completed { sealed: true, .. });
        self.expect(Promise::I3, self.standing.is_unknown() || sealed);
        self.expect(Promise::StaleToken, self.last.is_some_and(|last| last.fence == letter.fence));
        match letter.order {
            Order::ResolveExecuted => self.completed(Tag::FoundOut(letter.fence)),
            Order::ResolveNotExecuted => self.released(),
            _ => {
                self.made_unknown();
                if let Standing::Unknown { asking, .. } = &mut self.standing {
                    *asking = 0;
                }
            }
        }
        None
    }

    fn completed(&mut self, tag: Tag) {
        self.standing = Standing::Completed { left: RETENTION, tag, sealed: false };
    }

    /// To close a record must not shorten the time in which it protects its key.
    fn sealed(&mut self) {
        let unknown_for = match self.standing {
            Standing::Unknown { left, .. } => left,
            _ => UNKNOWN_RETENTION,
        };
        let left = RETENTION.max(unknown_for);
        self.standing = Standing::Completed { left, tag: Tag::Indeterminate, sealed: true };
    }

    fn released(&mut self) {
        if let Some(life) = self.lives.last_mut() {
            life.released += 1;
        }
        self.standing = Standing::Released { left: RETENTION };
    }

    /// From when someone was told so on, the time counts in which it must be found out.
    fn made_unknown(&mut self) {
        if matches!(self.standing, Standing::InFlight { .. }) {
            self.standing = Standing::Unknown { left: UNKNOWN_RETENTION, asking: 0 };
        }
    }

    fn is_last(&self, letter: Letter) -> bool {
        self.last.is_some_and(|last| (last.owner, last.fence) == (letter.owner, letter.fence))
    }

    fn is_live(&self, letter: Letter) -> bool {
        self.is_last(letter) && self.standing.is_live()
    }

    /// Whether a completion must be accepted, be it late.
    fn is_welcome(&self, letter: Letter) -> bool {
        self.is_last(letter) && self.standing.is_open()
    }

    pub(super) fn expect(&mut self, promise: Promise, kept: bool) {
        self.broken |= u32::from(!kept) << promise as u32;
    }
}
