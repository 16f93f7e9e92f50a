//! `onlyonce serve` as a process: over real sockets, through signals and kills, and as schemathesis reads it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../tools/authority.rs"]
mod authority;
#[path = "../tools/mod.rs"]
mod tools;

mod admin;
mod certificates;
mod restart;
mod running;
mod schemathesis;
