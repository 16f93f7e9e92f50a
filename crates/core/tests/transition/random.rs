//! Random commands at random times: the invariants hold, as seen from the outside.

use std::collections::BTreeSet;
use std::time::Duration;

use onlyonce_core::record::StepName;
use onlyonce_core::transition::{
    Abandon, Actor, Answer, Change, Claim, Command, Complete, Erase, Moment, RecordStep, Release, Renew,
    Resolve, Sweep, Token, Verdict, transition,
};
use onlyonce_core::{Fence, Lease, Owner, Record, Retention, Timestamp, UnknownPolicy};
use onlyonce_testkit::fixture::{HOLD_FOR, LEASE, RETENTION, RUN_MAX, TICK, UNKNOWN_RETENTION, outcome};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::scene::{POLICIES, START, claim, fence, id, other_fingerprint};
use crate::watch::{Seen, Watch};

const DEEDS_MAX: usize = 60;
const BODIES: [&str; 2] = ["done", "another"];

/// What happens next. Owners and tokens are counted from the last one back.
#[derive(Debug, Clone)]
enum Deed {
    Wait(Duration),
    Claim { again: Option<usize>, other: bool, policy: UnknownPolicy },
    Renew { whose: usize },
    Complete { whose: usize, body: &'static str, longer: bool },
    Release { whose: usize, keep_fingerprint: bool },
    Abandon { whose: usize },
    Step { whose: usize },
    Resolve { whose: usize, verdict: Verdict },
    Erase,
    Sweep,
}

fn deed() -> impl Strategy<Value = Deed> {
    let whose = || prop_oneof![8 => Just(0_usize), 2 => 0..5_usize];
    let body = || select(BODIES.to_vec());
    let verdict = prop_oneof![
        body().prop_map(|body| Verdict::Executed(outcome(body))),
        any::<bool>().prop_map(|force| Verdict::NotExecuted { force }),
        Just(Verdict::StillUnknown),
    ];
    let claim =
        (proptest::option::weighted(0.3, 0..3_usize), prop::bool::weighted(0.1), select(POLICIES.to_vec()))
            .prop_map(|(again, other, policy)| Deed::Claim { again, other, policy });
    prop_oneof![
        6 => claim,
        5 => wait().prop_map(Deed::Wait),
        2 => whose().prop_map(|whose| Deed::Renew { whose }),
        3 => (whose(), body(), any::<bool>())
            .prop_map(|(whose, body, longer)| Deed::Complete { whose, body, longer }),
        2 => (whose(), any::<bool>())
            .prop_map(|(whose, keep_fingerprint)| Deed::Release { whose, keep_fingerprint }),
        2 => whose().prop_map(|whose| Deed::Abandon { whose }),
        3 => whose().prop_map(|whose| Deed::Step { whose }),
        3 => (whose(), verdict).prop_map(|(whose, verdict)| Deed::Resolve { whose, verdict }),
        2 => Just(Deed::Erase),
        2 => Just(Deed::Sweep),
    ]
}

/// Mostly times at which something ends, and the millisecond on either side.
fn wait() -> impl Strategy<Value = Duration> {
    let ends = vec![LEASE, LEASE, LEASE, RUN_MAX, RETENTION, RETENTION * 3, HOLD_FOR, UNKNOWN_RETENTION];
    prop_oneof![
        select(ends.clone()),
        select(ends.clone()).prop_map(|end| end - TICK),
        select(ends).prop_map(|end| end + TICK),
        Just(TICK),
        (0..2_000_000_u64).prop_map(Duration::from_millis),
    ]
}

/// A story, and by how much the fence source is ahead or behind at each of its deeds.
fn story() -> impl Strategy<Value = Vec<(Deed, u64)>> {
    vec((deed(), 0..12_u64), 1..DEEDS_MAX)
}

struct World {
    stored: Option<Record>,
    now: Timestamp,
    claimants: Vec<Owner>,
    watch: Watch,
    answers: Vec<Answer>,
}

impl World {
    /// Plays `story` from the beginning.
    fn play(story: &[(Deed, u64)]) -> Self {
        let mut world = Self {
            stored: None,
            now: START,
            claimants: Vec::new(),
            watch: Watch::new(),
            answers: Vec::new(),
        };
        for (deed, drift) in story {
            if let Deed::Wait(by) = deed {
                world.now = world.now + *by;
            } else {
                let command = world.command(deed);
                world.run(&command, *drift);
            }
            world.watch.read(world.stored.as_ref(), world.now);
        }
        world
    }

    fn run(&mut self, command: &Command, drift: u64) {
        let moment = Moment { now: self.now, next_fence: self.next_fence(drift) };
        let before = self.stored.clone();
        let (change, answer) = transition(before.as_ref(), command, moment);
        let seen = Seen { before: before.as_ref(), command, change: &change, answer: &answer, now: self.now };
        self.watch.note(&seen);
        self.stored = after(before, change);
        self.answers.push(answer);
        let (again, _) = transition(self.stored.as_ref(), command, moment);
        let unchanged = after(self.stored.clone(), again) == self.stored;
        self.watch.note_repeat(command, unchanged);
    }

    /// The source of a store is above every fence it granted; only while a record is stored may it fall behind.
    fn next_fence(&self, drift: u64) -> Fence {
        let highest = self.watch.highest().get();
        let behind = if self.stored.is_some() { 6 } else { 0 };
        fence((highest + 1 + drift).saturating_sub(behind))
    }

