//! Makes operations happen only once, however often they are asked for.
//!
//! This is the paved path: one crate to depend on, under the names that the documentation uses. It adds nothing of
//! its own to the crates behind it.
//!
//! ```
//! use onlyonce::key::derive::Derivation;
//!
//! let order = Derivation::new("order-123", "create")?.with_params(r#"{"currency": "USD", "amount": 100}"#)?;
//! assert_eq!(order.key().as_str(), "0681b5ad331e2ebe28b4f1ab218048a4");
//! # Ok::<(), onlyonce::key::derive::DeriveError>(())
//! ```

pub use onlyonce_core::*;
