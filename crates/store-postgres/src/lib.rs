//! The store in `PostgreSQL`, for users with more than one machine: one call of a migrated function per operation.
//!
//! ```no_run
//! # async fn open() -> Result<(), onlyonce_store_postgres::OpenError> {
//! use onlyonce_store_postgres::{Options, PostgresStore, migrate};
//!
//! let options = Options::from_url("postgres://app@db.internal/app?sslmode=require")?;
//! migrate(&options).await?; // or `onlyonce store migrate`, once
//! let store = PostgresStore::open(options).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What survives what
//!
//! An answered command survives kill -9 of this process and of the server, and a power cut of the server's machine:
//! `synchronous_commit` is raised to `on` for each command whatever the server's default is, and a server with `fsync`
//! or `full_page_writes` off is refused. It survives the loss of the server's machine only with a synchronous standby
//! (`synchronous_standby_names`); [`durability`](onlyonce_core::Store::durability) says what was found. A fail-over to
//! an asynchronous standby may lose the last answered commands, as it may lose any commit.
//!
//! Refused at the start and again on every new connection, each with a text that says what to do: a standby, a
//! read-only server, `fsync` or `full_page_writes` off, a server before version 14, a schema that is missing or of
//! another version.
//!
//! # The schema
//!
//! | what | for what |
//! |---|---|
//! | `records` | one narrow row for each record; `mark` is a hash over it, by which damage is told from absence |
//! | `bodies` | bodies over 1 KiB, in partitions by the day of expiry (by thirty days beyond sixty), dropped whole when it is over; those of a day that has no partition yet stay in their rows, while the store makes it in a transaction of its own |
//! | `fences` | a sequence: a grant gets the larger of it and the stored fence + 1; an import raises it |
//! | `waiting` | who waits for a change of which record (unlogged: waiters also look for themselves) |
//! | `audit` | what operators resolved, for 90 days |
//! | `meta` | the version of the schema, and the secret of the keyed hashes |
//!
//! The functions in `sql/` answer as `onlyonce_core::transition` answers. A claim first reads without a lock, which is
//! enough for replays and for busy keys; new keys of a batch are inserted by one statement, and what is in flight is
//! completed by one; what else has to be written over is locked row by row, in the order of the ids, and the clock is
//! read after the lock. Time is the server's `clock_timestamp()`, so hosts with skewed clocks agree.
//!
//! [`stats`](onlyonce_core::Store::stats) reads at most 5,000 pages of `records`, spread over all of them: its counts
//! are exact up to about a hundred thousand records and estimates beyond. A damaged record makes a
//! [`list`](onlyonce_core::Store::list) fail with an error that names it; go on after its id.
//!
//! # How commands travel
//!
//! Claims, completions, renewals and releases that wait at the same moment travel as one call and one commit (see
//! `lanes`); a lone one leaves at once. A deadlock or a serialization failure undoes a whole call, which is then sent
//! again. No call is more than one statement, so a caller that vanishes never leaves a connection inside a transaction.
//!
//! A row that another transaction holds (a `claim_in` that has not ended) holds up nobody but who asks for that record:
//! after 50 ms everything else in the call is done without it, and its own command waits on one of two connections that
//! are there for that, for a second. Then a claim is answered Busy, and any other command fails and may be repeated.
//!
//! Besides `connections`, a process opens up to two connections for reads, verdicts and sweeps, two for records that
//! others hold, and one that listens, each when it is first needed.
//!
//! With `pooler=transaction` in the URL, statements are unnamed and nothing rests on the session, as `PgBouncer` in
//! transaction mode needs it; waiters then look for themselves every 100 ms.
//!
//! # Roles
//!
//! Whoever migrates owns the schema. The role of the application needs no ownership, and may not even make tables:
//!
//! ```text
//! GRANT USAGE ON SCHEMA onlyonce TO app;
//! GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA onlyonce TO app;
//! GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA onlyonce TO app;
//! GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA onlyonce TO app;
//! ```
//!
//! # In the caller's transaction
//!
//! [`PostgresStore::claim_in`] and [`PostgresStore::complete_in`] take part in a transaction of tokio-postgres 0.7 or,
//! with the feature `sqlx`, of sqlx 0.9 (see [`InTransaction`]).
//!
//! | file | what it is for |
//! |---|---|
//! | `options` | the URL |
//! | `connect`, `check` | TLS, and what a server must be |
//! | `migrate` | the schema in versions |
//! | `lanes`, `batch`, `arrays` | commands that travel together |
//! | `calls`, `listing`, `import` | calls of one function each |
//! | `column`, `row` | how a record lies in columns |
//! | `watch` | waiting for a change |
//! | `transaction` | in the caller's transaction |
//! | `postgres` | the [`Store`](onlyonce_core::Store) |

mod arrays;
mod batch;
mod calls;
mod check;
mod column;
mod connect;
mod error;
mod import;
mod lanes;
mod listing;
mod migrate;
mod options;
mod postgres;
mod row;
mod shared;
mod transaction;
mod watch;

pub use error::{OpenError, OpenErrorKind};
pub use migrate::{Migrated, VERSION, migrate};
pub use options::{Options, SCHEMA};
pub use postgres::PostgresStore;
pub use transaction::InTransaction;