    fn command(&mut self, deed: &Deed) -> Command {
        match deed {
            Deed::Wait(_) => unreachable!("time is no command"),
            Deed::Claim { again, other, policy } => {
                let mut claim = claim(self.claimant(*again), *policy);
                if *other {
                    claim = Claim { fingerprint: other_fingerprint(), ..claim };
                }
                Command::Claim(claim)
            }
            Deed::Renew { whose } => Command::Renew(Renew {
                token: self.token(*whose),
                lease: Lease::new(LEASE).expect("a lease"),
            }),
            Deed::Complete { whose, body, longer } => {
                let retention = longer.then(|| Retention::new(RETENTION * 3).expect("a retention"));
                Command::Complete(Complete { token: self.token(*whose), outcome: outcome(body), retention })
            }
            Deed::Release { whose, keep_fingerprint } => {
                let (token, keep_fingerprint) = (self.token(*whose), *keep_fingerprint);
                Command::Release(Release { token, keep_fingerprint })
            }
            Deed::Abandon { whose } => Command::Abandon(Abandon { token: self.token(*whose) }),
            Deed::Step { whose } => Command::RecordStep(RecordStep {
                token: self.token(*whose),
                name: StepName::new("charge").expect("a name"),
                value: format!("at {}", self.now).into(),
            }),
            Deed::Resolve { whose, verdict } => {
                let (fence, verdict) = (self.token(*whose).fence, verdict.clone());
                Command::Resolve(Resolve { id: id(), fence, verdict, actor: Actor::Hook })
            }
            Deed::Erase => Command::Erase(Erase { id: id() }),
            Deed::Sweep => Command::Sweep(Sweep { id: id() }),
        }
    }

    /// One that claimed before, or a new one.
    fn claimant(&mut self, again: Option<usize>) -> Owner {
        if let Some(owner) = again.and_then(|back| self.claimants.iter().rev().nth(back)) {
            return *owner;
        }
        let number = u8::try_from(self.claimants.len()).expect("a story has fewer than 256 claims");
        let owner = Owner::from_bytes([number; 16]);
        self.claimants.push(owner);
        owner
    }

    /// One that was granted; one that never was when there are not as many.
    fn token(&self, whose: usize) -> Token {
        let forged = Token { id: id(), owner: Owner::from_bytes([0xff; 16]), fence: self.watch.highest() };
        self.watch.tokens().nth(whose).unwrap_or(forged)
    }
}

fn after(before: Option<Record>, change: Change) -> Option<Record> {
    match change {
        Change::Keep => before,
        Change::Put(record) => Some(record),
        Change::Remove => None,
    }
}

/// How `story` breaks the promise named `name`, if it does.
fn broken(story: &[(Deed, u64)], name: &str) -> Option<String> {
    World::play(story).watch.broken(name).map(str::to_owned)
}

proptest! {
    #[test]
    fn i1_grants_have_different_and_increasing_fences(story in story()) {
        prop_assert_eq!(broken(&story, "I1"), None);
    }

    #[test]
    fn i2_a_fence_never_decreases(story in story()) {
        prop_assert_eq!(broken(&story, "I2"), None);
    }

    #[test]
    fn i3_every_read_until_expiry_yields_the_acknowledged_outcome(story in story()) {
        prop_assert_eq!(broken(&story, "I3"), None);
    }

    #[test]
    fn i4_one_completion_is_accepted_per_fence(story in story()) {
        prop_assert_eq!(broken(&story, "I4"), None);
    }

    #[test]
    fn i5_no_grant_is_made_between_completion_and_expiry(story in story()) {
        prop_assert_eq!(broken(&story, "I5"), None);
    }

    #[test]
    fn i6_a_second_grant_needs_a_release_an_unknown_outcome_or_a_resolution(story in story()) {
        prop_assert_eq!(broken(&story, "I6"), None);
    }

    #[test]
    fn i12_a_sweep_removes_nothing_in_flight_and_nothing_before_its_expiry(story in story()) {
        prop_assert_eq!(broken(&story, "I12"), None);
    }

    #[test]
    fn i16_the_same_owner_has_the_same_grant_and_a_repetition_changes_nothing(story in story()) {
        prop_assert_eq!(broken(&story, "I16"), None);
    }

    #[test]
    fn a_stale_token_changes_nothing(story in story()) {
        prop_assert_eq!(broken(&story, "fencing"), None);
    }
}

/// "Claim(Granted", "Complete(Late", …: the answer without what it carries.
fn label(answer: &Answer) -> String {
    let text = format!("{answer:?}");
    let end = |text: &str| text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let kind = end(&text);
    let variant = end(&text[kind + 1..]);
    text[..kind + 1 + variant].to_owned()
}

#[test]
fn every_answer_is_met_by_chance() {
    let mut runner = TestRunner::deterministic();
    let mut met = BTreeSet::new();
    for _ in 0..1000 {
        let story = story().new_tree(&mut runner).expect("a story").current();
        met.extend(World::play(&story).answers.iter().map(label));
    }
    let expected = [
        ("Claim", &["Granted", "Replay", "Busy", "Held", "Mismatch", "Recover", "Fenced"][..]),
        ("Renew", &["Renewed", "Fenced"]),
        ("Complete", &["Completed", "Already", "Late", "Alarm", "Fenced"]),
        ("Release", &["Released", "Fenced"]),
        ("Abandon", &["Abandoned", "Fenced"]),
        ("RecordStep", &["Recorded", "Already", "Erased", "Fenced"]),
        ("Resolve", &["Resolved", "Already", "NotUnknown", "Stale", "TooEarly", "Contradicted", "Absent"]),
        ("Erase", &["Erased", "InFlight", "Absent"]),
        ("Sweep", &["Removed", "MadeUnknown", "Kept"]),
    ];
    let all = expected.iter().flat_map(|(kind, answers)| answers.iter().map(move |a| format!("{kind}({a}")));
    assert_eq!(met, all.collect());
}
