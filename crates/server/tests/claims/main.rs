//! The claims API over real sockets, on a memory store in this process.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod client;
mod document;
mod keyed;
mod limits;
mod lost;
mod operators;
mod remote;
mod stage;
mod tenants;
mod unread;
mod waiting;
