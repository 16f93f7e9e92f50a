//! `[sweep]`: how expired records are removed.

use onlyonce_core::Lease;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::sweeper::Plan;
use onlyonce_http::rules::Span;
use serde::{Deserialize, Serialize};

use super::settings::{needed, span};
use super::{ConfigError, File};

/// `[sweep]`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SweepSection {
    /// Whether this process takes part. Default `true`; `false` where `onlyonce sweep` does it, from cron. No other process can
    /// sweep `file:` and `memory:`.
    pub enabled: Option<bool>,
    /// How often it is looked for expired records once none are left. Default `1s`.
    pub every: Option<Span>,
    /// How many records one batch touches at the most. Default 500; fewer where batches take long.
    pub batch: Option<usize>,
    /// The shortest pause between two batches. Default `10ms`; four times what the batch took if that is longer.
    pub pause: Option<Span>,
    /// How long a sweeper that died keeps others from taking over. Default `30s`.
    pub lease: Option<Span>,
    /// The hours, in UTC, in which expired records are removed: `22:00-06:00`. Default: all.
    pub quiet: Option<String>,
}

/// The lowest layer.
pub(super) fn defaults() -> SweepSection {
    let Plan { enabled, every, batch, pause, lease, .. } = Plan::default();
    SweepSection {
        enabled: Some(enabled),
        every: Some(Span(every)),
        batch: Some(batch.get()),
        pause: Some(Span(pause)),
        lease: Some(Span(lease.get())),
        quiet: None,
    }
}

/// How a store is swept.
pub(super) fn plan(section: &SweepSection) -> Result<Plan, ConfigError> {
    fn wrong(field: &str) -> impl Fn(onlyonce_core::MisuseError) -> ConfigError {
        move |error| ConfigError::field(field, error.to_string())
    }
    let plan = Plan {
        enabled: section.enabled.unwrap_or(true),
        every: span("sweep.every", section.every)?,
        batch: SweepBudget::new(needed("sweep.batch", section.batch)?).map_err(wrong("sweep.batch"))?,
        pause: needed("sweep.pause", section.pause)?.get(),
        lease: Lease::new(span("sweep.lease", section.lease)?).map_err(wrong("sweep.lease"))?,
        quiet: section.quiet.as_deref().map(str::parse).transpose().map_err(wrong("sweep.quiet"))?,
        ..Plan::default()
    };
    plan.check().map_err(wrong("sweep"))?;
    Ok(plan)
}

/// What it means that nobody sweeps a store, where no other process can. It is no mistake: such a store drops what has
/// expired once it has no room, and `onlyonce records purge` may be enough for some.
pub(super) fn about_nobody(file: &File) -> Option<String> {
    let kept = match file.store.url.as_deref()?.split_once(':')?.0 {
        "file" => "on the disk until that is full",
        "memory" => "in memory until records_max or bytes_max is reached",
        _ => return None,
    };
    (file.sweep.enabled == Some(false)).then(|| {
        format!(
            "[sweep] enabled = false, and no other process can sweep this store: what has expired stays {kept}, or until \
             `onlyonce records purge`"
        )
    })
}
