//! One form for all states that differ only in names: this is what makes runs of any length fit into a finite model.
//!
//! Owners are only ever compared for equality and fences for order, so both can be renamed. A token that is not that
//! of the record never will be again, because fences grow; all such tokens become one, which is still shown and must
//! still be refused. Nothing here knows the rules of the state machine.

use std::sync::Arc;

use onlyonce_core::record::{Completed, Recovery, State, Step};
use onlyonce_core::{Fence, Outcome, Owner, Record};

use crate::caller::{Caller, Holding, small};
use crate::letter::{Letter, Order, Tag, number, owner_number, owner_of};
use crate::setup::{ATTEMPTS_MAX, Setup, is_other};
use crate::world::World;

/// The owner in every token that is not that of the record.
const NOBODY: u8 = 30;
/// The most owners and the most fences that a state can name.
const NAMES_MAX: usize = 12;

impl World {
    /// Brings the state into its form.
    pub(crate) fn settle(&mut self, setup: &Setup) {
        for caller in &mut self.callers {
            *caller = caller.canonical(setup);
        }
        self.ghost.settle(&self.callers, setup);
        self.bury_dead_tokens();
        self.rename_fences();
        self.rename_owners();
        self.callers.sort_unstable();
        self.letters.sort_unstable();
    }

    fn bury_dead_tokens(&mut self) {
        let token =
            self.stored.as_ref().map(|record| (owner_number(&record.owner), small(record.fence.get())));
        let fence = token.map(|(_, fence)| fence);
        for caller in &mut self.callers {
            match caller {
                Caller::Holding(holding) if Some((holding.owner, holding.fence)) != token => {
                    holding.owner = NOBODY;
                    // An effect that still comes counts for the life in which it was granted.
                    let counts = holding.may_still_run();
                    holding.fence = if counts { self.ghost.first_fence(holding.fence) } else { 0 };
                }
                Caller::Recovering { fence: asked, .. } if Some(*asked) != fence => *asked = 0,
                _ => {}
            }
        }
        for letter in &mut self.letters {
            if letter.shows_a_token() && Some((letter.owner, letter.fence)) != token {
                (letter.owner, letter.fence) = (NOBODY, 0);
            } else if letter.owner == 0 && Some(letter.fence) != fence {
                letter.fence = 0;
            }
        }
    }

    /// Fences become 1, 2, 3 in their order.
    fn rename_fences(&mut self) {
        let mut fences = Names::default();
        self.ghost.fences().for_each(|fence| fences.add(fence));
        fences.add(self.source);
        self.stored.iter().for_each(|record| fences.add(small(record.fence.get())));
        fences.sort();
        let rename = |fence: u8| fences.position(fence).map_or(0, |at| at + 1);
        let counts_on = self.stored.as_ref().is_some_and(|record| record.attempt > ATTEMPTS_MAX.into());
        if fences.all(|fence| rename(fence) == fence) && !counts_on {
            return;
        }
        self.source = rename(self.source);
        self.ghost.rename_fences(rename);
        for caller in &mut self.callers {
            match caller {
                Caller::Holding(Holding { fence, .. }) | Caller::Recovering { fence, .. } => {
                    *fence = rename(*fence);
                }
                Caller::Idle | Caller::Claiming { .. } => {}
            }
        }
        for letter in &mut self.letters {
            letter.fence = rename(letter.fence);
        }
        self.stored = self.stored.as_deref().map(|record| Arc::new(with_fences(record, rename)));
    }

    /// Owners are numbered in the order in which they are met. Whether they are others stays in the last bit.
    fn rename_owners(&mut self) {
        let mut met = Names::default();
        if let Some(record) = &self.stored {
            met.add(owner_number(&record.owner));
            if let State::Unknown { recovery: Some(recovery), .. } = &record.state {
                met.add(owner_number(&recovery.owner));
            }
        }
        self.ghost.last.iter().for_each(|last| met.add(last.owner));
        self.letters.sort_unstable_by_key(|letter| sorting(*letter, &met));
        let letters = &self.letters;
        self.callers.sort_unstable_by_key(|caller| {
            // Callers that are alike but for owners nobody has met are told apart by what they have sent.
            let owner = caller.owner();
            let sent = letters.iter().position(|letter| letter.owner == owner);
            (caller.with_owner(|owner| u8::from(is_other(owner))), met.position(owner), sent)
        });
        self.callers.iter().for_each(|caller| met.add(caller.owner()));
        self.letters.iter().for_each(|letter| met.add(letter.owner));
        let rename = |owner: u8| match met.position(owner) {
            Some(at) => (at + 1) * 2 + u8::from(is_other(owner)),
            None => owner,
        };
        if met.all(|owner| rename(owner) == owner) {
            return;
        }
        for caller in &mut self.callers {
            *caller = caller.with_owner(rename);
        }
        for letter in &mut self.letters {
            letter.owner = rename(letter.owner);
        }
        self.ghost.rename_owners(|owner| met.position(owner).map(|_| rename(owner)));
        self.stored = self.stored.as_deref().map(|record| Arc::new(with_owners(record, rename)));
    }
}

/// An order of letters in which only owners count that were met.
fn sorting(letter: Letter, met: &Names) -> (Order, u8, Option<u8>, bool) {
    (letter.order, letter.fence, met.position(letter.owner), is_other(letter.owner))
}

