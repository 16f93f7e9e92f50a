//! A sidecar from its configuration to its end.

use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::sweeper::{Sweeper, Sweeping};
use onlyonce_core::{Engine, EngineError, MemoryStore, Policy, Store, StoreError};
use onlyonce_http::rules::PrincipalRule;
use onlyonce_http::{Acknowledging, Handle, LayerBuilder, OnceLayer, RulesError};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::{self, AdminDoor, Showing};
use crate::authorise::AuthUrl;
use crate::census::Census;
use crate::config::{AdminSettings, Config, ConfigError, Settings, Sources, SyncMode};
use crate::drain::drain;
use crate::listen::{Door, ListenAddress};
use crate::metrics::{Metrics, StoreFigures};
use crate::operator::{Naming, Place};
use crate::otlp::Otlp;
use crate::promise::Promise;
use crate::reload::{InForce, Reload, Watching};
use crate::stack::Front;
use crate::store::{self, Encryption, OpenError, Opened, Replicated, Tiers};
use crate::sweep::{AtWork, sweeper};
use crate::tls::{self, TlsError};
use crate::tokens;
use crate::upstream::{Pseudonym, Upstream};

/// A sidecar that listens. It serves once it runs.
pub struct Sidecar {
    settings: Arc<Settings>,
    engine: Engine,
    tiers: Tiers,
    rules: Handle,
    front: Front,
    door: Door<Front>,
    admin: Option<AdminDoor>,
    promise: Arc<ArcSwap<Promise>>,
    reload: Reload,
    sweeper: Sweeper,
    otlp: Otlp,
}

impl Sidecar {
    /// Reads the configuration, opens the store and listens. Nothing is started when anything of it cannot work.
    pub async fn start(sources: Sources) -> Result<Self, StartError> {
        Self::start_over(sources, None).await
    }

    /// The same over a store that is open already, whatever the configuration says about one.
    pub async fn start_over(sources: Sources, store: Option<Arc<dyn Store>>) -> Result<Self, StartError> {
        // Boxed: it happens once, and whoever awaits it would carry the room of a whole configuration.
        Box::pin(Self::begin(sources, store)).await
    }

    async fn begin(sources: Sources, store: Option<Arc<dyn Store>>) -> Result<Self, StartError> {
        // ORDER: before the configuration is read, so that no change of it is missed.
        let watching = Watching::begin(&sources);
        let config = sources.read()?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let settings = Arc::new(config.settings()?);
        check_rules(&config, &settings)?;
        let tls = tls::server(settings.tls.as_ref())?;
        let pseudonym = Pseudonym::random().map_err(StartError::System)?;
        let metrics = metrics(settings.admin.is_some() || settings.otlp.metrics.is_some())?;
        let mut otlp = Otlp::start(&settings.otlp, metrics.as_ref())?;
        let upstream = Upstream::new(&settings, pseudonym, otlp.traces()).map_err(StartError::Upstream)?;
        let Ground { engine, remark, tiers, replicated, growth, encryption } =
            Box::pin(ground(&settings, store, metrics.as_ref())).await?;
        let figures = metrics.as_ref().map(|metrics| StoreFigures::new(metrics, None));
        let sweeper = sweeper(&engine, &settings.store, growth, figures);
        let acknowledging = replicated.map(|replicated| replicated.engines(&engine.in_place()));
        let layer = layer(&config, &settings, &engine, acknowledging, metrics.as_ref())?;
        let front = Front::new(&layer, upstream, &settings, otlp.traces());
        let door = Door::open(settings.door.clone(), tls, front.clone())
            .map_err(|source| StartError::Listen { address: settings.door.listen.clone(), source })?;
        let promise = Promise::new(&config, engine.store().as_ref(), remark).encrypted(encryption.as_ref());
        let promise = Arc::new(ArcSwap::from_pointee(promise));
        let rules = layer.handle();
        let configuration = Arc::new(ArcSwap::from_pointee(config.show()));
        let (in_force, shown) = (Arc::clone(&promise), Arc::clone(&configuration));
        let ground = admin::Ground {
            command: "proxy",
            places: vec![Place::new("proxy", &engine, Naming::Routes(rules.clone()))],
            promise: Box::new(move || serde_json::to_value(&**in_force.load()).unwrap_or_default()),
            configuration: Box::new(move || shown.load().to_string()),
            warnings: config.warnings().to_vec(),
            sweeping: vec![sweeper.sweeping()],
        };
        let engines = vec![(engine.clone(), tiers.clone())];
        let census = metrics.map(|metrics| Arc::new(Census::new(metrics, engines, &ground.places, false)));
        otlp.send_figures(census.as_ref());
        let admin = admin(settings.admin.as_ref(), census, ground)?;
        let in_force = InForce { rules: rules.clone(), promise: Arc::clone(&promise), configuration };
        let reload = Reload::new(watching, sources, config, engine.clone(), in_force, encryption);
        Ok(Self { settings, engine, tiers, rules, front, door, admin, promise, reload, sweeper, otlp })
    }

