//! What operators may do: say what happened to an unknown record, and erase what it holds about a person.

use onlyonce_core::transition::Resolve;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::claims::content::Content;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May, OfRecord, fence};
use crate::claims::tokens::{ERASE, RESOLVE};
use crate::operator::verdict::{EraseResult, ResolveResult, VerdictName, actor, erased, resolved, verdict};

/// Says what happened to an unknown record.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResolveRequest {
    /// Of the attempt in question.
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    verdict: VerdictName,
    /// What came out, when it was executed.
    outcome: Option<Content>,
    /// "Not executed" although the attempt may still be running.
    force: Option<bool>,
    /// Who says so, for the audit log.
    actor: Option<String>,
}

/// Say what happened to an unknown record
#[utoipa::path(post, path = "/v1/claims/{id}/resolve", tag = "operators", request_body = ResolveRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = ResolveResult, description = "What became of it"), Refusals))]
pub(crate) async fn resolve(
    May { namespace, .. }: May<RESOLVE>,
    OfRecord(id): OfRecord,
    Json(request, _held): Json<ResolveRequest>,
) -> Result<axum::Json<ResolveResult>, Refusal> {
    let outcome = request.outcome.map(Content::into_outcome).transpose()?;
    let verdict = verdict(request.verdict, outcome, request.force)?;
    let resolve = Resolve { id, fence: fence(request.fence)?, verdict, actor: actor(request.actor)? };
    resolved(namespace.store().as_ref(), &namespace.name, &resolve).await.map(axum::Json)
}

/// Drop what a record holds about a person; its key stays used
#[utoipa::path(post, path = "/v1/claims/{id}/erase", tag = "operators", params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")),
    security(("token" = [])),
    responses((status = 200, body = EraseResult, description = "What became of it"), Refusals))]
pub(crate) async fn erase(
    May { namespace, .. }: May<ERASE>,
    OfRecord(id): OfRecord,
) -> Result<axum::Json<EraseResult>, Refusal> {
    erased(namespace.store().as_ref(), &namespace.name, id).await.map(axum::Json)
}
