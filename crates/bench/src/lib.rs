//! What the programs of this crate share: the machine they run on, the folder they work in, servers, load, figures.
//!
//! Nothing here measures anything of the product by itself, and nothing of the product uses it.

pub mod commands;
pub mod conditions;
#[cfg(any(feature = "messages", feature = "stores", feature = "sweep"))]
pub mod facts;
pub mod figures;
pub mod goal;
pub mod machine;
pub mod measured;
pub mod pins;
pub mod report;
#[cfg(feature = "http")]
pub mod serve;
pub mod spread;
pub mod started;
pub mod starter;
pub mod usage;
pub mod workplace;
pub mod wrk;

use std::error::Error;

/// The erased error of terminal programs, which crosses threads: it is printed, never matched on.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
