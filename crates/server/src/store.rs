//! From a store's URL to the store. Only here does the sidecar name concrete stores.

mod acknowledged;
mod bounded;
mod encryption;

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::StoreFuture;
use onlyonce_core::store::encrypted::{Misfit, misfit};
use onlyonce_core::store::tier::Tier;
use onlyonce_core::store::tiered::TierFigures;
use onlyonce_core::sweeper::growth::{Bounds, Growth};
use onlyonce_core::{
    MemoryLimits, MemoryStore, Recent, Secret, Store, StoreError, StoreErrorKind, SystemClock, Tiered,
};
use onlyonce_store_embedded::{EmbeddedStore, Options, Sync};
use onlyonce_store_postgres::{OpenErrorKind, PostgresStore};
use onlyonce_store_redis::{RedisStore, RedisTier};

use crate::config::{ConfigError, RedisSettings, StoreSettings, SyncMode};
use crate::metrics::{Metrics, Timed};

pub(crate) use acknowledged::{Replicated, presumed};
use bounded::Bounded;
pub(crate) use encryption::Encryption;
pub use encryption::{new_key_line, read_keys};

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The settings name none.
    Settings(ConfigError),
    /// It cannot be opened.
    Store(StoreError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Settings(error) => error.fmt(f),
            Self::Store(error) => f.write_str(&told(error)),
        }
    }
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// What is to be known of it beyond what it survives, for the promise.
    pub(crate) remark: Option<String>,
    pub(crate) tiers: Tiers,
    /// For routes that wait for replicas.
    pub(crate) replicated: Option<Replicated>,
    /// How much it holds of what it may.
    pub(crate) growth: Arc<Growth>,
    /// What is encrypted, and with which keys.
    pub(crate) encryption: Option<Encryption>,
}

impl Opened {
    /// A store that has the last word.
    pub(crate) fn alone(store: Arc<dyn Store>, remark: Option<String>) -> Self {
        Self {
            store,
            remark,
            tiers: Tiers::default(),
            replicated: None,
            growth: Arc::default(),
            encryption: None,
        }
    }

    /// Encrypts what it is given from here on, if `settings` say so.
    pub(crate) fn encrypted_as(self, settings: &StoreSettings) -> Result<Self, ConfigError> {
        match &settings.encryption {
            Some(settings) => Encryption::begin(self, settings),
            None => Ok(self),
        }
    }

    /// What the keys at hand do not fit, if anything.
    pub(crate) async fn misfit(&self) -> Result<Option<Misfit>, StoreError> {
        match &self.encryption {
            Some(encryption) => encryption.misfit().await,
            None => misfit(&*self.store, None).await,
        }
    }

    /// Puts `tier` in front.
    fn behind(mut self, name: &'static str, tier: Arc<dyn Tier>) -> Self {
        let tiered = Arc::new(Tiered::new(self.store, tier, Arc::new(SystemClock::new())));
        self.tiers.0.push((name, Arc::clone(&tiered)));
        Self { store: tiered, ..self }
    }
}

impl<S: Store> From<S> for Opened {
    fn from(store: S) -> Self {
        Self::alone(Arc::new(store), None)
    }
}

/// What stands in front of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tiers(Vec<(&'static str, Arc<Tiered>)>);

impl Tiers {
    /// Counts the same for whoever reads figures.
    pub(crate) fn count(&self, metrics: &Metrics) {
        for (tier, tiered) in &self.0 {
            metrics.tier(tier, tiered.figures());
        }
    }

    /// Says how much each of them was good for.
    pub(crate) fn log(&self) {
        for (tier, tiered) in &self.0 {
            let TierFigures { answered, asked } = tiered.figures();
            tracing::info!(tier, answered, passed_on = asked, "claims that the tier saw");
        }
    }
}