    /// Where it listens, with the port that was taken.
    pub const fn address(&self) -> &ListenAddress {
        self.door.address()
    }

    /// Where the admin side listens, if there is one.
    pub fn admin_address(&self) -> Option<&ListenAddress> {
        self.admin.as_ref().map(AdminDoor::address)
    }

    /// What is promised now; a reload may change it.
    pub fn promise(&self) -> Arc<Promise> {
        self.promise.load_full()
    }

    /// The engine behind it.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// How sweeping goes, also while it runs.
    pub fn sweeping(&self) -> Sweeping {
        self.sweeper.sweeping()
    }

    /// The rules in force, to be replaced.
    pub const fn rules(&self) -> &Handle {
        &self.rules
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
        let Self { settings, engine, tiers, front, mut door, admin, reload, sweeper, otlp, .. } = self;
        let sweeping = AtWork::begin([sweeper]);
        let reloading = tokio::spawn(reload.watch());
        let showing = Showing::begin(admin);
        tokio::select! {
            () = door.accept() => {}
            () = stop => {}
        }
        showing.stopping().cancel();
        door.close();
        drain(&door, &front, &engine, settings.drain_within, hurry).await;
        // Waited for, so that the store is closed when this returns, and whoever opens it next finds it free.
        sweeping.end().await;
        reloading.abort();
        let _ = reloading.await;
        otlp.end().await;
        // ORDER: last, so that whoever asks while it ends is told that it does.
        showing.end().await;
        tiers.log();
    }
}