fn with_fences(record: &Record, rename: impl Fn(u8) -> u8) -> Record {
    let outcome = |outcome: &Outcome| match Tag::read(outcome) {
        Some(tag @ (Tag::Reported(_) | Tag::FoundOut(_))) => tag.with_fence(&rename).outcome(),
        _ => outcome.clone(),
    };
    let state = match &record.state {
        State::Completed(completed) => State::Completed(Completed {
            outcome: outcome(&completed.outcome),
            late: completed.late.as_deref().map(outcome).map(Box::new),
            ..completed.clone()
        }),
        state => state.clone(),
    };
    let step = |step: &Step| Step {
        name: step.name.clone(),
        value: step.value.as_ref().map(|value| number(rename(value[0]))),
    };
    Record {
        fence: Fence::new(rename(small(record.fence.get())).into()).expect("a small number is a fence"),
        // Attempts are only ever compared with their maximum.
        attempt: record.attempt.min(ATTEMPTS_MAX.into()),
        steps: record.steps.iter().map(step).collect(),
        state,
        ..record.clone()
    }
}

fn with_owners(record: &Record, rename: impl Fn(u8) -> u8) -> Record {
    let rename = |owner: &Owner| owner_of(rename(owner_number(owner)));
    let state = match &record.state {
        State::Unknown { since, expires_at, recovery: Some(recovery) } => State::Unknown {
            since: *since,
            expires_at: *expires_at,
            recovery: Some(Recovery { owner: rename(&recovery.owner), ..recovery.clone() }),
        },
        state => state.clone(),
    };
    Record { owner: rename(&record.owner), state, ..record.clone() }
}

/// A few different names in order. 0 and [`NOBODY`] are no names.
#[derive(Default)]
struct Names {
    names: [u8; NAMES_MAX],
    count: usize,
}

impl Names {
    fn add(&mut self, name: u8) {
        if name != 0 && name != NOBODY && self.position(name).is_none() {
            self.names[self.count] = name;
            self.count += 1;
        }
    }

    fn sort(&mut self) {
        self.names[..self.count].sort_unstable();
    }

    fn position(&self, name: u8) -> Option<u8> {
        (0u8..).zip(&self.names[..self.count]).find(|(_, other)| **other == name).map(|(at, _)| at)
    }

    fn all(&self, condition: impl Fn(u8) -> bool) -> bool {
        self.names[..self.count].iter().all(|name| condition(*name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use onlyonce_core::transition::UnknownPolicy;
    use stateright::Model;

    use super::*;
    use crate::protocol::Protocol;
    use crate::setup::Other;

    const WALKS: u32 = 200;
    const STEPS: u32 = 100;

    /// The same state, told by someone who named and listed everything differently.
    fn retold(world: &World) -> World {
        let owner = |owner: u8| match owner {
            0 | NOBODY => owner,
            _ => 24 - (owner & !1) + (owner & 1),
        };
        let fence = |fence: u8| fence * 2;
        let mut world = world.clone();
        for caller in &mut world.callers {
            *caller = caller.with_owner(owner);
            if let Caller::Holding(Holding { fence: shown, .. }) | Caller::Recovering { fence: shown, .. } =
                caller
            {
                *shown = fence(*shown);
            }
        }
        for letter in &mut world.letters {
            (letter.owner, letter.fence) = (owner(letter.owner), fence(letter.fence));
        }
        world.callers.reverse();
        world.letters.reverse();
        world.source = fence(world.source);
        world.ghost.rename_fences(fence);
        world.ghost.rename_owners(|name| Some(owner(name)));
        let record = world.stored.as_deref().map(|record| with_owners(&with_fences(record, fence), owner));
        world.stored = record.map(Arc::new);
        world
    }

    /// Calls `look` with states along random walks through the model of each policy.
    fn wander(look: impl Fn(&Protocol, &Setup, &World)) {
        let mut chance = 1_u32;
        for policy in [UnknownPolicy::Hold, UnknownPolicy::Seal, UnknownPolicy::Query, UnknownPolicy::Rerun] {
            let setup = Setup { callers: 3, steps: true, other: Some(Other::Request), ..Setup::new(policy) };
            let model = Protocol::new(setup.clone());
            for _ in 0..WALKS {
                let mut world = World::new(&setup);
                for _ in 0..STEPS {
                    look(&model, &setup, &world);
                    let mut steps = model.next_steps(&world);
                    chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    world = steps.swap_remove((chance >> 8) as usize % steps.len()).1;
                }
            }
        }
    }

    #[test]
    fn every_telling_of_a_state_has_the_same_form() {
        wander(|_, setup, world| {
            let mut other = retold(world);
            other.settle(setup);
            assert_eq!(other, *world);
        });
    }

    #[test]
    fn every_telling_of_a_state_leads_to_the_same_states() {
        wander(|model, _, world| {
            let next = |world: &World| -> HashSet<World> {
                // What leads nowhere is a step that only one of the two tellings counts as one.
                let here = HashSet::from([world.clone()]);
                model.next_steps(world).into_iter().map(|(_, next)| next).chain(here).collect()
            };
            let mut others = next(&retold(world));
            others.remove(&retold(world));
            others.insert(world.clone());
            assert_eq!(others, next(world));
        });
    }
}
