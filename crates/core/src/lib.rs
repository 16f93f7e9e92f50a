//! The meaning of idempotency: who may run an operation, what is remembered of it, and who gets the answer.
//!
//! This crate holds the words, the state machine, the store contract and the engine that every door of *onlyonce*
//! goes through. It knows no HTTP and no network, and it reads time only through [`Clock`].
//!
//! The modules are declared in the order in which a request flows through them:
//!
//! ```text
//! request ─▶ key ─▶ scope ─▶ fingerprint ─▶ store.claim ─▶ Granted ─▶ Execution ─▶ complete | release | abandon
//!                                                        ├▶ Replay   ─▶ the recorded outcome
//!                                                        ├▶ Busy     ─▶ wait, bounded and woken
//!                                                        ├▶ Held     ─▶ conflict: outcome unknown
//!                                                        └▶ Mismatch ─▶ conflict: key reused
//! ```
//!
//! # Running something once
//!
//! ```
//! use std::sync::Arc;
//! use onlyonce_core::{Engine, Failure, Fingerprint, Key, MemoryStore, Principal, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await?;
//! let key = Scope::new("payments", Principal::named("alice")).key(Key::new("order-7")?);
//! let asked = engine.fingerprint().field("amount", b"100").finish();
//!
//! let first = engine.run(&key, asked.clone(), |_| async { Ok::<_, Failure<String>>(42) }).await?;
//! let again = engine.run(&key, asked, |_| async { Ok::<_, Failure<String>>(43) }).await?;
//!
//! assert_eq!(again.done().map(|done| (done.value, done.replayed)), Some((42, true)));
//! # Ok(())
//! # }
//! ```

pub mod key;
pub mod scope;
pub mod secret;
pub mod fingerprint;
pub mod outcome;
pub mod lease;
pub mod record;
pub mod transition;
pub mod store;
pub mod house;
pub mod policy;
pub mod decision;
pub mod engine;
pub mod sweeper;
pub mod clock;
pub mod observe;
pub mod error;
pub mod hex;

pub use clock::{Clock, SystemClock, Timestamp};
pub use engine::{
    Conflict, Cut, Done, Ending, Engine, EngineBuilder, EngineError, EngineErrorKind, Execution, Failure,
    Found, MemoError, Performing, Question, Ran, Recorded, RecoveryHook, Reply, Request, Run, StepError,
};
pub use error::{BoxError, HexError, MisuseError, RandomError};
pub use fingerprint::{Fingerprint, FingerprintBuilder, Fingerprinted, Rules};
pub use key::{Key, KeyError, KeyForm};
pub use lease::{Lease, Retention};
pub use observe::{Event, Observer};
pub use outcome::{Body, Outcome, Tombstone};
pub use policy::{Policy, Quota};
pub use record::{Fence, Owner, Record, StateKind};
pub use scope::{Principal, RecordId, Scope, ScopeTag, ScopedKey};
pub use secret::Secret;
pub use store::encrypted::{Encrypted, KeyId, Keyring};
pub use store::memory::{MemoryLimits, MemoryStore};
pub use store::recent::Recent;
pub use store::tiered::Tiered;
pub use store::{Store, StoreError, StoreErrorKind};
pub use sweeper::{SweepState, Sweeper};
pub use transition::{Terms, UnknownPolicy};
