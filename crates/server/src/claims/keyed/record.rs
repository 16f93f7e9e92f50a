//! Records as their namespace may see them: never an owner, never a fingerprint.

use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use onlyonce_core::record::{Record, State as RecordState, StateKind};
use onlyonce_core::store::{Listing, PAGE_MAX, Unreadable};
use onlyonce_core::{Principal, RecordId, Scope, Timestamp};
use onlyonce_http::ProblemKind;
use onlyonce_http::rules::Span;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::By;
use crate::claims::content::{Content, Typed};
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{May, OfRecord, Params, StillThere, record_id};
use crate::claims::router::Api;
use crate::claims::tokens::{CLAIM, READ};
use crate::claims::wait::version;
use crate::operator::verdict::StateName;

/// The records on a page when nobody says how many.
const PAGE: usize = 100;
/// How long a long poll lasts when it does not say.
const WAIT_FOR: Duration = Duration::from_secs(30);

/// What is remembered of an operation. Times are milliseconds since 1970 on the store's clock.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RecordShown {
    id: String,
    state: StateName,
    fence: u64,
    attempt: u32,
    created_at_ms: u64,
    granted_at_ms: u64,
    run_until_ms: u64,
    /// Whether the last owner lives outside the service.
    remote: bool,
    /// The names of the steps that are on record.
    steps: Vec<String>,
    /// Changes with every change of the record.
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_until_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    completed_at_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<By>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Content>,
    /// What the owner reported after the record was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    late: Option<Content>,
}

impl RecordShown {
    fn of(id: &RecordId, record: &Record) -> Self {
        let mut shown = Self {
            id: id.to_string(),
            state: record.kind().into(),
            fence: record.fence.get(),
            attempt: record.attempt,
            created_at_ms: record.created_at.as_millis(),
            granted_at_ms: record.granted_at.as_millis(),
            run_until_ms: record.run_until.as_millis(),
            remote: record.remote,
            steps: record.steps.iter().map(|step| step.name.as_str().to_owned()).collect(),
            version: version(Some(record)),
            lease_until_ms: None,
            since_ms: None,
            expires_at_ms: record.expires_at().map(Timestamp::as_millis),
            completed_at_ms: None,
            by: None,
            outcome: None,
            late: None,
        };
        match &record.state {
            RecordState::InFlight { lease_until } => shown.lease_until_ms = Some(lease_until.as_millis()),
            RecordState::Unknown { since, .. } => shown.since_ms = Some(since.as_millis()),
            RecordState::Released { .. } => {}
            RecordState::Completed(completed) => {
                shown.completed_at_ms = Some(completed.at.as_millis());
                shown.by = Some(completed.by.into());
                shown.outcome = Some(Content::of(&completed.outcome));
                shown.late = completed.late.as_deref().map(Content::of);
            }
        }
        shown
    }
}

/// Which records are asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Only these states, separated by commas: `in-flight`, `completed`, `released`, `unknown`.
    #[param(example = "unknown,in-flight")]
    state: Option<String>,
    /// Only this principal's.
    principal: Option<String>,
    /// Only ids that begin with these digits.
    prefix: Option<String>,
    /// Only those first claimed before this.
    created_before_ms: Option<u64>,
    /// Only ids after this one: the `next` of the page before.
    after: Option<String>,
    /// How many at most; 100 when absent, 1000 at the most.
    limit: Option<usize>,
}

/// Part of a listing, in the order of ids.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ListPage {
    records: Vec<RecordShown>,
    /// What is there and cannot be read; absent when there is nothing of the kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableShown>,
    /// Where the next page starts; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A record that is there and cannot be read.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UnreadableShown {
    id: String,
    /// What is wrong with it.
    why: String,
}

impl From<Unreadable> for UnreadableShown {
    fn from(found: Unreadable) -> Self {
        Self { id: found.id.to_string(), why: found.why }
    }
}

/// For how long, and until what.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitParams {
    /// How long to wait, up to `60s`; `30s` when absent.
    #[param(value_type = Option<String>, example = "30s")]
    r#for: Option<Span>,
    /// Until the record's `version` is another one; until it is not in flight when absent.
    version: Option<String>,
}

/// What is remembered of one operation
#[utoipa::path(get, path = "/v1/claims/{id}", tag = "claims", params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")), security(("token" = [])),
    responses((status = 200, body = RecordShown, description = "The record"), Refusals))]
pub(crate) async fn show(
    May { namespace, .. }: May<{ CLAIM | READ }>,
    OfRecord(id): OfRecord,
) -> Result<axum::Json<RecordShown>, Refusal> {
    let record = namespace.bounded(namespace.store().lookup(&id)).await?;
    let record = record.ok_or_else(Refusal::absent)?;
    Ok(axum::Json(RecordShown::of(&id, &record)))
}

