//! Asking "may I run this?", one at a time or many.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use onlyonce_core::fingerprint::canonical::canonical_json;
use onlyonce_core::store::BATCH_MAX;
use onlyonce_core::transition::{Claim, ClaimAnswer};
use onlyonce_core::{Lease, MisuseError, Quota, Retention, StoreError, Terms};
use onlyonce_http::ProblemKind;
use onlyonce_http::rules::{Span, Unknown};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::{By, StepShown};
use crate::claims::content::{Content, also_null, millis};
use crate::claims::namespace::Namespace;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May, StillThere, owner};
use crate::claims::router::Api;
use crate::claims::tokens::CLAIM;
use crate::operator::naming;

/// A claim: a key, who asks, and under which conditions.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimRequest {
    /// 1 to 255 printable ASCII characters.
    #[schema(example = "order-7", pattern = "^[!-~]{1,255}$")]
    key: String,
    /// 32 random hexadecimal digits, made before the first send and kept for all resends; a UUID works.
    #[schema(example = "9f1c2b3a4d5e6f708192a3b4c5d6e7f8", pattern = "^[0-9a-f]{32}$")]
    owner: String,
    /// Whose key it is. All share it when absent.
    principal: Option<String>,
    /// Narrows the key further.
    path: Option<String>,
    /// What is asked. The same key with another one is a mismatch.
    fingerprint: Option<String>,
    /// What is asked, as JSON that is compared in canonical form. Instead of `fingerprint`.
    #[serde(default, deserialize_with = "also_null")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// How long the owner may work without renewing: `100ms` to `1h`.
    #[schema(value_type = Option<String>, example = "30s")]
    lease: Option<Span>,
    /// How long the attempt may take in all, up to `24h`.
    #[schema(value_type = Option<String>, example = "5m")]
    run_max: Option<Span>,
    /// How long the outcome is kept.
    #[schema(value_type = Option<String>, example = "24h")]
    retention: Option<Span>,
    /// How long the record is kept while its outcome is unknown.
    #[schema(value_type = Option<String>, example = "30d")]
    unknown_retention: Option<Span>,
    /// What to do when nobody knows whether the work happened: `hold`, `seal`, `query` or `rerun`.
    #[schema(value_type = Option<String>, example = "hold")]
    unknown: Option<Unknown>,
    /// How many attempts `rerun` may make in all.
    attempts_max: Option<u32>,
    /// How long `hold` holds before it seals.
    #[schema(value_type = Option<String>, example = "24h")]
    hold_for: Option<Span>,
    /// How long to wait while somebody else runs it, up to `60s`.
    #[schema(value_type = Option<String>, example = "0s")]
    wait: Option<Span>,
}

/// What became of a claim.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Claimed {
    /// The record, for everything that follows.
    id: String,
    #[serde(flatten)]
    answer: ClaimResult,
}

/// What became of a claim.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum ClaimResult {
    /// You run it.
    Granted { fence: u64, attempt: u32, steps: Vec<StepShown> },
    /// It is done; this is the outcome.
    Replay { outcome: Content, by: By, fence: u64, attempt: u32, age_ms: u64, left_ms: u64 },
    /// Somebody runs it.
    Busy { left_ms: u64 },
    /// Nobody knows whether it happened.
    Held { fence: u64, age_ms: u64 },
    /// The key was used for something else.
    Mismatch,
    /// Find out what happened, then resolve.
    Recover { fence: u64, attempt: u32, quiet_in_ms: u64, steps: Vec<StepShown> },
    /// This owner had a grant and lost it: use a new one.
    Fenced,
}

impl From<ClaimAnswer> for ClaimResult {
    fn from(answer: ClaimAnswer) -> Self {
        match answer {
            ClaimAnswer::Granted(grant) => Self::Granted {
                fence: grant.fence.get(),
                attempt: grant.attempt,
                steps: grant.steps.iter().map(Into::into).collect(),
            },
            ClaimAnswer::Replay(replay) => Self::Replay {
                outcome: Content::of(&replay.outcome),
                by: replay.by.into(),
                fence: replay.fence.get(),
                attempt: replay.attempt,
                age_ms: millis(replay.age),
                left_ms: millis(replay.left),
            },
            ClaimAnswer::Busy(busy) => Self::Busy { left_ms: millis(busy.left) },
            ClaimAnswer::Held(held) => Self::Held { fence: held.fence.get(), age_ms: millis(held.age) },
            ClaimAnswer::Mismatch { .. } => Self::Mismatch,
            ClaimAnswer::Recover(grant) => Self::Recover {
                fence: grant.fence.get(),
                attempt: grant.attempt,
                quiet_in_ms: millis(grant.quiet_in),
                steps: grant.steps.iter().map(Into::into).collect(),
            },
            ClaimAnswer::Fenced => Self::Fenced,
        }
    }
}

