//! The commands that come in batches. A single one is a batch of one.

use onlyonce_core::store::{BATCH_MAX, Batch};
use onlyonce_core::transition::{Claim, ClaimAnswer, Complete, Release, Renew};
use onlyonce_core::{Quota, StoreError, StoreErrorKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::shape::{ClaimShape, OutcomeShape, StepShape, lease, retention, token};
use crate::claims::content::{encoded, millis};
use crate::claims::keyed::By;
use crate::claims::keyed::holder::{CompleteResult, ReleaseResult, RenewResult};
use crate::claims::namespace::Namespace;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May};
use crate::claims::tokens::STORE;

/// At most 1000 commands.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Items<T> {
    items: Vec<T>,
}

/// One answer for each command, in order.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ItemAnswers<T> {
    answers: Vec<Item<T>>,
}

/// An answer, or why there is none.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Item<T> {
    Answer(T),
    Failed { error: StoreFailure },
}

/// What went wrong in the store.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StoreFailure {
    /// `store-unavailable`, `store-timed-out`, `store-full`, `record-corrupt`, `record-unsupported` or `store-misuse`.
    code: &'static str,
    /// Whether the command may have been applied.
    outcome_unknown: bool,
}

/// A renewal.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RenewShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    lease_ms: u64,
}

/// A completion.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    outcome: OutcomeShape,
    retention_ms: Option<u64>,
}

/// A release.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    #[schema(pattern = "^[0-9a-f]{32}$")]
    owner: String,
    #[schema(maximum = 9_007_199_254_740_991_u64)]
    fence: u64,
    keep_fingerprint: bool,
}

/// What became of a claim.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum StoreClaimed {
    Granted {
        fence: u64,
        attempt: u32,
        steps: Vec<StepShape>,
    },
    Replay {
        outcome: OutcomeShape,
        by: By,
        fence: u64,
        attempt: u32,
        age_ms: u64,
        left_ms: u64,
    },
    Busy {
        left_ms: u64,
    },
    Held {
        fence: u64,
        age_ms: u64,
    },
    Mismatch {
        /// The rules of the stored fingerprint in base64, when they are not those of the claim.
        #[serde(skip_serializing_if = "Option::is_none")]
        rules: Option<String>,
    },
    Recover {
        fence: u64,
        attempt: u32,
        quiet_in_ms: u64,
        steps: Vec<StepShape>,
    },
    Fenced,
}

impl From<ClaimAnswer> for StoreClaimed {
    fn from(answer: ClaimAnswer) -> Self {
        match answer {
            ClaimAnswer::Granted(grant) => Self::Granted {
                fence: grant.fence.get(),
                attempt: grant.attempt,
                steps: grant.steps.iter().map(Into::into).collect(),
            },
            ClaimAnswer::Replay(replay) => Self::Replay {
                outcome: (&replay.outcome).into(),
                by: replay.by.into(),
                fence: replay.fence.get(),
                attempt: replay.attempt,
                age_ms: millis(replay.age),
                left_ms: millis(replay.left),
            },
            ClaimAnswer::Busy(busy) => Self::Busy { left_ms: millis(busy.left) },
            ClaimAnswer::Held(held) => Self::Held { fence: held.fence.get(), age_ms: millis(held.age) },
            ClaimAnswer::Mismatch { rules } => {
                Self::Mismatch { rules: rules.map(|rules| encoded(rules.text())) }
            }
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

/// What the items say, if there are not too many of them.
fn read<T, C>(items: Items<T>, one: impl Fn(T) -> Result<C, Refusal>) -> Result<Vec<C>, Refusal> {
    if items.items.len() > BATCH_MAX {
        return Err(StoreError::new(StoreErrorKind::Misuse, "taking a batch of more than 1000").into());
    }
    items.items.into_iter().map(one).collect()
}

fn answers<A, T: From<A>>(batch: Batch<A>) -> axum::Json<ItemAnswers<T>> {
    let answers = batch.into_iter().map(|answer| match answer {
        Ok(answer) => Item::Answer(answer.into()),
        Err(error) => {
            let error = StoreFailure { code: error.code(), outcome_unknown: error.outcome_unknown() };
            Item::Failed { error }
        }
    });
    axum::Json(ItemAnswers { answers: answers.collect() })
}

impl Namespace {
    /// Claims those that the quota admits; to the others the store is full.
    async fn claim_many_within(
        &self,
        claims: &[Claim],
        quota: &Quota,
    ) -> Result<Batch<ClaimAnswer>, StoreError> {
        let batch = if *quota == Quota::default() {
            match claims {
                [claim] => vec![Ok(self.bounded(self.store().claim(claim)).await?)],
                claims => self.bounded(self.store().claim_many(claims)).await?,
            }
        } else {
            let mut batch = Vec::with_capacity(claims.len());
            for claim in claims {
                batch.push(if self.is_over(quota, &claim.id).await? {
                    Err(StoreError::new(StoreErrorKind::Full, "claiming beyond the quota"))
                } else {
                    self.bounded(self.store().claim(claim)).await
                });
            }
            batch
        };
        for _ in batch.iter().filter(|answer| matches!(answer, Ok(ClaimAnswer::Granted(_)))) {
            self.usage.granted();
        }
        Ok(batch)
    }
}

/// Claim by record id
#[utoipa::path(post, path = "/v1/store/claim", tag = "store", request_body = Items<ClaimShape>, security(("token" = [])),
    responses((status = 200, body = ItemAnswers<StoreClaimed>, description = "In order"), Refusals))]
pub(crate) async fn store_claim(
    May { namespace, quota }: May<STORE>,
    Json(items, _held): Json<Items<ClaimShape>>,
) -> Result<axum::Json<ItemAnswers<StoreClaimed>>, Refusal> {
    let claims = read(items, ClaimShape::read)?;
    Ok(answers(namespace.claim_many_within(&claims, &quota).await?))
}

/// Extend leases
#[utoipa::path(post, path = "/v1/store/renew", tag = "store", request_body = Items<RenewShape>, security(("token" = [])),
    responses((status = 200, body = ItemAnswers<RenewResult>, description = "In order"), Refusals))]
