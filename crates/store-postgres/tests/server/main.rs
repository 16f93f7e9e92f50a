//! A real server that is killed, a network that loses replies, owners that freeze: what was answered stays so.
#![expect(clippy::panic, reason = "a failed check panics")]

mod bodies;
mod cancelled;
mod clocks;
mod crash;
mod crowd;
mod damage;
mod deadlock;
mod durable;
mod held;
mod process;
mod races;
mod refusals;
mod replies;
mod roles;
mod stage;
mod sweeps;
mod tls;
mod transactions;
mod trips;
mod waiting;
mod zombies;
