//! What a server must be before it may keep records: it syncs, it is no standby, and its schema is ours.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::error::{OpenError, OpenErrorKind};
use crate::migrate::VERSION;
use crate::options::Options;

/// The oldest server with what the functions use (`hash_record_extended`).
const SERVER_MIN: i32 = 140_000;

// Not `to_regclass`: a session may remember from before that a table was not there.
const FACTS: &str = "SELECT current_setting('server_version_num')::integer, current_setting('fsync') = 'on', \
    current_setting('full_page_writes') = 'on', pg_is_in_recovery(), \
    current_setting('transaction_read_only') = 'on', current_setting('synchronous_standby_names') <> '', \
    EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE n.nspname = $1 AND c.relname = 'meta')";

/// What was found at the server.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Facts {
    server: i32,
    fsync: bool,
    full_page_writes: bool,
    standby: bool,
    read_only: bool,
    pub(crate) has_synchronous_standby: bool,
    /// The version of the schema; `None` when it is not there.
    pub(crate) schema: Option<i32>,
}

/// Asks the server, in statements that a pooler lets through.
pub(crate) async fn facts(client: &Client, options: &Options) -> Result<Facts, OpenError> {
    let failed =
        |error| OpenError::new(OpenErrorKind::Unavailable, "the server cannot be examined").because(error);
    let found = client.query_typed(FACTS, &[(&options.schema, Type::TEXT)]).await.map_err(failed)?;
    let Some(row) = found.first() else {
        return Err(OpenError::new(OpenErrorKind::Unavailable, "the server answered nothing"));
    };
    let mut facts = Facts {
        server: row.get(0),
        fsync: row.get(1),
        full_page_writes: row.get(2),
        standby: row.get(3),
        read_only: row.get(4),
        has_synchronous_standby: row.get(5),
        schema: None,
    };
    if row.get(6) {
        let version = format!("SELECT version FROM {}.meta", options.quoted_schema());
        let found = client.query_typed(&version, &[]).await.map_err(failed)?;
        facts.schema = found.first().map(|row| row.get(0));
    }
    Ok(facts)
}

impl Facts {
    /// Refuses a server on which an answered command may be lost, or cannot be given.
    pub(crate) fn refuse_unsafe(&self) -> Result<(), OpenError> {
        let unsafe_ = |problem: &str| Err(OpenError::new(OpenErrorKind::Unsafe, problem));
        if self.server < SERVER_MIN {
            return unsafe_("the server is older than PostgreSQL 14: use a newer one");
        }
        if self.standby {
            return unsafe_(
                "the server is a standby: use the URL of the primary (target_session_attrs=read-write)",
            );
        }
        if self.read_only {
            return unsafe_("the server is read-only: set default_transaction_read_only = off for this role");
        }
        if !self.fsync {
            return unsafe_(
                "the server runs with fsync = off, so a crash can lose answered commands: set fsync = on",
            );
        }
        if !self.full_page_writes {
            return unsafe_(
                "the server runs with full_page_writes = off, so a crash can tear pages: set it on",
            );
        }
        Ok(())
    }

    /// Refuses a schema that this program does not speak.
    pub(crate) fn refuse_other_schema(&self, schema: &str) -> Result<(), OpenError> {
        let wrong = |problem: String| Err(OpenError::new(OpenErrorKind::Schema, problem));
        match self.schema {
            None => {
                wrong(format!("there is no schema {schema}: run `onlyonce store migrate` with the same URL"))
            }
            Some(found) if found < VERSION => wrong(format!(
                "the schema {schema} is at version {found}, this program needs {VERSION}: run `onlyonce store migrate`"
            )),
            Some(found) if found > VERSION => wrong(format!(
                "the schema {schema} is at version {found}, this program knows {VERSION}: use a newer onlyonce"
            )),
            Some(_) => Ok(()),
        }
    }
}
