//! Cuts the power of a simulated disk after every operation, flips its bits, fails its syncs and fills it up: whatever
//! happens, nothing acknowledged is lost and nothing is granted twice.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]
#![expect(clippy::print_stdout, reason = "a long run shows its counts")]

mod disk;
mod doubt;
mod workload;
mod verify;
mod corners;
mod cuts;
mod flips;
mod forward;
mod failures;
mod full;
mod golden;
mod outcomes;
mod sealing;
mod removing;
mod stage;
mod erasing;