/// SIGTERM and SIGINT, from when this is made: neither ends the process by itself any more.
#[derive(Debug)]
pub struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    /// Begins to listen. Do so before telling anybody that the sidecar is there.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn received(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// The first signal and the second, as long as `counting` is polled.
pub(crate) struct StopTwice {
    pub(crate) counting: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(crate) stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    pub(crate) hurry: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl StopTwice {
    pub(crate) fn of(mut signals: Signals) -> Self {
        let (told, mut first) = tokio::sync::watch::channel(0_u8);
        let mut second = first.clone();
        let counting = async move {
            loop {
                signals.received().await;
                told.send_modify(|count| *count = count.saturating_add(1));
            }
        };
        let stop = async move {
            drop(first.wait_for(|count| *count >= 1).await);
        };
        let hurry = async move {
            drop(second.wait_for(|count| *count >= 2).await);
        };
        Self { counting: Box::pin(counting), stop: Box::pin(stop), hurry: Box::pin(hurry) }
    }
}

/// What everything stands on.
struct Ground {
    engine: Engine,
    /// What the store has to remark.
    remark: Option<String>,
    tiers: Tiers,
    replicated: Option<Replicated>,
    growth: Arc<Growth>,
    encryption: Option<Encryption>,
}

/// Opens the store, and puts the engine over it.
async fn ground(
    settings: &Settings,
    store: Option<Arc<dyn Store>>,
    metrics: Option<&Arc<Metrics>>,
) -> Result<Ground, StartError> {
    let secret = store::secret(&settings.store)?;
    let opened = match store {
        Some(store) => Opened::alone(store, None).encrypted_as(&settings.store)?,
        None => store::open(&settings.store, metrics).await.map_err(|error| match error {
            OpenError::Settings(error) => StartError::Config(error),
            OpenError::Store(error) => StartError::Store { url: settings.store.url.clone(), source: error },
        })?,
    };
    let Opened { store, remark, tiers, replicated, growth, encryption } = opened;
    let policy = Policy::default().answer_within(settings.store.answer_within);
    let mut builder = Engine::builder(store).policy(policy);
    if let Some(secret) = secret {
        builder = builder.secret(secret);
    }
    if let Some(metrics) = metrics {
        builder = builder.observer(Arc::<Metrics>::clone(metrics));
    }
    Ok(Ground { engine: builder.build().await?, remark, tiers, replicated, growth, encryption })
}

/// Figures, when somebody can read them.
pub(crate) fn metrics(wanted: bool) -> Result<Option<Arc<Metrics>>, StartError> {
    let metrics = wanted.then(Metrics::new).transpose().map_err(|error| StartError::System(error.into()))?;
    Ok(metrics.map(Arc::new))
}

/// The admin side, where one is configured.
pub(crate) fn admin(
    settings: Option<&AdminSettings>,
    census: Option<Arc<Census>>,
    ground: admin::Ground,
) -> Result<Option<AdminDoor>, StartError> {
    let (Some(settings), Some(census)) = (settings, census) else { return Ok(None) };
    let address = settings.door.listen.clone();
    let tls = tls::server(settings.tls.as_ref())?;
    let opened = AdminDoor::open(settings, tls, census, ground);
    opened.map(Some).map_err(|source| StartError::Listen { address, source })
}

/// The rules of `config`, over `engine`.
pub(crate) fn ruled(
    config: &Config,
    engine: Engine,
    acknowledging: Option<Arc<dyn Acknowledging>>,
) -> Result<LayerBuilder, StartError> {
    let mut builder = OnceLayer::builder(engine).defaults(config.merged.defaults.clone());
    for rules in &config.merged.route {
        builder = builder.route(rules.clone());
    }
    if let Some(engines) = acknowledging {
        builder = builder.acknowledged(engines);
    }
    if let Some(keys) = tokens::verifier(&config.merged.jwt)? {
        builder = builder.tokens(keys);
    }
    Ok(builder)
}

fn layer(
    config: &Config,
    settings: &Settings,
    engine: &Engine,
    acknowledging: Option<Arc<dyn Acknowledging>>,
    metrics: Option<&Arc<Metrics>>,
) -> Result<OnceLayer, StartError> {
    // In place: what waits for an answer is a connection, and the work is an exchange with the upstream.
    let mut builder =
        ruled(config, engine.in_place(), acknowledging)?.buffered_bytes_max(settings.buffered_bytes_max);
    // Read only by traces, and by the log when it is to tell of every request: as it is set up now, at the start.
    let is_logged = tracing::enabled!(target: "onlyonce_server::stack", tracing::Level::DEBUG);
    builder = builder.extensions(settings.otlp.traces.is_some() || is_logged);
    if let Some(url) = &settings.auth_url {
        let auth = AuthUrl::new(url, settings).map_err(StartError::Upstream)?;
        builder = builder.before_replay(Arc::new(auth));
    }
    if let Some(metrics) = metrics {
        builder = builder.observer(Arc::<Metrics>::clone(metrics));
    }
    Ok(builder.build()?)
}

/// Checks a configuration without starting anything: no store is opened, nothing listens. Tells how many routes it has.
pub async fn check(sources: &Sources) -> Result<usize, StartError> {
    let config = sources.read()?;
    let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await?;
    let settings = check_config(&config, &engine)?;
    if let Some(encryption) = &settings.store.encryption {
        store::read_keys(&encryption.key_file)?;
    }
    Ok(config.merged.route.len())
}

/// Whether a start would take the settings and the rules. No store is opened, nothing listens.
pub(crate) fn check_config(config: &Config, engine: &Engine) -> Result<Settings, StartError> {
    let settings = config.settings()?;
    check_rules(config, &settings)?;
    layer(config, &settings, engine, store::presumed(&settings.store, engine), None)?;
    Ok(settings)
}

/// Whether the rules can be kept by what is around them: the same at the start and at every reload.
pub(crate) fn check_rules(config: &Config, settings: &Settings) -> Result<(), ConfigError> {
    if settings.store.sync == SyncMode::Outcome
        && config.rules().iter().any(|rules| rules.unknown != Some(onlyonce_http::rules::Unknown::Rerun))
    {
        let problem =
            "`outcome` loses grants in a power cut, so that every route must say unknown = \"rerun\"";
        return Err(ConfigError::field("store.sync", problem));
    }
    check_principals(config, settings.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some()))
}

