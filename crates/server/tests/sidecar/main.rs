//! The sidecar as its clients and its upstream see it: real sockets on both sides, nothing mocked.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod application;
mod client;
mod ledger;
mod stage;

mod acknowledged;
mod cut;
mod framing;
mod lifecycle;
mod noise;
mod overload;
mod passing;
mod patience;
mod recovery;
mod socket;
mod streams;
mod suite;
mod switching;
mod unknown;
mod vanishing;
mod versions;
