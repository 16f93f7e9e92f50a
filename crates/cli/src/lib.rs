//! Makes operations happen only once, however often they are asked for.
//!
//! This is the paved path: one crate to depend on, under the names that the documentation uses. It adds nothing of
//! its own to the crates behind it. Its features are the parts beyond the core: `http` (the layer), `inbox`, `sources`,
//! `client`, and the stores `embedded`, `postgres` and `redis`. `default-features = false` leaves the binary out.
//!
//! ```
//! use onlyonce::key::derive::Derivation;
//!
//! let order = Derivation::new("order-123", "create")?.with_params(r#"{"currency": "USD", "amount": 100}"#)?;
//! assert_eq!(order.key().as_str(), "0681b5ad331e2ebe28b4f1ab218048a4");
//! # Ok::<(), onlyonce::key::derive::DeriveError>(())
//! ```

pub use onlyonce_core::*;

#[cfg(feature = "client")]
pub use onlyonce_client as client;
#[cfg(feature = "http")]
pub use onlyonce_http as http;
#[cfg(feature = "inbox")]
pub use onlyonce_inbox as inbox;
#[cfg(feature = "sources")]
pub use onlyonce_sources as sources;
#[cfg(feature = "embedded")]
pub use onlyonce_store_embedded as embedded;
#[cfg(feature = "postgres")]
pub use onlyonce_store_postgres as postgres;
#[cfg(feature = "redis")]
pub use onlyonce_store_redis as redis;
