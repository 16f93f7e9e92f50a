//! Who does what next: a small cast of records and owners, so that random commands keep meeting each other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onlyonce_core::record::StepName;
use onlyonce_core::scope::RECORD_ID_VERSION;
use onlyonce_core::transition::{
    Abandon, Actor, Answer, Claim, ClaimAnswer, Command, Complete, Erase, RecordStep, Release, Renew,
    Resolve, Token, UnknownPolicy, Verdict,
};
use onlyonce_core::{Fingerprint, Lease, Outcome, Owner, RecordId, Retention, Terms};
use onlyonce_testkit::fixture::{HOLD_FOR, LEASE, RUN_MAX, TICK, UNKNOWN_RETENTION, fingerprint, outcome};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

const POLICIES: [UnknownPolicy; 4] =
    [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun];
const STEPS: [&str; 2] = ["charge", "mail"];
/// Of several classes of segments.
const RETENTIONS: [Duration; 4] =
    [Duration::from_secs(30), Duration::from_secs(100), Duration::from_hours(1), Duration::from_hours(24)];
const UNKNOWN_RETENTIONS: [Duration; 2] = [UNKNOWN_RETENTION, Duration::from_hours(30 * 24)];

/// How many records there are.
pub(crate) const RECORDS: usize = 8;

pub(super) struct Cast {
    pub(super) ids: [RecordId; RECORDS],
    fingerprints: [Fingerprint; 2],
    /// Retentions that this run keeps to: one of them, or all.
    retentions: Vec<Duration>,
    /// The claims sent so far: any of them may be sent again, as a network would.
    claims: Vec<Claim>,
    /// Every grant ever made; most of them are stale.
    tokens: Vec<Token>,
    owners: u64,
}

impl Cast {
    pub(super) fn new(rng: &mut SmallRng) -> Self {
        let ids = std::array::from_fn(|_| {
            let mut bytes: [u8; 32] = rng.random();
            bytes[0] = RECORD_ID_VERSION;
            RecordId::from_bytes(bytes)
        });
        let retentions = match rng.random_range(0..3) {
            0 => vec![*RETENTIONS.choose(rng).unwrap()],
            _ => RETENTIONS.to_vec(),
        };
        let fingerprints = [fingerprint(b"body"), fingerprint(b"another body")];
        Self { ids, fingerprints, retentions, claims: Vec::new(), tokens: Vec::new(), owners: 0 }
    }

    /// Remembers what was granted, so that it can be used and misused.
    pub(super) fn learn(&mut self, command: &Command, answer: &Answer) {
        if let (Command::Claim(claim), Answer::Claim(ClaimAnswer::Granted(grant))) = (command, answer) {
            self.tokens.push(Token { id: claim.id, owner: claim.owner, fence: grant.fence });
        }
    }

    /// A claim of every record by an owner that nobody has heard of.
    pub(super) fn new_claims(&mut self) -> Vec<Claim> {
        let mut rng = SmallRng::seed_from_u64(self.owners);
        self.ids.map(|id| Claim { id, ..self.new_claim(&mut rng) }).to_vec()
    }

    /// Some commands, each on another record.
    pub(super) fn commands(&mut self, rng: &mut SmallRng) -> Vec<Command> {
        let wanted = rng.random_range(1..=4);
        let mut commands: Vec<Command> = Vec::new();
        for _ in 0..20 {
            let command = self.command(rng);
            if commands.len() < wanted && commands.iter().all(|other| other.id() != command.id()) {
                commands.push(command);
            }
        }
        commands
    }

