//! The Redis store on real servers that these tests start, kill, pause, flush and fill.
#![expect(clippy::panic, clippy::print_stdout, reason = "a failed check panics; counts are shown")]

mod cluster;
mod crash;
mod golden;
mod loss;
mod network;
mod rare;
mod refusal;
mod sentinel;
mod stage;
mod suite;
mod tls;
mod traffic;
mod zombie;
