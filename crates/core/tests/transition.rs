//! The state machine: one test per row of its table, and its invariants over random commands. No runtime, no clock.
//!
//! | file | what it shows |
//! |---|---|
//! | `claim` | the rows of `claim` but UNKNOWN, and the order of its guards |
//! | `unknown` | the UNKNOWN row of `claim`, by policy |
//! | `holder` | renew, release, abandon, `record_step` |
//! | `complete` | the rows of `complete` |
//! | `operator` | resolve, erase, sweep |
//! | `reading` | when a record expires and a lease passes, to the millisecond |
//! | `invariant` | every broken invariant is named, and stops the command |
//! | `random`, `watch` | the invariants over random commands, seen from the outside |
#![expect(clippy::unchecked_time_subtraction, reason = "an underflow is a mistake in the test, and fails it")]

#[path = "transition/scene.rs"]
mod scene;

#[path = "transition/claim.rs"]
mod claim;
#[path = "transition/complete.rs"]
mod complete;
#[path = "transition/holder.rs"]
mod holder;
#[path = "transition/invariant.rs"]
mod invariant;
#[path = "transition/operator.rs"]
mod operator;
#[path = "transition/random.rs"]
mod random;
#[path = "transition/reading.rs"]
mod reading;
#[path = "transition/unknown.rs"]
mod unknown;
#[path = "transition/watch.rs"]
mod watch;
