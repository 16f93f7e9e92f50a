//! From a store's URL to the store. The only file of the sidecar that names concrete stores.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use onlyonce_core::{MemoryLimits, MemoryStore, Secret, Store, StoreError, SystemClock};
use onlyonce_store_embedded::{EmbeddedStore, Options, Sync};

use crate::config::{ConfigError, StoreSettings, SyncMode};

/// Why there is no store.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The settings name none.
    Settings(ConfigError),
    /// It cannot be opened.
    Store(StoreError),
}

/// Opens the store that `settings` name.
pub(crate) fn open(settings: &StoreSettings) -> Result<Arc<dyn Store>, OpenError> {
    let wrong = |problem: String| OpenError::Settings(ConfigError::field("store.url", problem));
    let url = crate::config::without_password(&settings.url);
    match settings.url.split_once(':') {
        Some(("memory", "")) => {
            let defaults = MemoryLimits::default();
            let limits = MemoryLimits {
                records_max: settings.records_max.unwrap_or(defaults.records_max),
                bytes_max: settings.bytes_max.unwrap_or(defaults.bytes_max),
            };
            Ok(Arc::new(MemoryStore::new(Arc::new(SystemClock::new()), limits)))
        }
        Some(("memory", _)) => Err(wrong(format!("`{url}`: memory: takes nothing after the colon"))),
        Some(("file", "")) => Err(wrong("file: needs a folder, as in file:./onlyonce-data".to_owned())),
        Some(("file", folder)) => {
            let options = Options {
                sync: match settings.sync {
                    SyncMode::Always => Sync::Always,
                    SyncMode::Outcome => Sync::Outcome,
                    SyncMode::None => Sync::None,
                },
                memory_bytes_max: settings.memory_bytes_max,
                ..Options::default()
            };
            let store = EmbeddedStore::open(Path::new(folder), options).map_err(OpenError::Store)?;
            Ok(Arc::new(store))
        }
        Some((
            scheme @ ("redis" | "rediss" | "redis-sentinel" | "redis-cluster" | "postgres" | "postgresql"),
            _,
        )) => Err(wrong(format!("{scheme}:// is not in this build; there are memory: and file:DIR"))),
        _ => Err(wrong(format!("`{url}` names no store; there are memory: and file:DIR"))),
    }
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
