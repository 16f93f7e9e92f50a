//! The sidecar as its clients and its upstream see it: real sockets on both sides, nothing mocked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod application;
mod client;
mod stage;

mod cut;
mod framing;
mod lifecycle;
mod passing;
mod patience;
mod suite;
mod switching;
mod unknown;
mod vanishing;
mod versions;
