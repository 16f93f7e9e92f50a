//! The caller's side of *onlyonce*: keys that survive retries and crashes, and the claims API as a store.
//!
//! * [`Idempotent`] is a middleware for `reqwest`: it gives every logical [`Operation`] one key, puts the key on
//!   record in a [`Journal`] *before* the first send, and sends the request again, with the same key, until there is
//!   an answer that will not change.
//! * [`ClaimsClient`] is a [`Store`](onlyonce_core::Store) over `onlyonce serve`, so that an
//!   [`Engine`](onlyonce_core::Engine) runs over the service unchanged.
//!
//! # A call that survives the caller
//!
//! ```no_run
//! use std::sync::Arc;
//! use onlyonce_client::{FileJournal, Idempotent, Operation};
//!
//! # async fn pay() -> Result<(), Box<dyn std::error::Error>> {
//! let journal = Arc::new(FileJournal::open("calls.journal")?);
//! let http = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
//!     .with(Idempotent::new(journal.clone()))
//!     .build();
//!
//! let answer = http
//!     .post("https://payments.example/v1/charges")
//!     .body(r#"{"order": 7, "amount": 100}"#)
//!     .with_extension(Operation::named("order-7/charge")?)
//!     .send()
//!     .await?;
//!
//! // Only when the answer has been made use of: from here on, the same name is another operation.
//! # use onlyonce_client::Journal as _;
//! journal.forget("order-7/charge").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Wrong: a key made inside a retry loop, or made anew after a restart. It protects nothing.

mod operation;
mod journal;
mod retries;
mod calls;
mod claims;

pub use calls::{CallError, Idempotent};
pub use claims::{ClaimsClient, ClaimsClientBuilder};
pub use journal::{
    FileJournal, Journal, JournalError, JournalErrorKind, JournalFuture, JournalLimits, MemoryJournal,
};
pub use operation::{OPERATION_BYTES_MAX, Operation, OperationError};
pub use retries::Retries;
