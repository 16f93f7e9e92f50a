//! What the programs of this crate share: the machine they run on, the folder they work in, figures for people.
//!
//! Nothing here measures anything of the product, and nothing of the product uses it.

pub mod figures;
pub mod machine;
pub mod usage;
pub mod workplace;

use std::error::Error;

/// The erased error of terminal programs, which crosses threads: it is printed, never matched on.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
