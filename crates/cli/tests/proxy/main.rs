//! `onlyonce proxy` and `onlyonce config` as they are run: the real binary, real signals, a real client of others.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../tools/authority.rs"]
mod authority;
mod binary;
mod operators;
#[path = "../tools/mod.rs"]
mod tools;
mod upstream;

mod admin;
mod audited;
mod commanded;
mod command;
mod crash;
mod encrypted;
mod records;
mod shared;
mod signals;
mod stripe;
mod sweep;
mod traces;
