//! The sweeper over real stores and on a clock moved by hand: one at a time, taken over, paced, quiet, and alarming.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod stage;
mod watched;

mod election;
mod growth;
mod hours;
mod shown;
mod stores;
mod trouble;
