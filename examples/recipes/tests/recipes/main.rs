//! The recipes, run: each program as it is, asked twice, and one effect.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod program;

#[cfg(feature = "kafka")]
mod kafka_inbox;
mod orders;
mod services;