    fn command(&mut self, rng: &mut SmallRng) -> Command {
        if self.tokens.is_empty() || rng.random_ratio(2, 5) {
            return Command::Claim(self.claim(rng));
        }
        let recent = &self.tokens[self.tokens.len().saturating_sub(6)..];
        let token = *if rng.random_ratio(4, 5) { recent } else { &self.tokens }.choose(rng).unwrap();
        match rng.random_range(0..100) {
            0..10 => Command::Renew(Renew { token, lease: Lease::new(LEASE).unwrap() }),
            10..45 => {
                let retention = self.retentions.choose(rng).filter(|_| rng.random_ratio(1, 4));
                let retention = retention.map(|retention| Retention::new(*retention).unwrap());
                Command::Complete(Complete { token, outcome: some_outcome(rng), retention })
            }
            45..58 => Command::Release(Release { token, keep_fingerprint: rng.random() }),
            58..66 => Command::Abandon(Abandon { token }),
            66..78 => {
                let name = StepName::new(STEPS.choose(rng).unwrap()).unwrap();
                Command::RecordStep(RecordStep { token, name, value: some_bytes(rng, 300) })
            }
            78..92 => {
                let verdict = match rng.random_range(0..4) {
                    0 => Verdict::Executed(some_outcome(rng)),
                    1 => Verdict::NotExecuted { force: false },
                    2 => Verdict::NotExecuted { force: true },
                    _ => Verdict::StillUnknown,
                };
                Command::Resolve(Resolve { id: token.id, fence: token.fence, verdict, actor: Actor::Hook })
            }
            _ => Command::Erase(Erase { id: *self.ids.choose(rng).unwrap() }),
        }
    }

    fn claim(&mut self, rng: &mut SmallRng) -> Claim {
        if rng.random_ratio(1, 10)
            && let Some(claim) = self.claims.choose(rng)
        {
            return claim.clone();
        }
        let claim = self.new_claim(rng);
        self.claims.push(claim.clone());
        claim
    }

    fn new_claim(&mut self, rng: &mut SmallRng) -> Claim {
        let terms = Terms {
            lease: Lease::new(LEASE).unwrap(),
            run_max: RUN_MAX,
            retention: Retention::new(*self.retentions.choose(rng).unwrap()).unwrap(),
            unknown_retention: Retention::new(*UNKNOWN_RETENTIONS.choose(rng).unwrap()).unwrap(),
            unknown: *POLICIES.choose(rng).unwrap(),
            attempts_max: 2,
            hold_for: HOLD_FOR,
            sealed: outcome("sealed"),
            remote: rng.random_ratio(1, 4),
        };
        self.owners += 1;
        Claim {
            id: *self.ids.choose(rng).unwrap(),
            fingerprint: self.fingerprints[usize::from(rng.random_ratio(1, 12))].clone(),
            owner: owner(self.owners),
            terms: Arc::new(terms),
        }
    }
}

/// The owner numbered `number`.
pub(crate) fn owner(number: u64) -> Owner {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    Owner::from_bytes(bytes)
}

/// Around leases and retentions; rarely past everything.
pub(super) fn some_time(rng: &mut SmallRng) -> Duration {
    let often = [TICK, LEASE / 2, LEASE, RUN_MAX, Duration::from_secs(30)];
    let rarely = [Duration::from_secs(100), HOLD_FOR, UNKNOWN_RETENTION, Duration::from_hours(1)];
    let hardly = [Duration::from_hours(24), Duration::from_hours(31 * 24)];
    let times: &[Duration] = match rng.random_range(0..20) {
        0..15 => &often,
        15..19 => &rarely,
        _ => &hardly,
    };
    *times.choose(rng).unwrap()
}

/// Mostly short, sometimes longer than a sector or two.
fn some_outcome(rng: &mut SmallRng) -> Outcome {
    let bytes_max = if rng.random_ratio(1, 4) { 1500 } else { 40 };
    Outcome::kept(7, some_bytes(rng, bytes_max)).with_head("head").unwrap()
}

fn some_bytes(rng: &mut SmallRng, bytes_max: usize) -> Bytes {
    let len = rng.random_range(0..=bytes_max);
    (0..len).map(|_| rng.random::<u8>()).collect()
}
