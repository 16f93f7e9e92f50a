//! The consumer against a broker that misbehaves, on every store, under faults, and at its end.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod ending;
mod faults;
mod once;
mod stage;
mod trips;
