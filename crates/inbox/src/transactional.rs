//! Effect and mark in one transaction: the only mode that may be called exactly once.
//!
//! ```no_run
//! # use onlyonce_inbox::{Inbox, Message, Once};
//! # async fn handle(inbox: &Inbox, client: &mut tokio_postgres::Client, message: &Message)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let mut transaction = client.transaction().await?;
//! let once = inbox
//!     .once(&mut transaction, message, async |transaction| {
//!         transaction.execute("INSERT INTO payments (amount) VALUES (100)", &[]).await?;
//!         Ok::<_, tokio_postgres::Error>("paid".into())
//!     })
//!     .await?;
//! match once {
//!     Once::Done(_) => transaction.commit().await?, // then acknowledge
//!     Once::Duplicate(_) => {}                      // acknowledge
//!     _ => {}                                       // deliver again later, or dead-letter: see `Once`
//! }
//! # Ok(())
//! # }
//! ```
//!
//! The attempt is claimed, and counted, in a commit of its own before the effect; the outcome is completed in the caller's
//! transaction, with the fence checked there. So a crash before the commit leaves a claim that lapses and nothing else,
//! a frozen worker's transaction is refused, and a message that kills its worker is parked after its attempts.
//!
//! The transaction must be `READ COMMITTED`, as it is unless asked otherwise: under a snapshot from before the claim the
//! completion cannot see it and fails.

mod batches;
mod driver;
mod error;
mod inbox;
mod marks;
mod work;

pub use batches::{BatchFuture, BatchHandler, Batches};
pub use driver::Driver;
pub(crate) use driver::Row;
pub(crate) use error::schema_name;
pub use error::{InboxError, InboxErrorKind};
pub use inbox::{EffectFuture, Inbox, Once};
pub use marks::{MARKS_MAX, Marks};
