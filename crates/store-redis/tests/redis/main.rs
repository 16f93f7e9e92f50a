//! The Redis store on real servers that these tests start, kill, pause, flush and fill.
#![expect(clippy::panic, clippy::print_stdout, reason = "a failed check panics; counts are shown")]

mod acknowledge;
mod cluster;
mod crash;
mod golden;
mod loss;
mod network;
mod peer;
mod rare;
mod refusal;
mod ride;
mod sentinel;
mod skew;
mod stage;
mod suite;
mod tier;
mod tls;
mod traffic;
mod valkey;
mod zombie;
