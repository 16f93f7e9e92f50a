//! Commands as the arrays that the functions take, one for each column.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use onlyonce_core::transition::{Claim, Complete, Release, Renew, Terms, Token};
use onlyonce_core::{BoxError, RecordId};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use crate::column::{self, OutcomeColumns};
use crate::connect::Argument;

/// Bytes that are sent from where they are.
#[derive(Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql for Blob {
    fn to_sql(&self, of: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        (&*self.0).to_sql(of, out)
    }

    fn accepts(of: &Type) -> bool {
        <&[u8] as ToSql>::accepts(of)
    }

    to_sql_checked!();
}

pub(crate) fn argument(value: impl ToSql + Sync + Send + 'static, of: Type) -> Argument {
    (Box::new(value), of)
}

fn ids<'t>(ids: impl Iterator<Item = &'t RecordId>) -> Vec<Vec<u8>> {
    ids.map(|id| id.as_bytes().to_vec()).collect()
}

/// Who asks, as columns.
pub(crate) struct TokenArrays {
    pub(crate) ids: Vec<Vec<u8>>,
    pub(crate) owners: Vec<Uuid>,
    pub(crate) fences: Vec<i64>,
}

impl TokenArrays {
    fn of<'t>(tokens: impl Iterator<Item = &'t Token> + Clone) -> Self {
        Self {
            ids: ids(tokens.clone().map(|token| &token.id)),
            owners: tokens.clone().map(|token| column::owner(&token.owner)).collect(),
            fences: tokens.map(|token| column::fence(token.fence)).collect(),
        }
    }

    fn into_arguments(self) -> Vec<Argument> {
        vec![
            argument(self.ids, Type::BYTEA_ARRAY),
            argument(self.owners, Type::UUID_ARRAY),
            argument(self.fences, Type::INT8_ARRAY),
        ]
    }
}

/// Outcomes as columns.
#[derive(Default)]
pub(crate) struct OutcomeArrays {
    pub(crate) versions: Vec<i32>,
    pub(crate) kepts: Vec<i16>,
    pub(crate) heads: Vec<Vec<u8>>,
    pub(crate) sums: Vec<Option<i32>>,
    pub(crate) bodies: Vec<Option<Blob>>,
}

impl OutcomeArrays {
    fn of(outcomes: impl Iterator<Item = OutcomeColumns>) -> Self {
        let mut arrays = Self::default();
        for outcome in outcomes {
            arrays.versions.push(outcome.content_version);
            arrays.kepts.push(outcome.kept);
            arrays.heads.push(outcome.head);
            arrays.sums.push(outcome.body_sum);
            arrays.bodies.push(outcome.body.map(Blob));
        }
        arrays
    }

    fn into_arguments(self) -> [Argument; 5] {
        [
            argument(self.versions, Type::INT4_ARRAY),
            argument(self.kepts, Type::INT2_ARRAY),
            argument(self.heads, Type::BYTEA_ARRAY),
            argument(self.sums, Type::INT4_ARRAY),
            argument(self.bodies, Type::BYTEA_ARRAY),
        ]
    }
}

/// The arrays of `complete`, in its order.
pub(crate) struct CompleteArrays {
    pub(crate) tokens: TokenArrays,
    pub(crate) retentions: Vec<Option<i64>>,
    pub(crate) outcomes: OutcomeArrays,
}

impl CompleteArrays {
    pub(crate) fn of(completes: &[&Complete]) -> Self {
        let retention = |complete: &&Complete| complete.retention.map(|kept| column::millis(kept.get()));
        Self {
            tokens: TokenArrays::of(completes.iter().map(|complete| &complete.token)),
            retentions: completes.iter().map(retention).collect(),
            outcomes: OutcomeArrays::of(
                completes.iter().map(|complete| OutcomeColumns::of(&complete.outcome)),
            ),
        }
    }

    pub(crate) fn into_arguments(self) -> Vec<Argument> {
        let mut arguments = self.tokens.into_arguments();
        arguments.push(argument(self.retentions, Type::INT8_ARRAY));
        arguments.extend(self.outcomes.into_arguments());
        arguments
    }
}

