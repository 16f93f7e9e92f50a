//! `[consume]`: where messages come from, who handles them, and how they are treated.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use http::uri::{Parts, PathAndQuery};
use onlyonce_core::{Lease, Policy, Retention, UnknownPolicy};
use onlyonce_http::rules::{Span, Unknown};
use onlyonce_inbox::consumer::message_policy;
use onlyonce_inbox::{Backoff, IdRule, IdRules, OnMismatch, OnMissingId, OnShortRetention};
use serde::{Deserialize, Serialize};

use super::admin::AdminSettings;
use super::settings::{needed, span, store};
use super::{Config, ConfigError, OtlpSettings, StoreSettings, SyncMode, UpstreamUrl};

/// `[consume]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumeSection {
    /// Where messages come from: `redis-stream://`, `nats://`, `amqp://` or `kafka://`. No default.
    pub source: Option<String>,
    /// Who handles them: the URL that each is posted to. No default.
    pub handler: Option<String>,
    /// Whose records these are: each name gets every message once. Default `onlyonce`; also the group at the broker.
    pub name: Option<String>,
    /// Where ids are looked for, in this order: `header:NAME`, `cloudevents`, `json:POINTER`, `position`. Default
    /// `["header:event-id", "cloudevents", "position"]`.
    pub id: Option<Vec<String>>,
    /// What becomes of a message that nothing names: `dead-letter` or `run`. Default `dead-letter`.
    pub on_missing_id: Option<MissingId>,
    /// What becomes of a message whose id was used for another one: `dead-letter` or `report`. Default `dead-letter`.
    pub on_mismatch: Option<Mismatch>,
    /// When records would be forgotten before the source stops delivering again: `refuse` or `warn`. Default `refuse`.
    pub on_short_retention: Option<ShortRetention>,
    /// How many messages are handled at a time. Default 64.
    pub concurrency: Option<usize>,
    /// How many messages are claimed together at the most. Default 256.
    pub batch_max: Option<usize>,
    /// How often a message is tried before it goes to the dead letters. Default 5.
    pub attempts_max: Option<u32>,
    /// How soon a failed message is tried again; doubled each time. Default `1s`.
    pub retry_after: Option<Span>,
    /// The longest time between two tries. Default `5m`.
    pub retry_after_max: Option<Span>,
    /// When nobody knows whether the handler did it: `rerun`, `hold` or `seal`. Default `rerun`.
    pub unknown: Option<Unknown>,
    /// How long a dead process holds its messages up. Default `30s`.
    pub lease: Option<Span>,
    /// How long a handled message is remembered. Default 30 days.
    pub retention: Option<Span>,
    /// How long the handler may take to answer, its body included. Default `60s`.
    pub handler_within: Option<Span>,
    /// The handler's certificate must be signed by one of these (PEM). Default: the machine's.
    pub handler_ca: Option<PathBuf>,
    /// How long a shutdown waits for handlers. Default `20s`.
    pub drain_within: Option<Span>,
}

/// See [`OnMissingId`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingId {
    /// It cannot be told from its duplicates.
    #[default]
    DeadLetter,
    /// At every delivery.
    Run,
}

/// See [`OnMismatch`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mismatch {
    /// Where someone finds it.
    #[default]
    DeadLetter,
    /// Say so, and acknowledge it.
    Report,
}

/// See [`OnShortRetention`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShortRetention {
    /// Do not start.
    #[default]
    Refuse,
    /// Say so, and start.
    Warn,
}

/// What a consumer needs to know.
#[derive(Debug, Clone)]
pub struct ConsumeSettings {
    pub(crate) source: String,
    pub(crate) handler: UpstreamUrl,
    /// As it was written: some handlers answer under `/orders/` only, and not under `/orders`.
    pub(crate) handler_path: PathAndQuery,
    pub(crate) handler_ca: Option<PathBuf>,
    pub(crate) handler_within: Duration,
    pub(crate) name: String,
    pub(crate) ids: IdRules,
    pub(crate) on_missing_id: OnMissingId,
    pub(crate) on_mismatch: OnMismatch,
    pub(crate) on_short_retention: OnShortRetention,
    pub(crate) concurrency: usize,
    pub(crate) batch_max: usize,
    pub(crate) backoff: Backoff,
    pub(crate) policy: Policy,
    pub(crate) drain_within: Duration,
    pub(crate) store: StoreSettings,
    pub(crate) admin: Option<AdminSettings>,
    pub(crate) otlp: OtlpSettings,
}

/// The lowest layer.
pub(super) fn defaults() -> ConsumeSection {
    ConsumeSection {
        name: Some("onlyonce".to_owned()),
        id: Some(["header:event-id", "cloudevents", "position"].map(str::to_owned).into()),
        concurrency: Some(64),
        batch_max: Some(256),
        attempts_max: Some(5),
        retry_after: Some(Span::from_secs(1)),
        retry_after_max: Some(Span::from_secs(300)),
        unknown: Some(Unknown::Rerun),
        lease: Some(Span::from_secs(30)),
        retention: Some(Span::from_secs(30 * 86_400)),
        handler_within: Some(Span::from_secs(60)),
        drain_within: Some(Span::from_secs(20)),
        ..ConsumeSection::default()
    }
}

impl Config {
    /// Whose records a consumer's are.
    pub(crate) fn consumer_name(&self) -> &str {
        self.merged.consume.name.as_deref().unwrap_or_default()
    }

