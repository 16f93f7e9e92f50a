//! What the owner of a grant may do: renew, complete, release, abandon, and record steps. Nobody else can.

use onlyonce_core::transition::{
    Abandon, AbandonAnswer, Complete, CompleteAnswer, RecordStep, Release, ReleaseAnswer, Renew, RenewAnswer,
    StepAnswer, Token,
};
use onlyonce_core::{Lease, RecordId, Retention};
use onlyonce_http::rules::Span;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::claims::content::{Content, Typed, millis};
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Given, Json, May, OfRecord, OfStep, fence, owner};
use crate::claims::tokens::CLAIM;

/// Asks for more time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewRequest {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    /// From now on; the lease of the service's claims when absent.
    #[schema(value_type = Option<String>, example = "30s")]
    lease: Option<Span>,
}

/// Reports what came out.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteRequest {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    outcome: Content,
    /// Other than the claim's.
    #[schema(value_type = Option<String>, example = "24h")]
    retention: Option<Span>,
}

/// Gives the key back: the work did not happen.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseRequest {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    /// Whether the next claim must ask for the same; `true` when absent.
    keep_fingerprint: Option<bool>,
}

/// Gives up without knowing whether the work happened.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AbandonRequest {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
}

/// Records the result of one step of the work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepRequest {
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    value: Content,
}

/// What became of a renewal.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum RenewResult {
    Renewed { left_ms: u64 },
    Fenced,
}

impl From<RenewAnswer> for RenewResult {
    fn from(answer: RenewAnswer) -> Self {
        match answer {
            RenewAnswer::Renewed(left) => Self::Renewed { left_ms: millis(left) },
            RenewAnswer::Fenced => Self::Fenced,
        }
    }
}

/// What became of a completion.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum CompleteResult {
    Completed,
    Already,
    Late,
    Alarm,
    Fenced,
}

impl From<CompleteAnswer> for CompleteResult {
    fn from(answer: CompleteAnswer) -> Self {
        match answer {
            CompleteAnswer::Completed => Self::Completed,
            CompleteAnswer::Already => Self::Already,
            CompleteAnswer::Late => Self::Late,
            CompleteAnswer::Alarm => Self::Alarm,
            CompleteAnswer::Fenced => Self::Fenced,
        }
    }
}

/// What became of a release.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum ReleaseResult {
    Released,
    Fenced,
}

impl From<ReleaseAnswer> for ReleaseResult {
    fn from(answer: ReleaseAnswer) -> Self {
        match answer {
            ReleaseAnswer::Released => Self::Released,
            ReleaseAnswer::Fenced => Self::Fenced,
        }
    }
}

/// What became of an abandonment.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum AbandonResult {
    Abandoned,
    Fenced,
}

impl From<AbandonAnswer> for AbandonResult {
    fn from(answer: AbandonAnswer) -> Self {
        match answer {
            AbandonAnswer::Abandoned => Self::Abandoned,
            AbandonAnswer::Fenced => Self::Fenced,
        }
    }
}

/// What became of a step.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum StepResult {
    Recorded,
    /// The name has a value: use it.
    Already {
        value: Content,
    },
    Erased,
    Full,
    Fenced,
}

impl From<StepAnswer> for StepResult {
    fn from(answer: StepAnswer) -> Self {
        match answer {
            StepAnswer::Recorded => Self::Recorded,
            StepAnswer::Already(value) => Self::Already { value: Content::of_step(&value) },
            StepAnswer::Erased => Self::Erased,
            StepAnswer::Full => Self::Full,
            StepAnswer::Fenced => Self::Fenced,
        }
    }
}

fn token(id: RecordId, of: &str, number: u64) -> Result<Token, Refusal> {
    Ok(Token { id, owner: owner(of)?, fence: fence(number)? })
}

fn retention(span: Option<Span>) -> Result<Option<Retention>, Refusal> {
    span.map(|span| Retention::new(span.get()))
        .transpose()
        .map_err(|error| Refusal::invalid(error.to_string()))
}

/// Ask for more time
#[utoipa::path(post, path = "/v1/claims/{id}/renew", tag = "claims", request_body = RenewRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = RenewResult, description = "What became of it"), Refusals))]
pub(crate) async fn renew(
    May { namespace, .. }: May<CLAIM>,
    OfRecord(id): OfRecord,
    Json(request, _held): Json<RenewRequest>,
) -> Result<axum::Json<RenewResult>, Refusal> {
    let lease = request.lease.map_or(Ok(namespace.terms.lease), |lease| Lease::new(lease.get()));
    let lease = lease.map_err(|error| Refusal::invalid(error.to_string()))?;
    let renew = Renew { token: token(id, &request.owner, request.fence)?, lease };
    let answer = namespace.bounded(namespace.store().renew(&renew)).await?;
    Ok(axum::Json(answer.into()))
}

