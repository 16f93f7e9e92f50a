//! The transactional inbox on a real server, in transactions of both drivers, and through every crash window.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod batches;
mod inbox;
mod marks;
mod outbox;
mod stage;
mod tiers;
mod windows;