pub(crate) async fn store_renew(
    May { namespace, .. }: May<STORE>,
    Json(items, _held): Json<Items<RenewShape>>,
) -> Result<axum::Json<ItemAnswers<RenewResult>>, Refusal> {
    let renews = read(items, |item| {
        Ok(Renew { token: token(&item.id, &item.owner, item.fence)?, lease: lease(item.lease_ms)? })
    })?;
    Ok(answers(match renews.as_slice() {
        [renew] => vec![Ok(namespace.bounded(namespace.store().renew(renew)).await?)],
        renews => namespace.bounded(namespace.store().renew_many(renews)).await?,
    }))
}

/// Record outcomes
#[utoipa::path(post, path = "/v1/store/complete", tag = "store", request_body = Items<CompleteShape>,
    security(("token" = [])),
    responses((status = 200, body = ItemAnswers<CompleteResult>, description = "In order"), Refusals))]
pub(crate) async fn store_complete(
    May { namespace, .. }: May<STORE>,
    Json(items, _held): Json<Items<CompleteShape>>,
) -> Result<axum::Json<ItemAnswers<CompleteResult>>, Refusal> {
    let completes = read(items, |item| {
        Ok(Complete {
            token: token(&item.id, &item.owner, item.fence)?,
            outcome: item.outcome.read()?,
            retention: item.retention_ms.map(retention).transpose()?,
        })
    })?;
    Ok(answers(match completes.as_slice() {
        [complete] => vec![Ok(namespace.bounded(namespace.store().complete(complete)).await?)],
        completes => namespace.bounded(namespace.store().complete_many(completes)).await?,
    }))
}

/// Free keys
#[utoipa::path(post, path = "/v1/store/release", tag = "store", request_body = Items<ReleaseShape>,
    security(("token" = [])),
    responses((status = 200, body = ItemAnswers<ReleaseResult>, description = "In order"), Refusals))]
pub(crate) async fn store_release(
    May { namespace, .. }: May<STORE>,
    Json(items, _held): Json<Items<ReleaseShape>>,
) -> Result<axum::Json<ItemAnswers<ReleaseResult>>, Refusal> {
    let releases = read(items, |item| {
        let token = token(&item.id, &item.owner, item.fence)?;
        Ok(Release { token, keep_fingerprint: item.keep_fingerprint })
    })?;
    Ok(answers(match releases.as_slice() {
        [release] => vec![Ok(namespace.bounded(namespace.store().release(release)).await?)],
        releases => namespace.bounded(namespace.store().release_many(releases)).await?,
    }))
}
