//! The steps of the model: callers, network, operators and clock around one record, for Stateright to walk through.

use onlyonce_core::transition::UnknownPolicy;
use stateright::{Model, Property};

use crate::caller::{Caller, Holding, Intent, Work};
use crate::letter::{Letter, Order};
use crate::properties;
use crate::setup::{Assumption, Papers, Setup};
use crate::world::World;

/// A number that no owner has: those in use are smaller. It is even, so that one more makes it another's.
const NEW_OWNER: u8 = 28;

/// The model.
#[derive(Debug, Clone)]
pub struct Protocol {
    setup: Setup,
    papers: Papers,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A caller makes an owner for a call.
    Call {
        /// Whether it is one of those that differ.
        other: bool,
    },
    /// A caller sends a command, or sends it again.
    Send {
        /// Which one.
        caller: usize,
        /// What.
        order: Order,
        /// What becomes of it.
        fate: Fate,
    },
    /// A caller looks at its clock and starts the work.
    Begin {
        /// Which one.
        caller: usize,
    },
    /// The work of a caller takes effect.
    Effect {
        /// Which one.
        caller: usize,
    },
    /// A caller forgets everything.
    Crash {
        /// Which one.
        caller: usize,
    },
    /// A delayed command arrives.
    Arrive {
        /// Which one.
        letter: usize,
    },
    /// An operator steps in.
    Intervene {
        /// How.
        order: Order,
        /// Whether it takes a while to arrive.
        delayed: bool,
    },
    /// The sweeper comes by.
    Sweep,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It is carried out and answered.
    Answered,
    /// It is carried out; the answer is lost.
    AnswerLost,
    /// It is not carried out now, but may be at any later time. To send it again meanwhile is to send it twice.
    Delayed,
    /// It is lost.
    Lost,
}

impl Protocol {
    /// The model of `setup`.
    pub fn new(setup: Setup) -> Self {
        Self { papers: Papers::new(&setup), setup }
    }
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.setup)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        for at in 0..world.callers.len() {
            // Two that are alike would do alike.
            if at == 0 || world.callers[at] != world.callers[at - 1] {
                self.local_actions(world, at, actions);
                self.send_actions(world, at, actions);
            }
        }
        actions.extend((0..world.letters.len()).map(|letter| Action::Arrive { letter }));
        if let Some(fence) = world.fence() {
            actions.push(Action::Sweep);
            if self.setup.operators {
                let may_delay = world.letters.len() < self.setup.letters;
                self.operator_actions(world.ghost.happened(fence), may_delay, actions);
            }
        }
    }

    fn next_state(&self, before: &World, action: Action) -> Option<World> {
        let mut world = before.clone();
        world.event = None;
        match action {
            Action::Tick => world.age(&self.setup),
            Action::Call { other } => {
                let idle = world.callers.iter_mut().find(|caller| **caller == Caller::Idle)?;
                *idle = Caller::Claiming { owner: NEW_OWNER + u8::from(other), age: 0 };
            }
            Action::Send { caller, order, fate } => self.send(&mut world, caller, order, fate),
            Action::Begin { caller } => world.holding(caller)?.work = Work::UnderWay,
            Action::Effect { caller } => {
                let holding = world.holding(caller)?;
                holding.work = Work::Done;
                let fence = holding.fence;
                world.ghost.effect(fence);
            }
            Action::Crash { caller } => world.callers[caller] = Caller::Idle,
            Action::Arrive { letter } => {
                let letter = world.letters.remove(letter);
                world.deliver(letter, &self.setup, &self.papers);
            }
            Action::Intervene { order, delayed } => {
                let letter = Letter::unsigned(world.fence()?, order);
                if delayed {
                    world.letters.push(letter);
                } else {
                    world.deliver(letter, &self.setup, &self.papers);
                }
            }
            Action::Sweep => {
                world.deliver(Letter::unsigned(0, Order::Sweep), &self.setup, &self.papers);
            }
        }
        world.settle(&self.setup);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(&self.setup)
    }
}

impl Protocol {
    fn local_actions(&self, world: &World, at: usize, actions: &mut Vec<Action>) {
        match &world.callers[at] {
            Caller::Idle => {
                actions.push(Action::Call { other: false });
                actions.extend(self.setup.other.map(|_| Action::Call { other: true }));
            }
            Caller::Claiming { .. } | Caller::Recovering { .. } => {}
            Caller::Holding(holding) => {
                actions.extend(holding.may_begin().then_some(Action::Begin { caller: at }));
                let effect = holding.may_take_effect(&self.setup);
                actions.extend(effect.then_some(Action::Effect { caller: at }));
            }
        }
        // One that stays paused is as good as crashed, unless its place is needed for the next call.
        if !world.callers.contains(&Caller::Idle) {
            actions.push(Action::Crash { caller: at });
        }
    }

    fn send_actions(&self, world: &World, at: usize, actions: &mut Vec<Action>) {
        let caller = &world.callers[at];
        let happened = matches!(caller, Caller::Recovering { fence, .. } if world.ghost.happened(*fence));
        let is_undecided = matches!(caller, Caller::Holding(Holding { intent: Intent::Finish, .. }));
        for order in caller.orders(happened, &self.setup) {
            let mut send = |fate| actions.push(Action::Send { caller: at, order, fate });
            send(Fate::Answered);
            // A hook is asked once, so it makes no difference whether it hears the answer.
            if !matches!(caller, Caller::Recovering { .. }) {
                send(Fate::AnswerLost);
            }
            // A loss that leaves everyone as they were is no step.
            if is_undecided && matches!(order, Order::Release { .. } | Order::Abandon) {
                send(Fate::Lost);
            }
            if world.letters.len() < self.setup.letters {
                send(Fate::Delayed);
            }
        }
    }

    /// An operator may say anything, except where the outcome can be known: there they tell the truth, and say "not
    /// executed" only at once, so that the store can tell whether they looked too early.
    fn operator_actions(&self, happened: bool, may_delay: bool, actions: &mut Vec<Action>) {
        let may_guess = !self.setup.has_policy(UnknownPolicy::Query);
        let may_look_early = may_guess || self.setup.without == Some(Assumption::LateLook);
        let orders = [
            // It names no fence: to arrive late is to be sent late.
            (Order::Erase, true, false),
            (Order::ResolveExecuted, may_guess || happened, may_delay),
            (Order::ResolveNotExecuted, may_guess || !happened, may_delay && may_look_early),
        ];
        for (order, _, may_delay) in orders.into_iter().filter(|(_, may_say, _)| *may_say) {
            actions.push(Action::Intervene { order, delayed: false });
            actions.extend(may_delay.then_some(Action::Intervene { order, delayed: true }));
        }
    }

    fn send(&self, world: &mut World, at: usize, order: Order, fate: Fate) {
        let letter = world.callers[at].letter(order);
        world.callers[at] = world.callers[at].sent(order);
        match fate {
            Fate::Answered => {
                let answer = world.deliver(letter, &self.setup, &self.papers);
                world.callers[at] = world.callers[at].told(&answer);
            }
            Fate::AnswerLost => {
                world.deliver(letter, &self.setup, &self.papers);
            }
            Fate::Delayed => world.letters.push(letter),
            Fate::Lost => {}
        }
    }
}
