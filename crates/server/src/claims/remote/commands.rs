//! The commands that come one at a time.

use onlyonce_core::record::codec;
use onlyonce_core::store::{BATCH_MAX, SweepBudget};
use onlyonce_core::transition::{Abandon, RecordStep, Resolve, StepAnswer};
use onlyonce_core::{Secret, StoreError, StoreErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shape::{OutcomeShape, digits, refused, step_name, token};
use crate::claims::content::{decoded, encoded};
use crate::claims::keyed::holder::AbandonResult;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May, fence, record_id};
use crate::claims::tokens::STORE;
use crate::operator::verdict::{EraseResult, ResolveResult, VerdictName, actor, erased, resolved, verdict};

/// Gives up.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbandonShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
}

/// Keeps a value under the grant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordStepShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    name: String,
    /// In base64.
    value: String,
}

/// What became of a step.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum StoreRecorded {
    Recorded,
    /// In base64.
    Already {
        value: String,
    },
    Erased,
    Full,
    Fenced,
}

impl From<StepAnswer> for StoreRecorded {
    fn from(answer: StepAnswer) -> Self {
        match answer {
            StepAnswer::Recorded => Self::Recorded,
            StepAnswer::Already(value) => Self::Already { value: encoded(&value) },
            StepAnswer::Erased => Self::Erased,
            StepAnswer::Full => Self::Full,
            StepAnswer::Fenced => Self::Fenced,
        }
    }
}

/// Says what happened to an unknown record.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    verdict: VerdictName,
    outcome: Option<OutcomeShape>,
    force: Option<bool>,
    /// Who says so; a recovery hook when absent.
    actor: Option<String>,
}

/// Names a record.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(super) id: String,
}

/// How many records a sweep may touch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepShape {
    #[schema(minimum = 1, maximum = 10000)]
    budget: usize,
}

/// What a sweep did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SweptShape {
    removed: usize,
    dropped: usize,
    made_unknown: usize,
    more: bool,
}

/// A secret to be kept if there is none yet.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OfferedShape {
    /// 64 hexadecimal digits.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    offered: String,
}

/// The secret of the namespace.
#[derive(Serialize, ToSchema)]
pub(crate) struct SecretShape {
    /// 64 hexadecimal digits.
    secret: String,
}

/// A record with its id, in the bytes of the record format.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EncodedRecord {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub(super) id: String,
    /// In base64.
    pub(super) record: String,
}

/// Records of another store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportShape {
    records: Vec<EncodedRecord>,
}

/// What became of them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ImportedShape {
    taken: usize,
    left: usize,
}

/// Give up without knowing whether the work happened
#[utoipa::path(post, path = "/v1/store/abandon", tag = "store", request_body = AbandonShape, security(("token" = [])),
    responses((status = 200, body = AbandonResult, description = "What became of it"), Refusals))]
pub(crate) async fn store_abandon(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<AbandonShape>,
) -> Result<axum::Json<AbandonResult>, Refusal> {
    let abandon = Abandon { token: token(&shape.id, &shape.owner, shape.fence)? };
    let answer = namespace.bounded(namespace.store().abandon(&abandon)).await?;
    Ok(axum::Json(answer.into()))
}

/// Keep a value under the grant
#[utoipa::path(post, path = "/v1/store/step", tag = "store", request_body = RecordStepShape, security(("token" = [])),
    responses((status = 200, body = StoreRecorded, description = "What became of it"), Refusals))]
pub(crate) async fn store_step(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<RecordStepShape>,
) -> Result<axum::Json<StoreRecorded>, Refusal> {
    let step = RecordStep {
        token: token(&shape.id, &shape.owner, shape.fence)?,
        name: step_name(&shape.name)?,
        value: decoded(&shape.value)?,
    };
    let answer = namespace.bounded(namespace.store().record_step(&step)).await?;
    Ok(axum::Json(answer.into()))
}

/// Say what happened to an unknown record
#[utoipa::path(post, path = "/v1/store/resolve", tag = "store", request_body = ResolveShape, security(("token" = [])),
    responses((status = 200, body = ResolveResult, description = "What became of it"), Refusals))]
pub(crate) async fn store_resolve(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<ResolveShape>,
) -> Result<axum::Json<ResolveResult>, Refusal> {
    let outcome = shape.outcome.map(OutcomeShape::read).transpose()?;
    let resolve = Resolve {
        id: record_id(&shape.id)?,
        fence: fence(shape.fence)?,
        verdict: verdict(shape.verdict, outcome, shape.force)?,
        actor: actor(shape.actor)?,
    };
    resolved(namespace.store().as_ref(), &namespace.name, &resolve).await.map(axum::Json)
}

/// Drop the bodies of a record
#[utoipa::path(post, path = "/v1/store/erase", tag = "store", request_body = IdShape, security(("token" = [])),
    responses((status = 200, body = EraseResult, description = "What became of it"), Refusals))]
pub(crate) async fn store_erase(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<IdShape>,
) -> Result<axum::Json<EraseResult>, Refusal> {
    erased(namespace.store().as_ref(), &namespace.name, record_id(&shape.id)?).await.map(axum::Json)
}

/// Remove some of what has expired
#[utoipa::path(post, path = "/v1/store/sweep", tag = "store", request_body = SweepShape, security(("token" = [])),
    responses((status = 200, body = SweptShape, description = "What was done"), Refusals))]
pub(crate) async fn store_sweep(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<SweepShape>,
) -> Result<axum::Json<SweptShape>, Refusal> {
    let budget = SweepBudget::new(shape.budget).map_err(|error| refused(&error))?;
    let swept = namespace.bounded(namespace.store().sweep(budget)).await?;
    Ok(axum::Json(SweptShape {
        removed: swept.removed,
        dropped: swept.dropped,
        made_unknown: swept.made_unknown,
        more: swept.more,
    }))
}

/// The secret of the namespace's keyed hashes
#[utoipa::path(post, path = "/v1/store/secret", tag = "store", request_body = OfferedShape, security(("token" = [])),
    responses((status = 200, body = SecretShape, description = "The one that is kept"), Refusals))]
pub(crate) async fn store_secret(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<OfferedShape>,
) -> Result<axum::Json<SecretShape>, Refusal> {
    let offered = Secret::new(digits("offered", &shape.offered)?);
    let secret = namespace.bounded(namespace.store().secret(&offered)).await?;
    Ok(axum::Json(SecretShape { secret: onlyonce_core::hex::encode(secret.expose()) }))
}

/// Take in records of another store
#[utoipa::path(post, path = "/v1/store/import", tag = "store", request_body = ImportShape, security(("token" = [])),
    responses((status = 200, body = ImportedShape, description = "What became of them"), Refusals))]
pub(crate) async fn store_import(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<ImportShape>,
) -> Result<axum::Json<ImportedShape>, Refusal> {
    if shape.records.len() > BATCH_MAX {
        return Err(
            StoreError::new(StoreErrorKind::Misuse, "taking in more than 1000 records at a time").into()
        );
    }
    let mut records = Vec::with_capacity(shape.records.len());
    for EncodedRecord { id, record } in &shape.records {
        let id = record_id(id)?;
        let record = codec::decode(&id, &decoded(record)?);
        records.push((id, record.map_err(|error| Refusal::invalid(error.to_string()))?));
    }
    let imported = namespace.bounded(namespace.store().import(&records)).await?;
    Ok(axum::Json(ImportedShape { taken: imported.taken, left: imported.left }))
}
