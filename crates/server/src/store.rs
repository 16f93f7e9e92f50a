//! From a store's URL to the store. The only file of the sidecar that names concrete stores.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onlyonce_core::{MemoryLimits, MemoryStore, Secret, Store, StoreError, StoreErrorKind, SystemClock};
use onlyonce_store_embedded::{EmbeddedStore, Options, Sync};
use onlyonce_store_postgres::{OpenErrorKind, PostgresStore};
use onlyonce_store_redis::RedisStore;

use crate::config::{ConfigError, StoreSettings, SyncMode};

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The settings name none.
    Settings(ConfigError),
    /// It cannot be opened.
    Store(StoreError),
}

/// An open store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// What is to be known of it beyond what it survives, for the promise.
    pub(crate) remark: Option<String>,
}

impl<S: Store> From<S> for Opened {
    fn from(store: S) -> Self {
        Self { store: Arc::new(store), remark: None }
    }
}

/// Opens the store that `settings` name.
pub(crate) async fn open(settings: &StoreSettings) -> Result<Opened, OpenError> {
    let wrong = |problem: String| OpenError::Settings(ConfigError::field("store.url", problem));
    let url = crate::config::without_password(&settings.url);
    match settings.url.split_once(':') {
        Some(("memory", "")) => Ok(memory(settings).into()),
        Some(("memory", _)) => Err(wrong(format!("`{url}`: memory: takes nothing after the colon"))),
        Some(("file", "")) => Err(wrong("file: needs a folder, as in file:./onlyonce-data".to_owned())),
        Some(("file", folder)) => embedded(settings, Path::new(folder)).map(Opened::from),
        Some(("redis" | "rediss" | "redis-sentinel" | "redis-cluster", _)) => {
            let options = onlyonce_store_redis::Options::default();
            let store = RedisStore::connect(&settings.url, options).await.map_err(OpenError::Store)?;
            let remark = Some(store.survival().to_string());
            Ok(Opened { store: Arc::new(store), remark })
        }
        Some(("postgres" | "postgresql", _)) => postgres(&settings.url).await.map(Opened::from),
        _ => Err(wrong(format!(
            "`{url}` names no store; there are memory:, file:DIR, redis://, rediss://, redis-sentinel://, \
             redis-cluster:// and postgres://"
        ))),
    }
}

fn memory(settings: &StoreSettings) -> MemoryStore {
    let defaults = MemoryLimits::default();
    let limits = MemoryLimits {
        records_max: settings.records_max.unwrap_or(defaults.records_max),
        bytes_max: settings.bytes_max.unwrap_or(defaults.bytes_max),
    };
    MemoryStore::new(Arc::new(SystemClock::new()), limits)
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

fn refuse_readable_by_all(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;

    let mode = fs::metadata(path).map_err(|error| error.to_string())?.permissions().mode();
    match mode & 0o007 {
        0 => Ok(()),
        _ => Err("everybody on this machine can read it: chmod o-rwx".to_owned()),
    }
}
