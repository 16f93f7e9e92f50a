//! A durable store in a folder, with nothing to install: a segment log with group commit.
//!
//! One process owns the folder. Commands that wait at the same moment are decided by `transition`, written with one
//! write and made durable with one sync, and answered after it. A record is never changed in place: its last entry
//! counts. What has expired goes with its whole segment.
//!
//! | file | what it is for |
//! |---|---|
//! | `io` | the disk, as a trait that a simulator can own |
//! | `entry` | what a segment is made of, to the byte |
//! | `class` | which records share segments |
//! | `segment` | one file and its index; scanning; sealing |
//! | `catalog` | all segments: what is durable, as readers see it |
//! | `queue` | what waits for the committer |
//! | `committer` | the one thread that writes |
//! | `recovery` | from a folder to a catalog |
//! | `tenure` | one process at a time |
//! | `meta` | the secret, and the boot number in the fences |
//! | `embedded` | the [`Store`](onlyonce_core::Store) |

pub mod io;

mod backup;
mod catalog;
mod class;
mod committer;
mod embedded;
mod entry;
mod meta;
mod options;
mod queue;
mod recovery;
mod segment;
mod shared;
mod tenure;

pub use embedded::EmbeddedStore;
pub use options::{Options, Sync};
