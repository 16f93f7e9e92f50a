//! A claims API that runs until its value goes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{MemoryLimits, MemoryStore, Store};
use onlyonce_server::Claims;
use onlyonce_server::config::{File, Sources};
use onlyonce_testkit::ManualClock;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Caller, PATIENCE, owner};

/// The service, its store's clock, and a caller without a token.
pub(crate) struct Stage {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) address: String,
    pub(crate) caller: Caller,
    waiting: Box<dyn Fn() -> usize + Send + Sync>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
    _folder: TempDir,
}

/// What can be set.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) tokens: Option<&'static str>,
    pub(crate) flags: File,
}

impl Stage {
    /// A service of everybody's.
    pub(crate) async fn open() -> Self {
        Self::set(Setup::default()).await
    }

    /// A service of these tokens'.
    pub(crate) async fn of(tokens: &'static str) -> Self {
        Self::set(Setup { tokens: Some(tokens), ..Setup::default() }).await
    }

    pub(crate) async fn set(setup: Setup) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::default());
        let limits = MemoryLimits::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::clone(&clock) as _, limits));
        let mut flags = setup.flags;
        flags.serve.listen = Some("127.0.0.1:0".parse().unwrap());
        flags.store.url = Some("memory:".to_owned());
        if let Some(tokens) = setup.tokens {
            let path = folder.path().join("tokens.toml");
            fs::write(&path, tokens).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            flags.serve.tokens_file = Some(path);
        }
        let sources = Sources { flags, ..Sources::default() };
        let stores = vec![("default".to_owned(), Arc::clone(&store))];
        let claims = Claims::start_over(&sources, stores).await.unwrap();
        let address = claims.address().to_string();
        let waiting = Box::new(claims.waiting());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(claims.run_until(async { drop(stopped.await) }));
        let caller = Caller::new(&address);
        Self { clock, store, address, caller, waiting, stop: Some(stop), running, _folder: folder }
    }

    /// Claims `key` and expects the grant: the id, and what its holder shows.
    pub(crate) async fn granted(&self, key: &str) -> (String, Value) {
        granted(&self.caller, key).await
    }

    /// Waits until as many wait for a record.
    pub(crate) async fn waiters(&self, count: usize) {
        let looking = async {
            while (self.waiting)() != count {
                tokio::time::sleep(Duration::from_millis(2)).await; // tidy: sleep because nobody tells who begins to wait
            }
        };
        let within = tokio::time::timeout(PATIENCE, looking).await;
        assert!(within.is_ok(), "{} wait, not {count}", (self.waiting)());
    }

    /// Tells it to stop.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Claims `key` and expects the grant.
pub(crate) async fn granted(caller: &Caller, key: &str) -> (String, Value) {
    let owner = owner();
    let answer = caller.ask("/v1/claims", json!({ "key": key, "owner": owner })).await;
    assert_eq!(answer["answer"], "granted", "{answer}");
    (answer["id"].as_str().unwrap().to_owned(), json!({ "owner": owner, "fence": answer["fence"] }))
}

/// The members of both.
pub(crate) fn with(one: &Value, other: &Value) -> Value {
    let mut both = one.clone();
    both.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    both
}
