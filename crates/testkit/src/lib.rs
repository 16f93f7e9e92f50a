//! Proves that a store keeps the contract of [`Store`](onlyonce_core::Store), and breaks it on purpose to prove that
//! the proof has teeth.
//!
//! * [`store_suite!`] runs every numbered clause of the contract, one named test each, and the model test.
//! * `http_suite!` (feature `http`) runs every clause of the HTTP semantics against a layer or a proxy.
//! * [`model`] compares a store with `transition` over random command sequences.
//! * [`Faulty`] wraps a store and loses, repeats, delays or applies-then-fails its commands.
//! * [`ManualClock`] is moved by hand: nothing here sleeps.
//! * `servers` (feature `servers`) starts private servers, and kills, pauses and restarts them.
//! * [`ReferenceStore`] is the smallest right store, over real bytes; it can crash, and be damaged or broken.
//!
//! ```
//! use std::sync::Arc;
//! use onlyonce_core::{MemoryLimits, MemoryStore};
//! use onlyonce_testkit::{Clocked, ManualClock};
//!
//! fn fixture() -> Clocked {
//!     let clock = Arc::new(ManualClock::default());
//!     Clocked::new(Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default())), clock)
//! }
//!
//! onlyonce_testkit::store_suite!(std::future::ready(fixture()));
//! ```
#![expect(clippy::unwrap_used, clippy::panic, clippy::missing_panics_doc, reason = "a failed check panics")]
#![expect(clippy::unchecked_time_subtraction, reason = "the suite's durations are constants")]

pub mod fault;
pub mod fixture;
#[cfg(feature = "http")]
pub mod http;
pub mod model;
pub mod reference;
#[cfg(feature = "servers")]
pub mod servers;
pub mod suite;

mod clock;
mod soak;
mod stock;

pub use clock::ManualClock;
pub use fault::{Fault, Faulty};
pub use fixture::{Clocked, Encrypting, Fixture, Scene, run};
pub use reference::ReferenceStore;
pub use soak::Soak;
pub use stock::{stock_id, stock_record};
