//! Records at rest: what callers and services say is found nowhere but where it belongs, and keys can be changed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../proxy/binary.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod binary;
mod needle;
#[path = "../proxy/traces/receiver.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod receiver;
mod service;
mod sidecar;
mod stage;

mod canary;
mod rotation;
