//! Clients of others and our own, against the real binary: Python, Node, the Rust middleware and the Rust store client.
//! Callers, services and stores are killed for good, and nothing happens twice.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../proxy/binary.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod binary;
#[path = "../tools/node.rs"]
mod node;
mod service;
#[path = "../tools/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod tools;
#[path = "../proxy/upstream.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod upstream;

mod caller;
mod languages;
mod refused;
mod survival;
