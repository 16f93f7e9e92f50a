//! The invariants of DESIGN §2 by name, and the situations that must occur for them to mean something.

use onlyonce_core::transition::UnknownPolicy;
use stateright::Property;

use crate::ghost::{Event, Promise, Standing};
use crate::letter::Tag;
use crate::protocol::Protocol;
use crate::setup::{Other, Setup};
use crate::world::World;

/// I1.
pub const I1: &str = "I1: grants have increasing fences";
/// I2.
pub const I2: &str = "I2: a fence never goes back";
/// I3.
pub const I3: &str = "I3: an answer stays the same until it expires, or is erased";
/// I4.
pub const I4: &str = "I4: one completion is accepted per fence";
/// I5.
pub const I5: &str = "I5: no grant between completion and expiry";
/// I6.
pub const I6: &str = "I6: a second grant needs a release, or an unknown outcome under rerun";
/// I7.
pub const I7: &str = "I7: effects are at most grants";
/// I7 under hold and seal.
pub const I7_ONCE: &str = "I7: under hold and seal, effects are at most one more than releases";
/// I10.
pub const I10: &str = "I10: another request gets neither grant nor answer";
/// I12.
pub const I12: &str = "I12: nothing is removed in flight or before its expiry";
/// I16.
pub const I16: &str = "I16: the same owner gets the same grant, the same completion counts once";
/// I16 beyond what a record can remember.
pub const I16_STRICT: &str = "I16, strictly: an owner gets one grant, ever";
/// Contract of the store: fencing.
pub const STALE_TOKEN: &str = "a stale token changes nothing";
/// What I1 is for.
pub const FENCED_OUTCOME: &str = "a replay never shows the outcome of a fenced attempt";
/// The other half of fencing.
pub const LIVE_OWNER: &str =
    "an owner is not fenced while nothing happened to its grant, however late it completes";
/// Steps.
pub const STEPS: &str = "a recorded step is read back until it is erased";
/// The promise of `query`.
pub const EXACTLY_ONE: &str = "under query with a truthful hook, what is completed happened exactly once";

type Condition = fn(&Protocol, &World) -> bool;

/// The properties of `setup`.
pub fn all(setup: &Setup) -> Vec<Property<Protocol>> {
    let mut properties: Vec<_> =
        ALWAYS.into_iter().map(|(name, condition)| Property::always(name, condition)).collect();
    let mut always = |name, condition: Condition| properties.push(Property::always(name, condition));
    if setup.is_once() {
        always(I7_ONCE, |_, world| world.ghost.kept(Promise::I7Once));
    }
    if setup.policy == UnknownPolicy::Query && setup.other.is_none_or(|other| other == Other::Request) {
        always(EXACTLY_ONE, |_, world| happened_once(world));
    }
    if setup.strict_owners {
        always(I16_STRICT, |_, world| world.ghost.kept(Promise::StrictOwner));
    }
    if !setup.events {
        return properties;
    }
    let mut sometimes = |name, condition: Condition| properties.push(Property::sometimes(name, condition));
    for (name, condition) in SOMETIMES {
        sometimes(name, condition);
    }
    if setup.has_policy(UnknownPolicy::Hold) || setup.has_policy(UnknownPolicy::Rerun) {
        sometimes("an outcome is held", |_, world| world.event == Some(Event::Held));
    }
    if setup.policy != UnknownPolicy::Query {
        sometimes("a record is sealed", |_, world| world.event == Some(Event::Sealed));
    }
    if setup.has_policy(UnknownPolicy::Query) {
        sometimes("a hook is asked", |_, world| world.event == Some(Event::Recovering));
    }
    if setup.has_policy(UnknownPolicy::Rerun) {
        sometimes("an attempt is taken over", |_, world| world.event == Some(Event::TakenOver));
    }
    if setup.operators {
        sometimes("an erased answer is replayed", |_, world| world.event == Some(Event::ErasedReplayed));
    }
    if setup.has_two_requests() {
        sometimes("another request is refused", |_, world| world.event == Some(Event::Mismatched));
    }
    if setup.steps {
        sometimes("a step is read back", |_, world| world.event == Some(Event::StepReadBack));
    }
    properties
}

const ALWAYS: [(&str, Condition); 14] = [
    (I1, |_, world| world.ghost.kept(Promise::I1)),
    (I2, |_, world| world.ghost.kept(Promise::I2)),
    (I3, |_, world| world.ghost.kept(Promise::I3)),
    (I4, |_, world| world.ghost.kept(Promise::I4)),
    (I5, |_, world| world.ghost.kept(Promise::I5)),
    (I6, |_, world| world.ghost.kept(Promise::I6)),
    (I7, |_, world| world.ghost.kept(Promise::I7)),
    (I10, |_, world| world.ghost.kept(Promise::I10)),
    (I12, |_, world| world.ghost.kept(Promise::I12)),
    (I16, |_, world| world.ghost.kept(Promise::I16)),
    (STALE_TOKEN, |_, world| world.ghost.kept(Promise::StaleToken)),
    (FENCED_OUTCOME, |_, world| world.ghost.kept(Promise::FencedOutcome)),
    (LIVE_OWNER, |_, world| world.ghost.kept(Promise::LiveOwner)),
    (STEPS, |_, world| world.ghost.kept(Promise::Steps)),
];

const SOMETIMES: [(&str, Condition); 4] = [
    ("an answer is replayed", |_, world| world.event == Some(Event::Replayed)),
    ("a completion is accepted after its lease", |_, world| world.event == Some(Event::CompletedLate)),
    ("somebody is fenced", |_, world| world.event == Some(Event::Fenced)),
    ("a key is used again after its expiry", |_, world| world.event == Some(Event::Reused)),
];

fn happened_once(world: &World) -> bool {
    let at_most_once = world.ghost.lives.iter().all(|life| life.effects <= 1);
    let is_answered =
        matches!(world.ghost.standing, Standing::Completed { tag: Tag::Reported(_) | Tag::FoundOut(_), .. });
    at_most_once && (!is_answered || world.ghost.lives.last().is_some_and(|life| life.effects == 1))
}
