//! The middleware against a server that answers by a script: which answers end a call, which are waited for, and that
//! one key goes with all of it. Against the real sidecar: `crates/cli/tests/clients`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod retrying;
mod server;
