//! The door for engines that live elsewhere: `/v1/store`, the commands of the `Store` trait by record id.
//!
//! Ids, fingerprints and owners are the engine's own. They name records of the token's namespace and of no other.

pub(crate) mod batches;
pub(crate) mod commands;
pub(crate) mod reads;
mod shape;
