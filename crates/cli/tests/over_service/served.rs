//! A store under test behind the service, reached through the client.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_client::ClaimsClient;
use onlyonce_core::{RecordId, Store};
use onlyonce_server::Claims;
use onlyonce_server::config::{File, Sources};
use onlyonce_testkit::Fixture;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A fixture behind a service of its own. Service and connections live on a runtime of their own: some clauses block
/// theirs.
pub(crate) struct Served<F> {
    running: Mutex<Option<Running>>,
    runtime: Option<Runtime>,
    inner: F,
}

struct Running {
    client: Arc<ClaimsClient>,
    stop: oneshot::Sender<()>,
    stopped: JoinHandle<()>,
}

impl<F: Fixture> Served<F> {
    pub(crate) async fn new(inner: F) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let served = Self { running: Mutex::new(None), runtime: Some(runtime), inner };
        served.start().await;
        served
    }

    async fn start(&self) {
        let store = self.inner.store();
        let starting = async move {
            let mut flags = File::default();
            flags.serve.listen = Some("127.0.0.1:0".parse().unwrap());
            flags.store.url = Some("memory:".into());
            // The suite sweeps by itself, and counts.
            flags.sweep.enabled = Some(false);
            let sources = Sources { flags, ..Sources::default() };
            let claims = Claims::start_over(&sources, vec![("default".into(), store)]).await.unwrap();
            let url = format!("http://{}", claims.address());
            let (stop, stopped) = oneshot::channel();
            let running = tokio::spawn(async move {
                claims.run_until(async { drop(stopped.await) }).await;
            });
            // A loaded machine is no service that hangs.
            let client = ClaimsClient::builder(url).within(Duration::from_mins(1)).connect().await.unwrap();
            Running { client: Arc::new(client), stop, stopped: running }
        };
        let runtime = self.runtime.as_ref().unwrap();
        let running = runtime.spawn(starting).await.unwrap();
        *self.running.lock().unwrap() = Some(running);
    }
}

impl<F> Drop for Served<F> {
    fn drop(&mut self) {
        // A runtime may not be dropped by a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl<F: Fixture> Fixture for Served<F> {
    fn store(&self) -> Arc<dyn Store> {
        let running = self.running.lock().unwrap();
        Arc::clone(&running.as_ref().unwrap().client) as Arc<dyn Store>
    }

    async fn advance(&self, by: Duration) {
        self.inner.advance(by).await;
    }

    async fn restart(&self) -> bool {
        let Running { client, stop, stopped } = self.running.lock().unwrap().take().unwrap();
        drop(client);
        let _ = stop.send(());
        stopped.await.unwrap();
        let restarted = self.inner.restart().await;
        self.start().await;
        restarted
    }

    async fn damage(&self, id: &RecordId) -> bool {
        self.inner.damage(id).await
    }
}