    /// Checks everything that a consumer needs.
    pub fn consume_settings(&self) -> Result<ConsumeSettings, ConfigError> {
        let section = &self.merged.consume;
        let Some(source) = section.source.clone() else {
            return Err(ConfigError::field("consume.source", "is not set: where do messages come from?"));
        };
        let Some(handler) = &section.handler else {
            return Err(ConfigError::field("consume.handler", "is not set: who handles the messages?"));
        };
        let handler_within = span("consume.handler_within", section.handler_within)?;
        let policy = policy(section, handler_within)?;
        let mut store = store(&self.merged)?;
        store.redis.lease_max = policy.terms().lease.get();
        if store.sync == SyncMode::Outcome && policy.terms().unknown != UnknownPolicy::Rerun {
            let problem = "`outcome` loses grants in a power cut, so that consume.unknown must be \"rerun\"";
            return Err(ConfigError::field("store.sync", problem));
        }
        let policy = policy.answer_within(store.answer_within);
        let (handler, handler_path) = handler_url(handler)?;
        Ok(ConsumeSettings {
            source,
            handler,
            handler_path,
            handler_ca: section.handler_ca.clone(),
            handler_within,
            name: needed("consume.name", section.name.clone())?,
            ids: ids(section.id.as_deref().unwrap_or_default())?,
            on_missing_id: match section.on_missing_id.unwrap_or_default() {
                MissingId::DeadLetter => OnMissingId::DeadLetter,
                MissingId::Run => OnMissingId::Run,
            },
            on_mismatch: match section.on_mismatch.unwrap_or_default() {
                Mismatch::DeadLetter => OnMismatch::DeadLetter,
                Mismatch::Report => OnMismatch::Report,
            },
            on_short_retention: match section.on_short_retention.unwrap_or_default() {
                ShortRetention::Refuse => OnShortRetention::Refuse,
                ShortRetention::Warn => OnShortRetention::Warn,
            },
            concurrency: needed("consume.concurrency", section.concurrency)?,
            batch_max: needed("consume.batch_max", section.batch_max)?,
            backoff: Backoff {
                first: span("consume.retry_after", section.retry_after)?,
                longest: span("consume.retry_after_max", section.retry_after_max)?,
            },
            policy,
            drain_within: section.drain_within.map_or(Duration::ZERO, Span::get),
            store,
            admin: self.admin_settings()?,
            otlp: self.otlp_settings()?,
        })
    }
}

fn policy(section: &ConsumeSection, handler_within: Duration) -> Result<Policy, ConfigError> {
    let wrong = |field: &str, error: onlyonce_core::MisuseError| ConfigError::field(field, error.to_string());
    let lease = Lease::new(span("consume.lease", section.lease)?);
    let retention = Retention::new(span("consume.retention", section.retention)?);
    let unknown = match section.unknown.unwrap_or(Unknown::Rerun) {
        Unknown::Rerun => UnknownPolicy::Rerun,
        Unknown::Hold => UnknownPolicy::Hold,
        Unknown::Seal => UnknownPolicy::Seal,
        Unknown::Query => {
            return Err(ConfigError::field("consume.unknown", "there is nobody to ask: rerun, hold or seal"));
        }
    };
    Ok(message_policy()
        .lease(lease.map_err(|error| wrong("consume.lease", error))?)
        .retention(retention.map_err(|error| wrong("consume.retention", error))?)
        .unknown(unknown)
        .attempts_max(needed("consume.attempts_max", section.attempts_max)?)
        // The handler is given up before the execution is: else nobody would say why.
        .run_max(handler_within + CONNECT_WITHIN + Duration::from_secs(10)))
}

/// The host of a handler, and what is asked of it.
fn handler_url(text: &str) -> Result<(UpstreamUrl, PathAndQuery), ConfigError> {
    const FIELD: &str = "consume.handler";
    let root = || PathAndQuery::from_static("/");
    let parts = text.parse::<Uri>().map(Uri::into_parts);
    let Ok(Parts { scheme: Some(scheme), authority: Some(authority), path_and_query, .. }) = parts else {
        return Ok((UpstreamUrl::parse(FIELD, text)?, root()));
    };
    let host = UpstreamUrl::parse(FIELD, &format!("{scheme}://{authority}"))?;
    Ok((host, path_and_query.unwrap_or_else(root)))
}

/// How long a connection to the handler may take.
pub(crate) const CONNECT_WITHIN: Duration = Duration::from_secs(5);

fn ids(texts: &[String]) -> Result<IdRules, ConfigError> {
    const FORMS: &str = "is none of header:NAME, cloudevents, json:POINTER and position";
    let rule = |text: &String| match text.split_once(':') {
        None if text == "cloudevents" => Ok(IdRule::CloudEvents),
        None if text == "position" => Ok(IdRule::Position),
        Some(("header", name)) if !name.is_empty() => Ok(IdRule::Header(name.to_owned())),
        Some(("json", pointer)) if pointer.starts_with('/') => Ok(IdRule::Json(pointer.to_owned())),
        _ => Err(ConfigError::field("consume.id", format!("`{text}` {FORMS}"))),
    };
    if texts.is_empty() {
        return Err(ConfigError::field("consume.id", "is empty: nothing would name a message"));
    }
    Ok(IdRules::new(texts.iter().map(rule).collect::<Result<Vec<_>, _>>()?))
}
