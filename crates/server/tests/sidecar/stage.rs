//! A sidecar in front of an application, for one test.

use std::sync::Arc;

use onlyonce_core::Engine;
use onlyonce_http::rules::{PrincipalRule, Span};
use onlyonce_server::config::{File, Sources};
use onlyonce_server::{ListenAddress, Sidecar};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::application::Application;
use crate::client::Wire;

pub(crate) struct Stage {
    pub(crate) application: Arc<Application>,
    pub(crate) address: ListenAddress,
    pub(crate) engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<()>,
}

/// Flags for a sidecar on a free port with a store in memory.
pub(crate) fn flags(upstream: &str) -> File {
    let mut flags = File::default();
    flags.proxy.listen = Some("127.0.0.1:0".parse().unwrap());
    flags.proxy.upstream = Some(upstream.to_owned());
    be_patient(&mut flags);
    flags.store.answer_within = Some(Span::from_secs(30));
    flags.store.url = Some("memory:".to_owned());
    flags.defaults.principal = Some(PrincipalRule::Shared);
    flags
}

/// A loaded machine may let anybody wait for seconds: a bound is short only in the test that is about it.
pub(crate) fn be_patient(flags: &mut File) {
    let proxy = &mut flags.proxy;
    for bound in [
        &mut proxy.drain_within,
        &mut proxy.first_byte_within,
        &mut proxy.head_within,
        &mut proxy.body_pause_max,
        &mut proxy.idle_within,
        &mut proxy.write_pause_max,
        &mut proxy.upstream_connect_within,
        &mut proxy.upstream_within,
        &mut proxy.upstream_pause_max,
    ] {
        *bound = Some(Span::from_secs(120));
    }
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut File)) -> Self {
        let application = Application::start().await;
        let mut flags = flags(&application.url());
        change(&mut flags);
        Self::start(application, Sources { flags, ..Sources::default() }).await
    }

    pub(crate) async fn start(application: Arc<Application>, sources: Sources) -> Self {
        Self::run(application, Sidecar::start(sources).await.unwrap())
    }

    pub(crate) fn run(application: Arc<Application>, sidecar: Sidecar) -> Self {
        let (address, engine) = (sidecar.address().clone(), sidecar.engine().clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(sidecar.run_until(async move { drop(stopped.await) }));
        Self { application, address, engine, stop: Some(stop), running }
    }

    pub(crate) async fn connect(&self) -> Wire {
        Wire::connect(&self.address).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(&self, request: impl AsRef<[u8]>) -> crate::client::Answer {
        let mut wire = self.connect().await;
        wire.write(request).await;
        wire.answer().await.expect("an answer")
    }

    /// Tells the sidecar to stop, and goes on at once.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(mut self) -> Arc<Application> {
        self.begin_stop();
        self.running.await.unwrap();
        self.application
    }
}

/// A POST with a key.
pub(crate) fn post(path: &str, key: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: shop.test\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
