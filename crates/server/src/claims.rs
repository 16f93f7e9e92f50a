//! The claims API: the core as a small HTTP+JSON service, so that any language, job runner or cron can ask "may I run this?".
//!
//! Two doors over the same records: `keyed` for callers who have a key, `remote` for engines that live elsewhere. Each
//! namespace has a store place of its own, so that nothing can cross from one to another. No work runs here: owners do it
//! where they are, and their leases hold across a restart of this process.

mod content;
mod front;
mod keyed;
mod namespace;
mod openapi;
mod quota;
mod remote;
mod request;
mod router;
mod tokens;
mod wait;

use std::sync::Arc;

use onlyonce_core::{Store, Sweeper};
use serde_json::json;

pub(crate) use self::content::{Typed, decoded, encoded, millis};
use self::front::ClaimsFront;
use self::namespace::Namespaces;
pub(crate) use self::namespace::place;
use self::router::Api;
use self::tokens::Tokens;
use crate::admin::{self, AdminDoor, Showing};
use crate::census::Census;
use crate::config::{ServeSettings, Sources};
use crate::listen::{Door, ListenAddress};
use crate::metrics::StoreFigures;
use crate::otlp::Otlp;
use crate::refusal;
use crate::sidecar::{self, Signals, StartError, StopTwice, metrics};
use crate::store::Tiers;
use crate::sweep::{AtWork, sweeper};
use crate::tls;

/// A claims API that listens. It serves once it runs.
pub struct Claims {
    settings: Arc<ServeSettings>,
    namespaces: Arc<Namespaces>,
    tiers: Vec<Tiers>,
    front: ClaimsFront,
    door: Door<ClaimsFront>,
    admin: Option<AdminDoor>,
    sweepers: Vec<Sweeper>,
    promise: String,
    otlp: Otlp,
}

impl Claims {
    /// Reads configuration and tokens, opens the stores and listens. Nothing is started when anything of it cannot work.
    pub async fn start(sources: &Sources) -> Result<Self, StartError> {
        Self::start_over(sources, Vec::new()).await
    }

    /// The same over stores that are open already, by namespace; those of other namespaces are opened as configured.
    pub async fn start_over(
        sources: &Sources,
        stores: Vec<(String, Arc<dyn Store>)>,
    ) -> Result<Self, StartError> {
        let config = sources.read()?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let settings = Arc::new(config.serve_settings()?);
        let tokens = Tokens::read(settings.tokens_file.as_deref())?;
        let tls = tls::server(settings.tls.as_ref())?;
        let metrics = metrics(settings.admin.is_some() || settings.otlp.metrics.is_some())?;
        let mut otlp = Otlp::start(&settings.otlp, metrics.as_ref())?;
        let (namespaces, tiers, promise) =
            Box::pin(Namespaces::open(&tokens.namespaces(), &settings, stores, metrics.as_ref())).await?;
        let namespaces = Arc::new(namespaces);
        let api = Api::new(Arc::clone(&settings), tokens, Arc::clone(&namespaces));
        let front = ClaimsFront::new(api, &settings, otlp.traces());
        let door = Door::open(settings.door.clone(), tls, front.clone())
            .map_err(|source| StartError::Listen { address: settings.door.listen.clone(), source })?;
        let sweepers: Vec<_> = namespaces
            .grounds()
            .map(|(name, engine, growth)| {
                let figures = metrics.as_ref().map(|metrics| StoreFigures::new(metrics, Some(name)));
                sweeper(engine, &settings.store, growth, figures)
            })
            .collect();
        let (said, shown) = (json!({ "promise": promise }), config.show());
        let ground = admin::Ground {
            command: "serve",
            places: namespaces.places(),
            promise: Box::new(move || said.clone()),
            configuration: Box::new(move || shown.clone()),
            warnings: config.warnings().to_vec(),
            sweeping: sweepers.iter().map(Sweeper::sweeping).collect(),
        };
        let engines =
            namespaces.grounds().map(|(_, engine, _)| engine.clone()).zip(tiers.iter().cloned()).collect();
        let census = metrics.map(|metrics| Arc::new(Census::new(metrics, engines, &ground.places, true)));
        otlp.send_figures(census.as_ref());
        let admin = sidecar::admin(settings.admin.as_ref(), census, ground)?;
        Ok(Self { settings, namespaces, tiers, front, door, admin, sweepers, promise, otlp })
    }

    /// Where the admin side listens, if there is one.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin.as_ref().map(AdminDoor::address)
    }

    /// Where it listens, with the port that was taken.
    pub const fn address(&self) -> &ListenAddress {
        self.door.address()
    }

    /// What is promised, in words.
    pub fn promise(&self) -> &str {
        &self.promise
    }

    /// Tells how many wait for a record, also while it runs.
    pub fn waiting(&self) -> impl Fn() -> usize + Send + Sync + use<> {
        let namespaces = Arc::clone(&self.namespaces);
        move || namespaces.waiting()
    }

    /// Serves until the first signal, then drains; the second one ends the patience.
    pub async fn run(self, signals: Signals) {
        let StopTwice { counting, stop, hurry } = StopTwice::of(signals);
        tokio::select! {
            () = self.serve(stop, hurry) => {}
            () = counting => {}
        }
    }

    /// Serves until `stop` resolves, then drains.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        self.serve(stop, std::future::pending()).await;
    }

    async fn serve(self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()>) {
        let Self { settings, tiers, front, mut door, admin, namespaces, sweepers, otlp, .. } = self;
        let sweeping = AtWork::begin(sweepers);
        let showing = Showing::begin(admin);
        tokio::select! {
            () = door.accept() => {}
            () = stop => {}
        }
        showing.stopping().cancel();
        door.close();
        tracing::info!(patience = ?settings.drain_within, "stopping: no new connections; what runs may finish");
        // Who waits for a record is told how it stands; to hold them would hold the shutdown.
        namespaces.stop_waiting();
        tokio::select! {
            _ = door.end(settings.drain_within) => {}
            () = hurry => tracing::warn!("told twice to stop: connections are cut"),
        }
        door.cut().await;
        // ORDER: commands whose caller is gone go on to their end before the store is closed.
        front.finish(settings.drain_within).await;
        sweeping.end().await;
        otlp.end().await;
        // ORDER: last, so that whoever asks while it ends is told that it does.
        showing.end().await;
        tiers.iter().for_each(Tiers::log);
        tracing::info!("stopped");
    }
}