/// The outcome alone, as the bytes it is
#[utoipa::path(get, path = "/v1/claims/{id}/outcome", tag = "claims", params(("id" = String, Path, pattern = "^[0-9a-f]{64}$")),
    security(("token" = [])),
    responses((status = 200, description = "The bytes, with their own content type"), Refusals))]
pub(crate) async fn outcome(
    May { namespace, .. }: May<{ CLAIM | READ }>,
    OfRecord(id): OfRecord,
) -> Result<Response, Refusal> {
    let record = namespace.bounded(namespace.store().lookup(&id)).await?.ok_or_else(Refusal::absent)?;
    let RecordState::Completed(completed) = &record.state else {
        return Err(Refusal::new(ProblemKind::NotFound, "the operation has no outcome yet"));
    };
    let Some(typed) = Typed::of(&completed.outcome) else {
        return Err(Refusal::new(ProblemKind::NotFound, "the operation is done; its outcome was not kept"));
    };
    let content_type = HeaderValue::try_from(typed.content_type);
    let content_type = content_type.unwrap_or(HeaderValue::from_static("application/octet-stream"));
    // What a caller stored must not become a page of this service's origin.
    let nosniff = [("x-content-type-options", "nosniff"), ("content-security-policy", "sandbox")];
    Ok((StatusCode::OK, [(CONTENT_TYPE, content_type)], nosniff, typed.bytes).into_response())
}

/// Wait until an operation is no longer in flight
#[utoipa::path(get, path = "/v1/claims/{id}/wait", tag = "claims", params(("id" = String, Path, pattern = "^[0-9a-f]{64}$"), WaitParams),
    security(("token" = [])),
    responses((status = 200, body = RecordShown, description = "The record, as it is then"), Refusals))]
pub(crate) async fn wait(
    May { namespace, .. }: May<{ CLAIM | READ }>,
    OfRecord(id): OfRecord,
    Params(params): Params<WaitParams>,
    StillThere(gone): StillThere,
    State(api): State<Api>,
) -> Result<axum::Json<RecordShown>, Refusal> {
    let within = params.r#for.map_or(WAIT_FOR, Span::get);
    if within > api.settings().wait_max {
        return Err(Refusal::invalid("`for` is longer than 60s"));
    }
    let is_enough = |record: Option<&Record>| match (&params.version, record) {
        (Some(known), record) => version(record) != *known,
        (None, record) => record.is_none_or(|record| record.kind() != StateKind::InFlight),
    };
    let record = namespace.wait(&id, within, &gone, is_enough).await?.ok_or_else(Refusal::absent)?;
    Ok(axum::Json(RecordShown::of(&id, &record)))
}

/// Records of the namespace, page by page
#[utoipa::path(get, path = "/v1/claims", tag = "operators", params(ListParams), security(("token" = [])),
    responses((status = 200, body = ListPage, description = "A page"), Refusals))]
pub(crate) async fn list(
    May { namespace, .. }: May<READ>,
    Params(params): Params<ListParams>,
) -> Result<axum::Json<ListPage>, Refusal> {
    let states =
        params.state.iter().flat_map(|states| states.split(',')).map(state).collect::<Result<_, _>>()?;
    let scope = params.principal.as_ref().map(|principal| {
        let scope = Scope::new(std::sync::Arc::clone(&namespace.name), Principal::named(principal));
        scope.tag(namespace.engine.secret())
    });
    let listing = Listing {
        states,
        scope,
        prefix: params.prefix.map(|prefix| prefix.to_ascii_lowercase()),
        created_before: params.created_before_ms.map(Timestamp::from_millis),
        after: params.after.as_deref().map(record_id).transpose()?,
        limit: params.limit.filter(|limit| *limit > 0).unwrap_or(PAGE).min(PAGE_MAX),
    };
    let page = namespace.bounded(namespace.store().list(&listing)).await?;
    let records = page.records.iter().map(|(id, record)| RecordShown::of(id, record)).collect();
    let unreadable = page.unreadable.into_iter().map(Into::into).collect();
    Ok(axum::Json(ListPage { records, unreadable, next: page.next.map(|id| id.to_string()) }))
}

fn state(name: &str) -> Result<StateKind, Refusal> {
    let found = StateKind::ALL.into_iter().find(|kind| kind.to_string() == name);
    found.ok_or_else(|| {
        Refusal::invalid(format!("`{name}` is none of in-flight, completed, released and unknown"))
    })
}