/// A rule that would never find anybody is refused: every keyed request would share one scope, or none be served.
fn check_principals(config: &Config, has_certificates: bool) -> Result<(), ConfigError> {
    for rules in config.rules() {
        let route = rules.path.as_deref().unwrap_or("defaults");
        match rules.principal {
            Some(PrincipalRule::Mtls) if !has_certificates => {
                let problem = format!(
                    "`mtls` ({route}) needs tls.client_ca from the start on: nobody would show a certificate"
                );
                return Err(ConfigError::field("principal", problem));
            }
            Some(PrincipalRule::Application) => {
                let problem =
                    format!("`application` ({route}) is for the layer: a sidecar has no application inside");
                return Err(ConfigError::field("principal", problem));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Why a sidecar did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration cannot be used.
    Config(ConfigError),
    /// The rules cannot be used.
    Rules(RulesError),
    /// A certificate cannot be used.
    Tls(TlsError),
    /// The upstream cannot be set up.
    Upstream(String),
    /// The store cannot be opened.
    Store {
        /// Its URL.
        url: String,
        /// Why.
        source: StoreError,
    },
    /// The engine refuses to start.
    Engine(EngineError),
    /// The address cannot be listened on.
    Listen {
        /// The address.
        address: ListenAddress,
        /// Why.
        source: io::Error,
    },
    /// The operating system did not give what is needed.
    System(onlyonce_core::BoxError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Rules(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Upstream(problem) => write!(f, "proxy.upstream: {problem}"),
            Self::Store { url, .. } => {
                write!(f, "the store {} cannot be opened", crate::config::without_password(url))
            }
            Self::Engine(error) => error.fmt(f),
            Self::Listen { address, .. } => write!(f, "{address} cannot be listened on"),
            Self::System(error) => error.fmt(f),
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Config(error) => error.source(),
            Self::Rules(error) => error.source(),
            Self::Engine(error) => error.source(),
            Self::Store { source, .. } => Some(source),
            Self::Listen { source, .. } => Some(source),
            Self::Tls(_) | Self::Upstream(_) | Self::System(_) => None,
        }
    }
}

macro_rules! from {
    ($($error:ident => $variant:ident),*) => {$(
        impl From<$error> for StartError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )*};
}

from!(ConfigError => Config, RulesError => Rules, TlsError => Tls, EngineError => Engine);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_refused_at_the_start_is_refused_by_a_reload_and_by_a_check() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("onlyonce.toml");
        let written = |sync: &str, rules: &str| {
            let text = format!(
                "[proxy]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n\
                 [store]\nurl = \"file:{}\"\nsync = \"{sync}\"\n\
                 [defaults]\nprincipal = \"shared\"\n{rules}",
                folder.path().join("data").display()
            );
            std::fs::write(&file, text).unwrap();
        };
        let sources = Sources { file: Some(file.clone()), ..Sources::default() };
        let (rerun, hold) = ("unknown = \"rerun\"\n", "unknown = \"hold\"\n");
        written("outcome", rerun);
        assert!(check(&sources).await.is_ok());
        let mut sidecar = Sidecar::start(sources.clone()).await.unwrap();
        let promised = sidecar.promise();
        // The store that is open loses grants in a power cut, whatever the file says of the next one.
        for sync in ["outcome", "always"] {
            written(sync, hold);
            assert_eq!(check(&sources).await.is_ok(), sync == "always");
            sidecar.reload.apply().await;
            assert_eq!(sidecar.promise(), promised);
        }
        // Nobody will be asked for a certificate before the next start, and the next start would refuse the second.
        let open = "on_store_failure = \"open\"\n";
        let tls = "[tls]\ncertificate = \"a.pem\"\nkey = \"a.key\"\nclient_ca = \"ca.pem\"\n";
        let mtls = "[[route]]\npath = \"/a\"\nprincipal = \"mtls\"\n";
        for rules in [format!("{mtls}{tls}"), mtls.to_owned()] {
            written("always", &format!("{rerun}{open}{rules}"));
            sidecar.reload.apply().await;
            assert_eq!(sidecar.promise(), promised);
        }
        written("always", &format!("{rerun}{open}{tls}"));
        sidecar.reload.apply().await;
        assert_ne!(sidecar.promise(), promised, "what can be kept is taken");
    }

    /// A sidecar in front of nobody over a store in memory, from a file that a test writes.
    struct Written(tempfile::TempDir);

    impl Written {
        fn new(proxy: &str, rules: &str) -> Self {
            let written = Self(tempfile::tempdir().unwrap());
            written.again(proxy, rules);
            written
        }

        fn again(&self, proxy: &str, rules: &str) {
            let text = format!(
                "[proxy]\nlisten = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:9\"\n{proxy}\n\
                 [store]\nurl = \"memory:\"\n[defaults]\nprincipal = \"shared\"\n{rules}\n"
            );
            std::fs::write(self.0.path().join("onlyonce.toml"), text).unwrap();
        }

        fn sources(&self) -> Sources {
            Sources { file: Some(self.0.path().join("onlyonce.toml")), ..Sources::default() }
        }
    }

    #[tokio::test]
    async fn rules_are_kept_beside_what_stays_until_a_restart_or_refused() {
        let (room, patience) = ("buffered_bytes_max = 2000000", "upstream_within = \"50s\"");
        let small = "request_bytes_max = 1000000";
        let file = Written::new(&format!("{room}\n{patience}"), small);
        let mut sidecar = Sidecar::start(file.sources()).await.unwrap();
        let shown = sidecar.reload.in_force.configuration.load_full();
        for (proxy, rules) in [
            (format!("buffered_bytes_max = 4000000\n{patience}"), "request_bytes_max = 3000000".to_owned()),
            (format!("{room}\nupstream_within = \"5s\""), format!("{small}\nrun_max = \"40s\"")),
        ] {
            file.again(&proxy, &rules);
            check(&file.sources()).await.expect("the next start takes it");
            sidecar.reload.apply().await;
            assert_eq!(sidecar.reload.in_force.configuration.load_full(), shown);
        }
        file.again(&format!("{room}\n{patience}"), &format!("{small}\nrun_max = \"61s\""));
        sidecar.reload.apply().await;
        assert!(sidecar.reload.in_force.configuration.load().contains("run_max = \"61s\""));
    }

    #[tokio::test]
    async fn nothing_is_promised_before_it_holds() {
        let file = Written::new("", "");
        let mut sidecar = Sidecar::start(file.sources()).await.unwrap();
        file.again("auth_url = \"http://127.0.0.1:9\"", "shadow = true");
        sidecar.reload.apply().await;
        let promised = sidecar.promise();
        assert_eq!((promised.replays_are_authorised, promised.shadow.len()), (false, 1), "{promised}");
        let shown = sidecar.reload.in_force.configuration.load_full();
        assert!(!shown.contains("auth_url") && shown.contains("shadow = true"), "{shown}");
    }

    #[tokio::test]
    async fn new_keys_are_told_of_though_the_rules_are_refused() {
        use std::os::unix::fs::PermissionsExt as _;

        let file = Written::new("", "");
        let keys = file.0.path().join("keys");
        let line = |name| store::new_key_line(&onlyonce_core::KeyId::new(name).unwrap()).unwrap();
        let old = line("old");
        let write = |lines: &[&str]| std::fs::write(&keys, lines.join("\n")).unwrap();
        write(&[&old]);
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut sources = file.sources();
        sources.flags.store.encryption_key_file = Some(keys.clone());
        let mut sidecar = Sidecar::start(sources).await.unwrap();
        write(&[&line("new"), &old]);
        file.again("", "no_such_rule = true");
        sidecar.reload.apply().await;
        assert!(sidecar.promise().to_string().contains("the key `new`"));
    }
}
