//! The same for transactions of sqlx.

use onlyonce_core::record::codec::CodecError;
use onlyonce_core::transition::Command;
use onlyonce_core::{StoreError, StoreErrorKind};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, Row as _, Transaction};

use super::private::{Call, Called, Sealed};
use super::{ClaimArrays, CompleteArrays, InTransaction, doing_of, row};
use crate::arrays::{Blob, OutcomeArrays};
use crate::row::Answered;

type Asked<'q> = Query<'q, Postgres, PgArguments>;

impl Sealed for Transaction<'_, Postgres> {}

impl InTransaction for Transaction<'_, Postgres> {
    fn call<'t>(&'t mut self, call: Call<'t>) -> Called<'t> {
        Box::pin(async move {
            let doing = doing_of(&call.command);
            // The text is made of a checked schema and numbers. Unnamed, as a pooler in between needs it.
            let query = sqlx::query(AssertSqlSafe(call.text())).persistent(false);
            let query = match &call.command {
                Command::Claim(claim) => bind_claim(query, ClaimArrays::of(&[claim])),
                Command::Complete(complete) => bind_complete(query, CompleteArrays::of(&[complete])),
                // INVARIANT: only these two are called in a transaction.
                _ => query,
            };
            let query = match call.at {
                Some(at) => query.bind(at),
                None => query,
            };
            let found = query.fetch_optional(&mut **self).await.map_err(|error| failed(error, doing))?;
            call.told(found.as_ref())
        })
    }
}

fn bind_claim(query: Asked<'_>, arrays: ClaimArrays) -> Asked<'_> {
    let query = query
        .bind(arrays.ids)
        .bind(arrays.fingerprints)
        .bind(arrays.owners)
        .bind(arrays.term_of)
        .bind(arrays.leases)
        .bind(arrays.run_maxes)
        .bind(arrays.retentions)
        .bind(arrays.unknown_retentions)
        .bind(arrays.policies)
        .bind(arrays.attempts_maxes)
        .bind(arrays.hold_fors)
        .bind(arrays.remotes);
    let OutcomeArrays { versions, kepts, heads, sums, bodies } = arrays.sealed;
    query.bind(versions).bind(heads).bind(kepts).bind(sums).bind(owned(bodies))
}

fn bind_complete(query: Asked<'_>, arrays: CompleteArrays) -> Asked<'_> {
    let OutcomeArrays { versions, kepts, heads, sums, bodies } = arrays.outcomes;
    query
        .bind(arrays.tokens.ids)
        .bind(arrays.tokens.owners)
        .bind(arrays.tokens.fences)
        .bind(arrays.retentions)
        .bind(versions)
        .bind(kepts)
        .bind(heads)
        .bind(sums)
        .bind(owned(bodies))
}

fn owned(bodies: Vec<Option<Blob>>) -> Vec<Option<Vec<u8>>> {
    bodies.into_iter().map(|body| body.map(|Blob(bytes)| bytes.to_vec())).collect()
}

fn failed(error: sqlx::Error, doing: &'static str) -> StoreError {
    let known = error.as_database_error().is_some();
    let failure = StoreError::new(StoreErrorKind::Unavailable, doing).because(error);
    // In a transaction nothing is done before the commit; a broken connection says nothing all the same.
    if known { failure } else { failure.with_unknown_outcome() }
}

impl Answered for PgRow {
    fn number(&self, column: &str) -> Result<Option<i64>, CodecError> {
        self.try_get(column).map_err(|_| row::STRANGE)
    }

    fn bytes(&self, column: &str) -> Result<Option<Vec<u8>>, CodecError> {
        self.try_get(column).map_err(|_| row::STRANGE)
    }

    fn texts(&self, column: &str) -> Result<Option<Vec<String>>, CodecError> {
        self.try_get(column).map_err(|_| row::STRANGE)
    }

    fn blobs(&self, column: &str) -> Result<Option<Vec<Option<Vec<u8>>>>, CodecError> {
        self.try_get(column).map_err(|_| row::STRANGE)
    }
}
