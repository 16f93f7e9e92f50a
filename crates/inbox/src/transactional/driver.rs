//! The few things that are asked of a transaction, for both drivers. Everything else is the caller's own business.

use std::future::Future;
use std::pin::Pin;

use onlyonce_store_postgres::InTransaction;
use tokio_postgres::types::Type;

use super::error::InboxError;

/// What a driver answers.
pub(crate) type DriverFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, InboxError>> + Send + 't>>;

/// An event as it is written, in the order of the statement's arguments.
#[derive(Debug)]
#[doc(hidden)]
pub struct Row<'e> {
    pub(crate) id: &'e str,
    pub(crate) topic: &'e str,
    pub(crate) order_key: Option<&'e str>,
    pub(crate) header_names: Vec<&'e str>,
    pub(crate) header_values: Vec<&'e [u8]>,
    pub(crate) body: &'e [u8],
}

/// A transaction of tokio-postgres 0.7 or, with the feature `sqlx`, of sqlx 0.9. Not to be implemented by others.
pub trait Driver: InTransaction {
    /// Runs statements without arguments.
    #[doc(hidden)]
    fn run<'t>(&'t mut self, statements: &'t str) -> DriverFuture<'t, ()>;

    /// Runs one statement with a text and texts, and answers the texts of its first column.
    #[doc(hidden)]
    fn texts<'t>(
        &'t mut self,
        statement: &'t str,
        first: &'t str,
        many: &'t [&'t str],
    ) -> DriverFuture<'t, Vec<String>>;

    /// Writes one event.
    #[doc(hidden)]
    fn write<'t>(&'t mut self, statement: &'t str, row: Row<'t>) -> DriverFuture<'t, ()>;
}

impl Driver for tokio_postgres::Transaction<'_> {
    fn run<'t>(&'t mut self, statements: &'t str) -> DriverFuture<'t, ()> {
        Box::pin(async move { self.batch_execute(statements).await.map_err(InboxError::database) })
    }

    fn texts<'t>(
        &'t mut self,
        statement: &'t str,
        first: &'t str,
        many: &'t [&'t str],
    ) -> DriverFuture<'t, Vec<String>> {
        Box::pin(async move {
            // Unnamed, as a pooler in between needs it.
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                [(&first, Type::TEXT), (&many, Type::TEXT_ARRAY)];
            let rows = self.query_typed(statement, &arguments).await.map_err(InboxError::database)?;
            rows.iter().map(|row| row.try_get(0).map_err(InboxError::database)).collect()
        })
    }

    fn write<'t>(&'t mut self, statement: &'t str, row: Row<'t>) -> DriverFuture<'t, ()> {
        Box::pin(async move {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 6] = [
                (&row.id, Type::TEXT),
                (&row.topic, Type::TEXT),
                (&row.order_key, Type::TEXT),
                (&row.header_names, Type::TEXT_ARRAY),
                (&row.header_values, Type::BYTEA_ARRAY),
                (&row.body, Type::BYTEA),
            ];
            self.query_typed(statement, &arguments).await.map(drop).map_err(InboxError::database)
        })
    }
}

#[cfg(feature = "sqlx")]
impl Driver for sqlx::Transaction<'_, sqlx::Postgres> {
    fn run<'t>(&'t mut self, statements: &'t str) -> DriverFuture<'t, ()> {
        Box::pin(async move {
            let statements = sqlx::raw_sql(sqlx::AssertSqlSafe(statements));
            statements.execute(&mut **self).await.map(drop).map_err(InboxError::database)
        })
    }

    fn texts<'t>(
        &'t mut self,
        statement: &'t str,
        first: &'t str,
        many: &'t [&'t str],
    ) -> DriverFuture<'t, Vec<String>> {
        Box::pin(async move {
            // The statement is made of a checked name. Unnamed, as a pooler in between needs it.
            let query = sqlx::query_scalar(sqlx::AssertSqlSafe(statement)).bind(first).bind(many);
            query.persistent(false).fetch_all(&mut **self).await.map_err(InboxError::database)
        })
    }

    fn write<'t>(&'t mut self, statement: &'t str, row: Row<'t>) -> DriverFuture<'t, ()> {
        Box::pin(async move {
            let query = sqlx::query(sqlx::AssertSqlSafe(statement))
                .bind(row.id)
                .bind(row.topic)
                .bind(row.order_key)
                .bind(row.header_names)
                .bind(row.header_values)
                .bind(row.body);
            query.persistent(false).execute(&mut **self).await.map(drop).map_err(InboxError::database)
        })
    }
}