/// Opens the store that `settings` name, with the tiers in front of it, if its records can be read with the keys at hand. How
/// long the store behind them takes is measured where figures are read.
pub(crate) async fn open(
    settings: &StoreSettings,
    metrics: Option<&Arc<Metrics>>,
) -> Result<Opened, OpenError> {
    let opened = open_as_it_is(settings, metrics).await?;
    match &opened.encryption {
        Some(encryption) => encryption.admit_first().await?,
        None => {
            if let Some(misfit) = opened.misfit().await.map_err(OpenError::Store)? {
                return Err(encryption::refused(&misfit));
            }
        }
    }
    Ok(opened)
}

/// The same, whoever can read its records: operators erase what nobody can.
pub(crate) async fn open_as_it_is(
    settings: &StoreSettings,
    metrics: Option<&Arc<Metrics>>,
) -> Result<Opened, OpenError> {
    let mut opened = within_bounds(Box::pin(authority(settings)).await?, settings);
    if let Some(metrics) = metrics {
        opened.store = Arc::new(Timed::new(opened.store, Arc::clone(metrics)));
    }
    if let Some(url) = &settings.fast_tier {
        let tier = RedisTier::connect(url, &onlyonce_store_redis::Options::default()).await;
        let tier = tier.map_err(|error| match error.kind() {
            StoreErrorKind::Misuse => OpenError::Settings(ConfigError::field("store.cache", told(&error))),
            _ => OpenError::Store(error),
        })?;
        opened = opened.behind("cache", Arc::new(tier));
        let url = crate::config::without_password(url);
        opened.remark = Some(format!("behind the cache tier {url}, which may lose anything without harm"));
    }
    // ORDER: before the tier in this process, whose answers are in the clear, and behind all that others can look into.
    opened = opened.encrypted_as(settings).map_err(OpenError::Settings)?;
    // What is in memory anyway needs no second place there.
    if settings.recent_bytes_max > 0 && settings.url != "memory:" {
        let tier = Recent::new(Arc::new(SystemClock::new()), settings.recent_bytes_max);
        opened = opened.behind("recent", Arc::new(tier));
    }
    Ok(opened)
}

/// How long the store may take to answer one command; after that the command may have been applied. Callers have deadlines of
/// their own: this one only keeps a request from hanging for ever.
const STORE_WITHIN: Duration = Duration::from_secs(30);

/// The store's answer, if it comes in time.
pub(crate) async fn bounded<T>(asked: StoreFuture<'_, T>) -> Result<T, StoreError> {
    match tokio::time::timeout(STORE_WITHIN, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(StoreError::new(StoreErrorKind::TimedOut, "waiting for the store")),
    }
}

/// Keeps the store to its bounds. A store in memory does that itself, to the record, and is only watched.
fn within_bounds(mut opened: Opened, settings: &StoreSettings) -> Opened {
    let wide = |bound: Option<usize>| bound.map(|bound| bound as u64);
    let is_memory = settings.url == "memory:";
    let bounds = if is_memory {
        let limits = limits(settings);
        Bounds { records_max: wide(Some(limits.records_max)), bytes_max: wide(Some(limits.bytes_max)) }
    } else {
        Bounds { records_max: wide(settings.records_max), bytes_max: wide(settings.bytes_max) }
    };
    opened.growth = Arc::new(Growth::new(bounds));
    if opened.growth.is_bounded() && !is_memory {
        opened.store = Arc::new(Bounded::new(opened.store, Arc::clone(&opened.growth)));
        opened.replicated = opened.replicated.map(|replicated| replicated.within(&opened.growth));
    }
    opened
}

/// The error, and why.
fn told(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |why| format!("{error}: {why}"))
}

/// Opens the store that has the last word.
async fn authority(settings: &StoreSettings) -> Result<Opened, OpenError> {
    let wrong = |problem: String| OpenError::Settings(ConfigError::field("store.url", problem));
    let url = crate::config::without_password(&settings.url);
    match settings.url.split_once(':') {
        Some(("memory", "")) => Ok(memory(settings).into()),
        Some(("memory", _)) => Err(wrong(format!("`{url}`: memory: takes nothing after the colon"))),
        Some(("file", "")) => Err(wrong("file: needs a folder, as in file:./onlyonce-data".to_owned())),
        Some(("file", folder)) => embedded(settings, Path::new(folder)).map(Opened::from),
        Some(("redis" | "rediss" | "redis-sentinel" | "redis-cluster", _)) => redis(settings).await,
        Some(("postgres" | "postgresql", _)) => postgres(&settings.url).await.map(Opened::from),
        _ => Err(wrong(format!(
            "`{url}` names no store; there are memory:, file:DIR, redis://, rediss://, redis-sentinel://, \
             redis-cluster:// and postgres://"
        ))),
    }
}

