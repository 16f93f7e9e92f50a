//! A model of the record protocol: every interleaving of a few callers, a bad network and a clock, at a small size.
//!
//! The model asks [`transition`](onlyonce_core::transition::transition) itself what each command does; it does not
//! repeat its rules. [Stateright](stateright) walks through all reachable states and checks the invariants of DESIGN
//! §2 in each of them. What is checked is what the outside was *told*: [`ghost`] sees commands, answers and the time,
//! and of a record no more than its fence.
//!
//! | file | what it holds |
//! |---|---|
//! | [`setup`] | the size of the model, its policy and its durations |
//! | [`letter`] | the commands on the wire, and how they read as commands of the state machine |
//! | [`caller`] | what a well-behaved caller may do next, and what it makes of an answer |
//! | [`ghost`] | what was promised so far, and which promise was broken |
//! | [`world`] | all of these at one instant, and what a command or a tick does to them |
//! | `canonical` | one form for all states that differ only in names |
//! | [`protocol`] | the steps: the Stateright model |
//! | [`properties`] | the invariants by name, and the situations that must occur for them to mean something |
//! | [`defect`] | state machines that are wrong on purpose, to see that the invariants have teeth |
//!
//! # What is in the model
//!
//! *One record.* Keys are independent: no command reads or writes two records, and the fence source only needs to
//! grow. *Callers* make a new owner for every call. They repeat what was not answered, crash, pause for any time, do
//! the work after their lease has passed (they looked at the clock before, and were then paused), complete late, and
//! never release once the work has begun. *The network* answers, loses the answer, loses the command, or delivers it
//! later: after other commands, after a repetition of itself, after its sender is gone. *The store* is the record and
//! a fence source that never goes back; a restart loses neither, so it is no step. *Operators* resolve and erase.
//! *Time* moves whenever it likes, which is all that a pause is.
//!
//! Runs have no end: there is no bound on calls, grants, ticks or interventions. What is bounded is how many callers
//! and how many delayed commands there are at a time. That is enough to be finite, because names are reused when
//! nobody can tell (`canonical`) and time is counted from now ([`world`]).
//!
//! # What is assumed
//!
//! Under `query`, the hook tells the truth, "not executed" is said by someone who looked when the attempt could no
//! longer run, and work takes effect only before the maximum run time of its attempt is over, counted from before its
//! claim was sent. The tests show that `query` needs each of these; the other policies need none.
//!
//! What is checked is safety. That something happens at last, bodies, batches, tiers of stores and the bytes of a
//! record are not in the model: see the store suite and the engine's tests for those. Stateright tells states apart by
//! 64 bits of a hash: among two million states, two are mistaken for one with a chance of one in ten million.

pub mod setup;
pub mod letter;
pub mod caller;
pub mod ghost;
pub mod world;
mod canonical;
pub mod protocol;
pub mod properties;
pub mod defect;

pub use defect::Defect;
pub use protocol::{Action, Fate, Protocol};
pub use setup::Setup;
pub use world::World;