/// Many claims.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClaimBatch {
    /// At most 1000, none with `wait`.
    claims: Vec<ClaimRequest>,
}

/// What became of many claims, in their order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClaimedBatch {
    answers: Vec<ClaimedItem>,
}

/// What became of one of many.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ClaimedItem {
    Claimed(Claimed),
    /// It could not be decided.
    Failed {
        /// A problem, as a single claim would have been answered with.
        error: serde_json::Value,
    },
}

/// The command that `request` asks for.
fn command(namespace: &Namespace, request: &ClaimRequest) -> Result<Claim, Refusal> {
    let (principal, path) = (request.principal.as_deref(), request.path.as_deref());
    let key = naming::claimed(&namespace.name, &request.key, principal, path)?;
    let mut fingerprint = namespace.engine.fingerprint();
    match (&request.fingerprint, &request.payload) {
        (Some(_), Some(_)) => return Err(Refusal::invalid("`fingerprint` and `payload` exclude each other")),
        (Some(text), None) => fingerprint.add("fingerprint", text.as_bytes()),
        (None, Some(payload)) => {
            let canonical = canonical_json(payload.get().as_bytes())
                .map_err(|error| Refusal::invalid(format!("`payload`: {error}")))?;
            fingerprint.add("payload", &canonical);
        }
        (None, None) => {}
    }
    Ok(Claim {
        id: key.record_id(namespace.engine.secret()),
        fingerprint: fingerprint.finish(),
        owner: owner(&request.owner)?,
        terms: terms(namespace, request)?,
    })
}

/// The conditions of a claim: those of the service, but for what it says itself.
fn terms(namespace: &Namespace, request: &ClaimRequest) -> Result<Arc<Terms>, Refusal> {
    let ClaimRequest {
        lease, run_max, retention, unknown_retention, unknown, attempts_max, hold_for, ..
    } = request;
    let said = [lease, run_max, retention, unknown_retention, hold_for];
    if said.iter().all(|span| span.is_none()) && unknown.is_none() && attempts_max.is_none() {
        return Ok(Arc::clone(&namespace.terms));
    }
    let wrong = |error: MisuseError| Refusal::invalid(error.to_string());
    let kept = |span: Span| Retention::new(span.get()).map_err(wrong);
    let mut policy = namespace.policy.clone();
    if let Some(lease) = lease {
        policy = policy.lease(Lease::new(lease.get()).map_err(wrong)?);
    }
    if let Some(run_max) = run_max {
        policy = policy.run_max(run_max.get());
    }
    if let Some(retention) = retention {
        policy = policy.retention(kept(*retention)?);
    }
    if let Some(retention) = unknown_retention {
        policy = policy.unknown_retention(kept(*retention)?);
    }
    if let Some(unknown) = unknown {
        policy = policy.unknown((*unknown).into());
    }
    if let Some(attempts_max) = attempts_max {
        policy = policy.attempts_max(*attempts_max);
    }
    if let Some(hold_for) = hold_for {
        policy = policy.hold_for(hold_for.get());
    }
    policy.check().map_err(wrong)?;
    Ok(Arc::new(policy.terms().clone()))
}

fn over_quota() -> Refusal {
    Refusal::for_now(
        ProblemKind::Quota,
        "this namespace has as much on record or in flight as the token allows",
    )
}

impl Namespace {
    async fn claim_within(&self, claim: &Claim, quota: &Quota) -> Result<ClaimAnswer, Refusal> {
        if self.is_over(quota, &claim.id).await? {
            return Err(over_quota());
        }
        let answer = self.bounded(self.store().claim(claim)).await?;
        if matches!(answer, ClaimAnswer::Granted(_)) {
            self.usage.granted();
        }
        Ok(answer)
    }

