//! Who does what next: a small cast of records and owners, so that random commands keep meeting each other.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::record::{Fence, StepName};
use onlyonce_core::transition::{
    Abandon, Actor, Answer, Claim, ClaimAnswer, Command, Complete, Erase, RecordStep, Release, Renew,
    Resolve, Token, UnknownPolicy, Verdict,
};
use onlyonce_core::{Lease, Owner, RecordId, Retention};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;

use super::Event;
use crate::fixture::{
    HOLD_FOR, LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION, any_id, fingerprint, outcome, terms,
};

const POLICIES: [UnknownPolicy; 4] =
    [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun];
const BODIES: [&str; 3] = ["one", "two", "three"];
const STEPS: [&str; 2] = ["charge", "mail"];

pub(super) struct Cast {
    ids: [RecordId; 3],
    /// The claims sent so far: any of them may be sent again, as a network would.
    claims: Vec<Claim>,
    /// Every grant ever made; most of them are stale.
    tokens: Vec<Token>,
    owners: u64,
}

impl Cast {
    pub(super) fn new() -> Self {
        Self { ids: [any_id(), any_id(), any_id()], claims: Vec::new(), tokens: Vec::new(), owners: 0 }
    }

    pub(super) fn ids(&self) -> &[RecordId] {
        &self.ids
    }

    /// Remembers what was granted, so that it can be used and misused.
    pub(super) fn learn(&mut self, command: &Command, answer: &Answer) {
        if let (Command::Claim(claim), Answer::Claim(ClaimAnswer::Granted(grant))) = (command, answer) {
            self.tokens.push(Token { id: claim.id, owner: claim.owner, fence: grant.fence });
        }
    }

    pub(super) fn next(&mut self, rng: &mut SmallRng) -> Event {
        match rng.random_range(0..100) {
            0..15 => Event::Advance(some_time(rng)),
            15..18 => Event::SweepAll,
            18 => Event::Restart,
            19..25 => Event::Batch(self.batch(rng)),
            25..50 => Event::Command(Command::Claim(self.claim(rng))),
            _ => Event::Command(self.other_command(rng)),
        }
    }

    /// A few commands of one kind.
    fn batch(&mut self, rng: &mut SmallRng) -> Vec<Command> {
        let len = rng.random_range(1..5);
        let kind = rng.random_range(0..4);
        (0..len)
            .map(|_| match kind {
                0 => Command::Claim(self.claim(rng)),
                1 => Command::Renew(self.renew(rng)),
                2 => Command::Complete(self.complete(rng)),
                _ => Command::Release(self.release(rng)),
            })
            .collect()
    }

    fn renew(&self, rng: &mut SmallRng) -> Renew {
        Renew { token: self.some_token(rng), lease: Lease::new(LEASE).unwrap() }
    }

    fn complete(&self, rng: &mut SmallRng) -> Complete {
        let retention = rng.random_ratio(1, 5).then(|| Retention::new(RETENTION * 2).unwrap());
        Complete { token: self.some_token(rng), outcome: outcome(BODIES.choose(rng).unwrap()), retention }
    }

    fn release(&self, rng: &mut SmallRng) -> Release {
        Release { token: self.some_token(rng), keep_fingerprint: rng.random() }
    }

    fn claim(&mut self, rng: &mut SmallRng) -> Claim {
        if rng.random_ratio(1, 6)
            && let Some(claim) = self.claims.choose(rng)
        {
            return claim.clone();
        }
        self.owners += 1;
        let mut owner = [0; 16];
        owner[..8].copy_from_slice(&self.owners.to_le_bytes());
        let body: &[u8] = if rng.random_ratio(1, 10) { b"another body" } else { b"body" };
        let claim = Claim {
            id: self.some_id(rng),
            fingerprint: fingerprint(body),
            owner: Owner::from_bytes(owner),
            terms: Arc::new(terms(*POLICIES.choose(rng).unwrap())),
        };
        self.claims.push(claim.clone());
        claim
    }

    fn other_command(&self, rng: &mut SmallRng) -> Command {
        let token = self.some_token(rng);
        match rng.random_range(0..100) {
            0..10 => Command::Renew(self.renew(rng)),
            10..40 => Command::Complete(self.complete(rng)),
            40..55 => Command::Release(self.release(rng)),
            55..65 => Command::Abandon(Abandon { token }),
            65..77 => {
                let name = StepName::new(STEPS.choose(rng).unwrap()).unwrap();
                Command::RecordStep(RecordStep { token, name, value: (*BODIES.choose(rng).unwrap()).into() })
            }
            77..92 => {
                let verdict = match rng.random_range(0..4) {
                    0 => Verdict::Executed(outcome(BODIES.choose(rng).unwrap())),
                    1 => Verdict::NotExecuted { force: false },
                    2 => Verdict::NotExecuted { force: true },
                    _ => Verdict::StillUnknown,
                };
                Command::Resolve(Resolve { id: token.id, fence: token.fence, verdict, actor: Actor::Hook })
            }
            _ => Command::Erase(Erase { id: self.some_id(rng) }),
        }
    }

    fn some_id(&self, rng: &mut SmallRng) -> RecordId {
        *self.ids.choose(rng).unwrap()
    }

    /// Mostly one of the last tokens; sometimes an old one, one with another's id, or one that nobody was given.
    fn some_token(&self, rng: &mut SmallRng) -> Token {
        let recent = &self.tokens[self.tokens.len().saturating_sub(4)..];
        let known = match rng.random_range(0..10) {
            0..7 => recent.choose(rng),
            _ => self.tokens.choose(rng),
        };
        let forged =
            || Token { id: self.ids[0], owner: Owner::from_bytes([9; 16]), fence: Fence::new(3).unwrap() };
        let token = known.copied().unwrap_or_else(forged);
        if rng.random_ratio(1, 20) { Token { id: self.some_id(rng), ..token } } else { token }
    }
}

fn some_time(rng: &mut SmallRng) -> Duration {
    let often = [TICK, LEASE / 2, LEASE - TICK, LEASE, RUN_MAX];
    let rarely = [RETENTION - TICK, RETENTION, HOLD_FOR, UNKNOWN_RETENTION];
    *if rng.random_ratio(4, 5) { often.choose(rng) } else { rarely.choose(rng) }.unwrap()
}