/// The arrays of `claim`, in its order. Most claims are under the same terms: those are sent once, and each claim
/// names its own by position.
pub(crate) struct ClaimArrays {
    pub(crate) ids: Vec<Vec<u8>>,
    pub(crate) fingerprints: Vec<Vec<u8>>,
    pub(crate) owners: Vec<Uuid>,
    pub(crate) term_of: Vec<i32>,
    pub(crate) leases: Vec<i64>,
    pub(crate) run_maxes: Vec<i64>,
    pub(crate) retentions: Vec<i64>,
    pub(crate) unknown_retentions: Vec<i64>,
    pub(crate) policies: Vec<i16>,
    pub(crate) attempts_maxes: Vec<i64>,
    pub(crate) hold_fors: Vec<i64>,
    pub(crate) remotes: Vec<bool>,
    pub(crate) sealed: OutcomeArrays,
}

impl ClaimArrays {
    pub(crate) fn of(claims: &[&Claim]) -> Self {
        let mut terms: Vec<&Arc<Terms>> = Vec::new();
        let mut term_of: Vec<i32> = Vec::with_capacity(claims.len());
        for claim in claims {
            let known = terms.iter().position(|known| Arc::ptr_eq(known, &claim.terms));
            let position = known.unwrap_or_else(|| {
                terms.push(&claim.terms);
                terms.len() - 1
            });
            term_of.push(i32::try_from(position + 1).unwrap_or(i32::MAX));
        }
        let numbers = |of: fn(&Terms) -> i64| terms.iter().map(|terms| of(terms)).collect();
        Self {
            ids: ids(claims.iter().map(|claim| &claim.id)),
            fingerprints: claims.iter().map(|claim| column::fingerprint(&claim.fingerprint)).collect(),
            owners: claims.iter().map(|claim| column::owner(&claim.owner)).collect(),
            term_of,
            leases: numbers(|terms| column::millis(terms.lease.get())),
            run_maxes: numbers(|terms| column::millis(terms.run_max)),
            retentions: numbers(|terms| column::millis(terms.retention.get())),
            unknown_retentions: numbers(|terms| column::millis(terms.unknown_retention.get())),
            policies: terms.iter().map(|terms| column::policy(terms.unknown)).collect(),
            attempts_maxes: numbers(|terms| terms.attempts_max.into()),
            hold_fors: numbers(|terms| column::millis(terms.hold_for)),
            remotes: terms.iter().map(|terms| terms.remote).collect(),
            sealed: OutcomeArrays::of(terms.iter().map(|terms| OutcomeColumns::of(&terms.sealed))),
        }
    }

    pub(crate) fn into_arguments(self) -> Vec<Argument> {
        let [versions, kepts, heads, sums, bodies] = self.sealed.into_arguments();
        vec![
            argument(self.ids, Type::BYTEA_ARRAY),
            argument(self.fingerprints, Type::BYTEA_ARRAY),
            argument(self.owners, Type::UUID_ARRAY),
            argument(self.term_of, Type::INT4_ARRAY),
            argument(self.leases, Type::INT8_ARRAY),
            argument(self.run_maxes, Type::INT8_ARRAY),
            argument(self.retentions, Type::INT8_ARRAY),
            argument(self.unknown_retentions, Type::INT8_ARRAY),
            argument(self.policies, Type::INT2_ARRAY),
            argument(self.attempts_maxes, Type::INT8_ARRAY),
            argument(self.hold_fors, Type::INT8_ARRAY),
            argument(self.remotes, Type::BOOL_ARRAY),
            versions,
            heads,
            kepts,
            sums,
            bodies,
        ]
    }
}

pub(crate) fn renew_arguments(renews: &[&Renew]) -> Vec<Argument> {
    let mut arguments = TokenArrays::of(renews.iter().map(|renew| &renew.token)).into_arguments();
    let leases: Vec<_> = renews.iter().map(|renew| column::millis(renew.lease.get())).collect();
    arguments.push(argument(leases, Type::INT8_ARRAY));
    arguments
}

pub(crate) fn release_arguments(releases: &[&Release]) -> Vec<Argument> {
    let mut arguments = TokenArrays::of(releases.iter().map(|release| &release.token)).into_arguments();
    let keep: Vec<_> = releases.iter().map(|release| release.keep_fingerprint).collect();
    arguments.push(argument(keep, Type::BOOL_ARRAY));
    arguments
}
