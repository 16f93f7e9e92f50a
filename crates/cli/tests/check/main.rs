//! `onlyonce check` as a user runs it: against a server that is right, against one with a defect, and against what others
//! have published.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics is a test that fails")]

mod command;
mod ours;
mod peers;
mod report;
mod server;
mod teeth;
#[path = "../tools/mod.rs"]
mod tools;
