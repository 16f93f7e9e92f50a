//! What engines elsewhere may read.

use std::time::Duration;

use axum::extract::State;
use onlyonce_core::record::codec;
use onlyonce_core::store::{BATCH_MAX, Listing};
use onlyonce_core::{Record, RecordId, ScopeTag, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::commands::{EncodedRecord, IdShape};
use super::shape::digits;
use crate::claims::content::{encoded, millis};
use crate::claims::keyed::record::UnreadableShown;
use crate::claims::openapi::Refusals;
use crate::claims::refusal::Refusal;
use crate::claims::request::{Json, May, StillThere, record_id};
use crate::claims::router::Api;
use crate::claims::tokens::STORE;
use crate::claims::wait::version;
use crate::operator::verdict::StateName;

/// How long a wait lasts when it does not say.
const WAIT_FOR: Duration = Duration::from_secs(30);

/// What there is to know before the first command.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct About {
    /// The version of this door.
    api: u32,
    namespace: String,
    durability: DurabilityShape,
    batch_max: usize,
    request_bytes_max: usize,
    wait_ms_max: u64,
}

/// What an answered command survives.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DurabilityShape {
    process_crash: bool,
    power_cut: bool,
    node_loss: bool,
}

/// A record in the bytes of the record format, as commands would read it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Found {
    /// In base64; `null` when there is none.
    record: Option<String>,
    version: String,
}

/// Which records are asked for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListShape {
    #[serde(default)]
    states: Vec<StateName>,
    /// The 16 hexadecimal digits that all ids of a scope end in.
    scope: Option<String>,
    prefix: Option<String>,
    created_before_ms: Option<u64>,
    after: Option<String>,
    limit: Option<usize>,
}

/// Part of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PageShape {
    records: Vec<EncodedRecord>,
    /// What is there and cannot be read.
    unreadable: Vec<UnreadableShown>,
    /// Where the next page starts; `null` on the last.
    next: Option<String>,
}

/// Nothing.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// How much is stored.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatsShape {
    in_flight: u64,
    completed: u64,
    released: u64,
    unknown: u64,
    unreadable: u64,
    bytes: u64,
    oldest_expired_ms: Option<u64>,
}

/// Until when to wait.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitShape {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    id: String,
    /// Until it is another one. Without it the present one is told at once.
    version: Option<String>,
    /// Up to 60000.
    within_ms: Option<u64>,
}

/// What was waited for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Waited {
    changed: bool,
    version: String,
}

/// What this door is, and what its commands survive
#[utoipa::path(get, path = "/v1/store", tag = "store", security(("token" = [])),
    responses((status = 200, body = About, description = "The facts"), Refusals))]
pub(crate) async fn about(
    May { namespace, .. }: May<STORE>,
    State(api): State<Api>,
) -> Result<axum::Json<About>, Refusal> {
    let durability = namespace.store().durability();
    Ok(axum::Json(About {
        api: 1,
        namespace: namespace.name.to_string(),
        durability: DurabilityShape {
            process_crash: durability.process_crash,
            power_cut: durability.power_cut,
            node_loss: durability.node_loss,
        },
        batch_max: BATCH_MAX,
        request_bytes_max: api.settings().request_bytes_max,
        wait_ms_max: millis(api.settings().wait_max),
    }))
}

fn encoded_record(id: &RecordId, record: &Record) -> String {
    encoded(&codec::encode(id, record))
}

/// One record
#[utoipa::path(post, path = "/v1/store/lookup", tag = "store", request_body = IdShape, security(("token" = [])),
    responses((status = 200, body = Found, description = "It, or nothing"), Refusals))]
pub(crate) async fn store_lookup(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<IdShape>,
) -> Result<axum::Json<Found>, Refusal> {
    let id = record_id(&shape.id)?;
    let record = namespace.bounded(namespace.store().lookup(&id)).await?;
    let version = version(record.as_ref());
    Ok(axum::Json(Found { record: record.map(|record| encoded_record(&id, &record)), version }))
}

/// A page of records
#[utoipa::path(post, path = "/v1/store/list", tag = "store", request_body = ListShape, security(("token" = [])),
    responses((status = 200, body = PageShape, description = "In the order of ids"), Refusals))]
pub(crate) async fn store_list(
    May { namespace, .. }: May<STORE>,
    Json(shape, _held): Json<ListShape>,
) -> Result<axum::Json<PageShape>, Refusal> {
    let listing = Listing {
        states: shape.states.into_iter().map(Into::into).collect(),
        scope: shape.scope.as_deref().map(scope).transpose()?,
        prefix: shape.prefix,
        created_before: shape.created_before_ms.map(Timestamp::from_millis),
        after: shape.after.as_deref().map(record_id).transpose()?,
        limit: shape.limit.unwrap_or_default(),
    };
    let page = namespace.bounded(namespace.store().list(&listing)).await?;
    let unreadable = page.unreadable.into_iter().map(Into::into).collect();
    let next = page.next.map(|id| id.to_string());
    let records = page
        .records
        .iter()
        .map(|(id, record)| EncodedRecord { id: id.to_string(), record: encoded_record(id, record) });
    Ok(axum::Json(PageShape { records: records.collect(), unreadable, next }))
}

fn scope(text: &str) -> Result<ScopeTag, Refusal> {
    let mut id = [0; 32];
    id[24..].copy_from_slice(&digits::<8>("scope", text)?);
    Ok(ScopeTag::of(&RecordId::from_bytes(id)))
}

/// How much is stored
#[utoipa::path(post, path = "/v1/store/stats", tag = "store", request_body = Nothing, security(("token" = [])),
    responses((status = 200, body = StatsShape, description = "Of this namespace"), Refusals))]
pub(crate) async fn store_stats(
    May { namespace, .. }: May<STORE>,
    Json(Nothing {}, _held): Json<Nothing>,
) -> Result<axum::Json<StatsShape>, Refusal> {
    let stats = namespace.bounded(namespace.store().stats()).await?;
    Ok(axum::Json(StatsShape {
        in_flight: stats.in_flight,
        completed: stats.completed,
        released: stats.released,
        unknown: stats.unknown,
        unreadable: stats.unreadable,
        bytes: stats.bytes,
        oldest_expired_ms: stats.oldest_expired.map(millis),
    }))
}

/// Wait for a record to change
#[utoipa::path(post, path = "/v1/store/wait", tag = "store", request_body = WaitShape, security(("token" = [])),
    responses((status = 200, body = Waited, description = "Whether it did"), Refusals))]
pub(crate) async fn store_wait(
    May { namespace, .. }: May<STORE>,
    StillThere(gone): StillThere,
    State(api): State<Api>,
    Json(shape, _held): Json<WaitShape>,
) -> Result<axum::Json<Waited>, Refusal> {
    let id = record_id(&shape.id)?;
    let within = shape.within_ms.map_or(WAIT_FOR, Duration::from_millis);
    if within > api.settings().wait_max {
        return Err(Refusal::invalid("`within_ms` is more than 60000"));
    }
    let Some(known) = shape.version else {
        let record = namespace.bounded(namespace.store().lookup(&id)).await?;
        return Ok(axum::Json(Waited { changed: false, version: version(record.as_ref()) }));
    };
    let record = namespace.wait(&id, within, &gone, |record| version(record) != known).await?;
    let version = version(record.as_ref());
    Ok(axum::Json(Waited { changed: version != known, version }))
}