fn limits(settings: &StoreSettings) -> MemoryLimits {
    let defaults = MemoryLimits::default();
    MemoryLimits {
        records_max: settings.records_max.unwrap_or(defaults.records_max),
        bytes_max: settings.bytes_max.unwrap_or(defaults.bytes_max),
    }
}

fn memory(settings: &StoreSettings) -> MemoryStore {
    MemoryStore::new(Arc::new(SystemClock::new()), limits(settings))
}

fn embedded(settings: &StoreSettings, folder: &Path) -> Result<EmbeddedStore, OpenError> {
    let options = Options {
        sync: match settings.sync {
            SyncMode::Always => Sync::Always,
            SyncMode::Outcome => Sync::Outcome,
            SyncMode::None => Sync::None,
        },
        memory_bytes_max: settings.memory_bytes_max,
        ..Options::default()
    };
    EmbeddedStore::open(folder, options).map_err(OpenError::Store)
}

async fn redis(settings: &StoreSettings) -> Result<Opened, OpenError> {
    let defaults = onlyonce_store_redis::Options::default();
    let RedisSettings { prefix, connections, allow_eviction, sweeps_at_once, lease_max } =
        settings.redis.clone();
    let options = onlyonce_store_redis::Options {
        prefix: prefix.unwrap_or(defaults.prefix),
        connections: connections.unwrap_or(defaults.connections),
        allow_eviction,
        // As long as any lease may last, so that no claim has to announce its own.
        quarantine: defaults.quarantine.max(lease_max),
        sweep_every: if sweeps_at_once { Duration::ZERO } else { defaults.sweep_every },
        ..defaults
    };
    let store = RedisStore::connect(&settings.url, options).await.map_err(OpenError::Store)?;
    let mut opened = Opened::alone(Arc::new(store.clone()), Some(store.survival().to_string()));
    opened.replicated = Some(Replicated::new(store));
    Ok(opened)
}

async fn postgres(url: &str) -> Result<PostgresStore, OpenError> {
    let refused = |error: onlyonce_store_postgres::OpenError| {
        let kind = match error.kind() {
            OpenErrorKind::Settings => {
                return OpenError::Settings(ConfigError::field("store.url", error.to_string()));
            }
            OpenErrorKind::Unavailable => StoreErrorKind::Unavailable,
            _ => StoreErrorKind::Unsupported,
        };
        OpenError::Store(StoreError::new(kind, "opening the store").because(error))
    };
    let options = onlyonce_store_postgres::Options::from_url(url).map_err(refused)?;
    PostgresStore::open(options).await.map_err(refused)
}

/// Reads the secret of the keyed hashes, if it is kept in a file.
pub(crate) fn secret(settings: &StoreSettings) -> Result<Option<Secret>, ConfigError> {
    let Some(path) = &settings.secret_file else { return Ok(None) };
    let wrong =
        |problem: &str| ConfigError::field("store.secret_file", format!("{}: {problem}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    refuse_readable_by_all(path).map_err(|problem| wrong(&problem))?;
    // 64 hexadecimal digits are what a record id is written as, too.
    let bytes: onlyonce_core::RecordId =
        text.trim().parse().map_err(|_| wrong("it does not hold 64 hexadecimal digits"))?;
    Ok(Some(Secret::new(*bytes.as_bytes())))
}

pub(crate) fn refuse_readable_by_all(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode();
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err("everybody on this machine can read it: chmod o-rwx".to_owned()),
    }
}
