//! The schema, in versions that are part of this program. One process migrates at a time; the others wait for it.

use tokio_postgres::types::Type;

use crate::check;
use crate::connect::Connector;
use crate::error::{OpenError, OpenErrorKind};
use crate::options::Options;

/// The version that this program speaks.
pub const VERSION: i32 = 1;

/// What leads from each version to the next.
const MIGRATIONS: [&[&str]; 1] = [&[
    include_str!("../sql/v1/1-tables.sql"),
    include_str!("../sql/v1/2-words.sql"),
    include_str!("../sql/v1/3-claim.sql"),
    include_str!("../sql/v1/4-complete.sql"),
    include_str!("../sql/v1/5-holder.sql"),
    include_str!("../sql/v1/6-operator.sql"),
    include_str!("../sql/v1/7-sweep.sql"),
    include_str!("../sql/v1/8-read.sql"),
    include_str!("../sql/v1/9-import.sql"),
]];

/// What a migration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migrated {
    /// The version that was found; `None` when there was no schema.
    pub from: Option<i32>,
    /// The version that is there now.
    pub to: i32,
}

/// Brings the schema to the version of this program, in one transaction: all of it or nothing.
pub async fn migrate(options: &Options) -> Result<Migrated, OpenError> {
    let connector = Connector::new(options.clone())?;
    let mut connection = connector.connect_unchecked(None).await?;
    check::facts(connection.client(), options).await?.refuse_unsafe()?;
    let failed =
        |error| OpenError::new(OpenErrorKind::Schema, "the schema cannot be migrated").because(error);
    let (schema, quoted) = (&options.schema, options.quoted_schema());
    let transaction = connection.client().transaction().await.map_err(failed)?;
    let guard = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))";
    let name = format!("{schema} migrate");
    transaction.query_typed(guard, &[(&name, Type::TEXT)]).await.map_err(failed)?;
    // Looked at again: whoever was first may have done it.
    let from = check::facts(transaction.client(), options).await?.schema;
    if from.is_some_and(|from| !(1..=VERSION).contains(&from)) {
        let found = from.unwrap_or_default();
        let problem = format!("the schema {schema} is at version {found}, this program knows {VERSION}");
        return Err(OpenError::new(OpenErrorKind::Schema, format!("{problem}: use a newer onlyonce")));
    }
    if from.is_none() {
        let exists = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
        let found = transaction.query_typed(exists, &[(schema, Type::TEXT)]).await.map_err(failed)?;
        if found.is_empty() {
            transaction.batch_execute(&format!("CREATE SCHEMA {quoted}")).await.map_err(failed)?;
        }
    }
    // The functions keep this path: whoever calls them cannot put other tables under their names.
    let path = format!("SET LOCAL search_path = {quoted}, pg_temp");
    transaction.batch_execute(&path).await.map_err(failed)?;
    let done = usize::try_from(from.unwrap_or(0)).unwrap_or_default();
    let parts: Vec<&'static str> =
        MIGRATIONS.iter().skip(done).flat_map(|parts| parts.iter().copied()).collect();
    for part in parts {
        transaction.batch_execute(part).await.map_err(failed)?;
    }
    let mark = format!(
        "INSERT INTO meta (version) VALUES ({VERSION}) ON CONFLICT (one) DO UPDATE SET version = {VERSION}"
    );
    transaction.batch_execute(&mark).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)?;
    Ok(Migrated { from, to: VERSION })
}
