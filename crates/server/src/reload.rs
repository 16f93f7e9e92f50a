//! Puts changed rules into force, on SIGHUP or when the file changes, without dropping a request.
//!
//! Only `[defaults]`, `[[route]]` and the keys of the encryption can change while the sidecar runs. A file that cannot be used is refused whole,
//! and what was in force stays in force.

mod keys;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use onlyonce_core::Engine;
use onlyonce_http::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use self::keys::Keys;
use crate::config::{Config, Sources};
use crate::promise::Promise;
use crate::sidecar::{check_config, check_rules};
use crate::store::Encryption;

/// Editors write a file in several steps; this long after the last one it is read.
const SETTLE_FOR: Duration = Duration::from_millis(100);

/// What it takes to read the configuration again.
pub(crate) struct Reload {
    sources: Sources,
    /// In force: the rules of the last file that was taken, and all else as it was at the start.
    config: Config,
    engine: Engine,
    pub(crate) in_force: InForce,
    keys: Keys,
    watching: Watching,
}

/// What a reload replaces.
pub(crate) struct InForce {
    pub(crate) rules: Handle,
    pub(crate) promise: Arc<ArcSwap<Promise>>,
    /// The configuration as it is shown, without its secrets.
    pub(crate) configuration: Arc<ArcSwap<String>>,
}

/// Ears for reasons to reload, and what the file said when they were opened.
pub(crate) struct Watching {
    hangup: Option<Signal>,
    changed: mpsc::Receiver<()>,
    text: Option<String>,
    /// Changes are told for as long as these live.
    _tell: (mpsc::Sender<()>, Option<RecommendedWatcher>),
}

impl Watching {
    /// Listens from here on. Call it before the configuration is read: a change after that is then never missed, and a
    /// SIGHUP that nobody listens for would end the process.
    pub(crate) fn begin(sources: &Sources) -> Self {
        let hangup = signal(SignalKind::hangup()).ok();
        let (changes, changed) = mpsc::channel(1);
        let watcher = sources.file.as_deref().and_then(|path| watcher(path, changes.clone()));
        // ORDER: watch first, read second: whatever comes in between is told.
        let text = sources.file.as_deref().and_then(|path| fs::read_to_string(path).ok());
        Self { hangup, changed, text, _tell: (changes, watcher) }
    }

    /// Whether the text of `file` is another than when this was last asked. The folder has other files, and a touched
    /// file is not a changed one.
    fn has_new_text(&mut self, file: Option<&Path>) -> bool {
        // While a file is being replaced there is none; the next event tells.
        let Some(Ok(text)) = file.map(fs::read_to_string) else { return false };
        let is_new = self.text.as_ref() != Some(&text);
        self.text = Some(text);
        is_new
    }
}

impl Reload {
    pub(crate) fn new(
        watching: Watching,
        sources: Sources,
        config: Config,
        engine: Engine,
        in_force: InForce,
        encryption: Option<Encryption>,
    ) -> Self {
        Self { sources, config, engine, in_force, keys: Keys::new(encryption), watching }
    }

    /// Waits for reasons to reload, for ever. Cancel it to stop.
    pub(crate) async fn watch(mut self) {
        let Some(mut hangup) = self.watching.hangup.take() else {
            return tracing::warn!("SIGHUP cannot be listened for: the configuration is not reloaded");
        };
        loop {
            tokio::select! {
                _ = hangup.recv() => {
                    self.watching.has_new_text(self.sources.file.as_deref());
                    self.apply().await;
                }
                _ = self.watching.changed.recv() => {
                    // ORDER: let it settle, forget what else came meanwhile, then read: a later change comes again.
                    tokio::time::sleep(SETTLE_FOR).await;
                    while self.watching.changed.try_recv().is_ok() {}
                    if self.watching.has_new_text(self.sources.file.as_deref()) {
                        self.apply().await;
                    }
                }
                () = self.keys.due() => {
                    if self.keys.again().await {
                        self.promise_anew();
                    }
                }
            }
        }
    }

    /// Reads it again now.
    pub(crate) async fn apply(&mut self) {
        self.keys.reload().await;
        match self.read() {
            Ok(config) => {
                tracing::info!(routes = config.merged.route.len(), "configuration reloaded");
                self.in_force.configuration.store(Arc::new(config.show()));
                self.config = config;
            }
            Err(error) => tracing::error!("the new configuration is refused, the old one stays: {error}"),
        }
        // Also of keys that changed, whatever became of the rules.
        self.promise_anew();
    }

    /// Promises what can be promised now.
    fn promise_anew(&self) {
        let in_force = &self.in_force.promise;
        let remark = in_force.load().store_remark.clone();
        let promise = Promise::new(&self.config, self.engine.store().as_ref(), remark)
            .encrypted(self.keys.encryption());
        if promise != **in_force.load() {
            tracing::warn!("the promise in force has changed:\n{promise}");
            in_force.store(Arc::new(promise));
        }
    }

    /// Puts the rules of the file into force, if they can be kept: what is in force then.
    fn read(&self) -> Result<Config, String> {
        let next = self.sources.read().map_err(|error| error.to_string())?;
        let config = self.config.with_rules_of(&next);
        // By what the next start would make of the file, and beside all that stays as it was until then.
        check_config(&next, &self.engine).map_err(|error| error.to_string())?;
        let beside = |error| format!("beside what stays until a restart: {error}");
        check_rules(&config, &config.settings().map_err(beside)?).map_err(beside)?;
        self.in_force
            .rules
            .replace(&config.merged.defaults, &config.merged.route)
            .map_err(|error| error.to_string())?;
        for section in config.sections_that_differ(&next) {
            tracing::warn!(section, "changed, but takes effect only after a restart");
        }
        Ok(config)
    }
}

/// Watches the folder of `path`: editors and orchestrators replace files, and a watch on a replaced file sees nothing.
fn watcher(path: &Path, changes: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let watching = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // One that is not read yet stands for all.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = changes.try_send(());
        }
    })
    .and_then(|mut watcher| watcher.watch(&folder, RecursiveMode::NonRecursive).map(|()| watcher));
    watching
        .inspect_err(
            |error| tracing::warn!(%error, "the configuration file is not watched; SIGHUP reloads it"),
        )
        .ok()
}
