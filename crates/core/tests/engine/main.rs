//! The engine over real stores, with a clock moved by hand and faults on command. Nothing here sleeps.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    reason = "a failed check panics"
)]

mod durable;
mod faults;
mod in_place;
mod lease;
mod many;
mod mended;
mod once;
mod quota;
mod soak;
mod stage;
mod steps;
mod stopping;
mod unknown;
mod waiting;
