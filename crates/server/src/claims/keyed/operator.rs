//! What operators may do: say what happened to an unknown record, and erase what it holds about a person.

use onlyonce_core::record::StateKind;
use onlyonce_core::transition::{Actor, Erase, EraseAnswer, Resolve, ResolveAnswer, Verdict};
use onlyonce_core::{Outcome, RecordId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::VerdictName;
use super::record::StateName;
use crate::claims::content::{Content, millis};
use crate::claims::namespace::Namespace;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May, OfRecord, fence};
use crate::claims::tokens::{ERASE, RESOLVE};

/// The longest name of who resolves.
const ACTOR_CHARS_MAX: usize = 200;

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

/// What became of a resolution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum ResolveResult {
    Resolved,
    Already,
    /// There is nothing to resolve.
    NotUnknown {
        state: StateName,
    },
    /// The record is at this fence now.
    Stale {
        fence: u64,
    },
    /// The attempt may still run for this long.
    TooEarly {
        left_ms: u64,
    },
    Contradicted,
    Absent,
}

impl From<ResolveAnswer> for ResolveResult {
    fn from(answer: ResolveAnswer) -> Self {
        match answer {
            ResolveAnswer::Resolved => Self::Resolved,
            ResolveAnswer::Already => Self::Already,
            ResolveAnswer::NotUnknown(state) => Self::NotUnknown { state: StateKind::into(state) },
            ResolveAnswer::Stale(fence) => Self::Stale { fence: fence.get() },
            ResolveAnswer::TooEarly(left) => Self::TooEarly { left_ms: millis(left) },
            ResolveAnswer::Contradicted => Self::Contradicted,
            ResolveAnswer::Absent => Self::Absent,
        }
    }
}

/// What became of an erasure.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum EraseResult {
    Erased,
    InFlight,
    Absent,
}

impl From<EraseAnswer> for EraseResult {
    fn from(answer: EraseAnswer) -> Self {
        match answer {
            EraseAnswer::Erased => Self::Erased,
            EraseAnswer::InFlight => Self::InFlight,
            EraseAnswer::Absent => Self::Absent,
        }
    }
}

/// The verdict that is named, with what it needs and nothing else.
pub(crate) fn verdict(
    name: VerdictName,
    outcome: Option<Outcome>,
    force: Option<bool>,
) -> Result<Verdict, Refusal> {
    match (name, outcome, force) {
        (VerdictName::Executed, Some(outcome), None) => Ok(Verdict::Executed(outcome)),
        (VerdictName::Executed, _, _) => Err(Refusal::invalid("`executed` needs `outcome`, and no `force`")),
        (VerdictName::NotExecuted, None, force) => Ok(Verdict::NotExecuted { force: force.unwrap_or(false) }),
        (VerdictName::StillUnknown, None, None) => Ok(Verdict::StillUnknown),
        _ => Err(Refusal::invalid("`outcome` is for `executed` only, `force` for `not-executed` only")),
    }
}

pub(crate) fn actor(name: Option<String>) -> Result<Actor, Refusal> {
    match name {
        None => Ok(Actor::Hook),
        Some(name) if !name.is_empty() && name.chars().count() <= ACTOR_CHARS_MAX => {
            Ok(Actor::Operator(name))
        }
        Some(_) => Err(Refusal::invalid("`actor` has 1 to 200 characters")),
    }
}

/// Resolves, and writes into the log who said so.
pub(crate) async fn resolved(namespace: &Namespace, resolve: &Resolve) -> Result<ResolveResult, Refusal> {
    let answer = namespace.bounded(namespace.store().resolve(resolve)).await?;
    tracing::info!(
        target: "onlyonce::audit", namespace = &*namespace.name, id = resolve.id.short(), fence = resolve.fence.get(),
        actor = ?resolve.actor, ?answer, "resolved"
    );
    Ok(answer.into())
}

/// The same for erasures.
pub(crate) async fn erased(namespace: &Namespace, id: RecordId) -> Result<EraseResult, Refusal> {
    let answer = namespace.bounded(namespace.store().erase(&Erase { id })).await?;
    tracing::info!(target: "onlyonce::audit", namespace = &*namespace.name, id = id.short(), ?answer, "erased");
    Ok(answer.into())
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
    resolved(&namespace, &resolve).await.map(axum::Json)
}

/// Drop what a record holds about a person; its key stays used
#[utoipa::path(post, path = "/v1/claims/{id}/erase", tag = "operators", params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")),
    security(("token" = [])),
    responses((status = 200, body = EraseResult, description = "What became of it"), Refusals))]
pub(crate) async fn erase(
    May { namespace, .. }: May<ERASE>,
    OfRecord(id): OfRecord,
) -> Result<axum::Json<EraseResult>, Refusal> {
    erased(&namespace, id).await.map(axum::Json)
}