/// Report the outcome
///
/// A body of any content type but JSON is the outcome itself; `Onlyonce-Owner`, `Onlyonce-Fence` and, if need be,
/// `Onlyonce-Retention` are then headers.
#[utoipa::path(post, path = "/v1/claims/{id}/complete", tag = "claims", request_body = CompleteRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = CompleteResult, description = "What became of it"), Refusals))]
pub(crate) async fn complete(
    May { namespace, .. }: May<CLAIM>,
    OfRecord(id): OfRecord,
    given: Given<CompleteRequest>,
) -> Result<axum::Json<CompleteResult>, Refusal> {
    let (complete, _held) = match given {
        Given::Json(request, held) => {
            let token = token(id, &request.owner, request.fence)?;
            let outcome = request.outcome.into_outcome()?;
            (Complete { token, outcome, retention: retention(request.retention)? }, held)
        }
        Given::Raw(raw, held) => {
            let (owner, fence) = raw.grant()?;
            let mut span = None;
            if raw.headers.contains_key("onlyonce-retention") {
                let said = raw.header("onlyonce-retention")?.parse::<Span>();
                span = Some(said.map_err(|error| Refusal::invalid(error.to_string()))?);
            }
            let outcome = Typed { content_type: raw.content_type, bytes: raw.bytes }.into_outcome()?;
            (Complete { token: Token { id, owner, fence }, outcome, retention: retention(span)? }, held)
        }
    };
    let answer = namespace.bounded(namespace.store().complete(&complete)).await?;
    Ok(axum::Json(answer.into()))
}

/// Give the key back: the work did not happen
#[utoipa::path(post, path = "/v1/claims/{id}/release", tag = "claims", request_body = ReleaseRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = ReleaseResult, description = "What became of it"), Refusals))]
pub(crate) async fn release(
    May { namespace, .. }: May<CLAIM>,
    OfRecord(id): OfRecord,
    Json(request, _held): Json<ReleaseRequest>,
) -> Result<axum::Json<ReleaseResult>, Refusal> {
    let token = token(id, &request.owner, request.fence)?;
    let release = Release { token, keep_fingerprint: request.keep_fingerprint.unwrap_or(true) };
    let answer = namespace.bounded(namespace.store().release(&release)).await?;
    Ok(axum::Json(answer.into()))
}

/// Give up without knowing whether the work happened
#[utoipa::path(post, path = "/v1/claims/{id}/abandon", tag = "claims", request_body = AbandonRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = AbandonResult, description = "What became of it"), Refusals))]
pub(crate) async fn abandon(
    May { namespace, .. }: May<CLAIM>,
    OfRecord(id): OfRecord,
    Json(request, _held): Json<AbandonRequest>,
) -> Result<axum::Json<AbandonResult>, Refusal> {
    let abandon = Abandon { token: token(id, &request.owner, request.fence)? };
    let answer = namespace.bounded(namespace.store().abandon(&abandon)).await?;
    Ok(axum::Json(answer.into()))
}

/// Record the result of a step, once
///
/// A body of any content type but JSON is the value itself; `Onlyonce-Owner` and `Onlyonce-Fence` are then headers.
#[utoipa::path(post, path = "/v1/claims/{id}/steps/{name}", tag = "claims", request_body = StepRequest,
    params(("id" = String, Path, pattern = "^[0-9a-f]{64}$"), ("name" = String, Path)), security(("token" = [])),
    responses((status = 200, body = StepResult, description = "What became of it"), Refusals))]
pub(crate) async fn record_step(
    May { namespace, .. }: May<CLAIM>,
    OfRecord(id): OfRecord,
    OfStep(name): OfStep,
    given: Given<StepRequest>,
) -> Result<axum::Json<StepResult>, Refusal> {
    let (step, _held) = match given {
        Given::Json(request, held) => {
            let token = token(id, &request.owner, request.fence)?;
            (RecordStep { token, name, value: request.value.into_step()? }, held)
        }
        Given::Raw(raw, held) => {
            let (owner, fence) = raw.grant()?;
            let value = Typed { content_type: raw.content_type, bytes: raw.bytes }.into_step()?;
            (RecordStep { token: Token { id, owner, fence }, name, value }, held)
        }
    };
    let answer = namespace.bounded(namespace.store().record_step(&step)).await?;
    Ok(axum::Json(answer.into()))
}