    /// Claims, and while somebody else runs it, waits and claims again.
    async fn claim_patiently(
        &self,
        claim: &Claim,
        quota: &Quota,
        patience: Duration,
        gone: &CancellationToken,
    ) -> Result<ClaimAnswer, Refusal> {
        let mut patience = pin!(tokio::time::sleep(patience));
        let mut seat = None;
        loop {
            // ORDER: watched first, claimed second: a change in between is not missed.
            let watch = self.bounded(self.store().watch(&claim.id)).await?;
            let answer = self.claim_within(claim, quota).await?;
            if !matches!(answer, ClaimAnswer::Busy(_)) || patience.is_elapsed() {
                return Ok(answer);
            }
            if seat.is_none() {
                seat = Some(self.waiters.take_seat(claim.id)?);
            }
            tokio::select! {
                () = watch => {}
                () = &mut patience => {}
                // Whoever is gone must not be given a grant.
                () = gone.cancelled() => return Ok(answer),
                () = self.stopping.cancelled() => return Ok(answer),
            }
        }
    }
}

/// Ask whether a key may be run
#[utoipa::path(post, path = "/v1/claims", tag = "claims", request_body = ClaimRequest, security(("token" = [])),
    responses((status = 200, body = Claimed, description = "What became of it"), Refusals))]
pub(crate) async fn claim(
    May { namespace, quota }: May<CLAIM>,
    StillThere(gone): StillThere,
    State(api): State<Api>,
    Json(request, _held): Json<ClaimRequest>,
) -> Result<axum::Json<Claimed>, Refusal> {
    let claim = command(&namespace, &request)?;
    let patience = request.wait.map_or(Duration::ZERO, Span::get);
    if patience > api.settings().wait_max {
        return Err(Refusal::invalid("`wait` is longer than 60s"));
    }
    let answer = if patience.is_zero() {
        namespace.claim_within(&claim, &quota).await
    } else {
        namespace.claim_patiently(&claim, &quota, patience, &gone).await
    };
    let answer = answer.map_err(|refusal| refusal.about(&claim.id))?;
    Ok(axum::Json(Claimed { id: claim.id.to_string(), answer: answer.into() }))
}

/// Ask for many keys at once
#[utoipa::path(post, path = "/v1/claims/batch", tag = "claims", request_body = ClaimBatch, security(("token" = [])),
    responses((status = 200, body = ClaimedBatch, description = "What became of each, in order"), Refusals))]
pub(crate) async fn claim_batch(
    May { namespace, quota }: May<CLAIM>,
    Json(batch, _held): Json<ClaimBatch>,
) -> Result<axum::Json<ClaimedBatch>, Refusal> {
    if batch.claims.len() > BATCH_MAX {
        return Err(Refusal::invalid(format!("a batch has at most {BATCH_MAX} claims")));
    }
    if batch.claims.iter().any(|request| request.wait.is_some()) {
        return Err(Refusal::invalid("a claim in a batch cannot wait"));
    }
    let commands = batch.claims.iter().map(|request| command(&namespace, request));
    let (mut answers, mut claims) = (Vec::with_capacity(batch.claims.len()), Vec::new());
    for command in commands {
        let admitted = match command {
            Ok(claim) if namespace.is_over(&quota, &claim.id).await? => Err(over_quota()),
            command => command,
        };
        match admitted {
            Ok(claim) => {
                answers.push(None);
                claims.push(claim);
            }
            Err(refusal) => answers.push(Some(ClaimedItem::Failed { error: refusal.to_json() })),
        }
    }
    let decided = namespace.bounded(namespace.store().claim_many(&claims)).await?;
    let mut decided = claims.iter().zip(decided).map(|(claim, answer)| item(&namespace, claim, answer));
    let answers =
        answers.into_iter().map(|refused| refused.or_else(|| decided.next())).collect::<Option<Vec<_>>>();
    let answers = answers.ok_or_else(|| {
        Refusal::for_now(ProblemKind::StoreUnavailable, "the store answered fewer claims than it was asked")
    })?;
    Ok(axum::Json(ClaimedBatch { answers }))
}

fn item(namespace: &Namespace, claim: &Claim, answer: Result<ClaimAnswer, StoreError>) -> ClaimedItem {
    match answer {
        Ok(answer) => {
            if matches!(answer, ClaimAnswer::Granted(_)) {
                namespace.usage.granted();
            }
            ClaimedItem::Claimed(Claimed { id: claim.id.to_string(), answer: answer.into() })
        }
        Err(error) => ClaimedItem::Failed { error: Refusal::from(error).about(&claim.id).to_json() },
    }
}
