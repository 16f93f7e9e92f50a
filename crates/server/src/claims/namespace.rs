//! A namespace: a store place of its own with a secret of its own. Ids of one mean nothing in another.

use std::collections::BTreeSet;
use std::sync::Arc;

use onlyonce_core::store::StoreFuture;
use onlyonce_core::sweeper::growth::Growth;
use onlyonce_core::{Engine, Policy, Store, StoreError, Terms};
use tokio_util::sync::CancellationToken;

use super::quota::Usage;
use super::tokens::DEFAULT_NAMESPACE;
use super::wait::Waiters;
use crate::config::{ConfigError, ServeSettings, StoreSettings, without_password};
use crate::metrics::{Metrics, Observed};
use crate::operator::{Naming, Place};
use crate::promise::survival_of;
use crate::sidecar::StartError;
use crate::store::{self, Encryption, OpenError, Opened, Tiers};

/// Where one tenant's records are.
pub(crate) struct Namespace {
    pub(crate) name: Arc<str>,
    /// For its secret, its store and its clock: no work runs in it.
    pub(crate) engine: Engine,
    /// What a claim gets that says nothing else.
    pub(crate) policy: Policy,
    pub(crate) terms: Arc<Terms>,
    pub(crate) usage: Usage,
    /// How much its store holds of what it may.
    growth: Arc<Growth>,
    pub(crate) waiters: Waiters,
    pub(crate) stopping: CancellationToken,
}

impl Namespace {
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        self.engine.store()
    }

    /// The store's answer, if it comes in time.
    pub(crate) async fn bounded<T>(&self, asked: StoreFuture<'_, T>) -> Result<T, StoreError> {
        store::bounded(asked).await
    }
}

/// All namespaces that somebody has a token for.
pub(crate) struct Namespaces(Vec<Arc<Namespace>>);

impl Namespaces {
    /// Opens a store for each of `names`, unless `stores` has it open already.
    pub(crate) async fn open(
        names: &BTreeSet<String>,
        settings: &ServeSettings,
        mut stores: Vec<(String, Arc<dyn Store>)>,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<(Self, Vec<Tiers>, String), StartError> {
        let stopping = CancellationToken::new();
        let (mut namespaces, mut tiers, mut promises) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let place = place(&settings.store, name)?;
            let opened = match stores.iter().position(|(other, _)| other == name) {
                Some(at) => Opened::alone(stores.swap_remove(at).1, None).encrypted_as(&place)?,
                None => store::open(&place, metrics).await.map_err(|error| match error {
                    OpenError::Settings(error) => StartError::Config(error),
                    OpenError::Store(source) => StartError::Store { url: place.url.clone(), source },
                })?,
            };
            promises.push(promise(name, &place, &opened));
            // No work passes the engine here: what happens is seen where the store answers.
            let store = match metrics {
                Some(metrics) => Arc::new(Observed::new(opened.store, Arc::<Metrics>::clone(metrics))) as _,
                None => opened.store,
            };
            let mut builder = Engine::builder(store).policy(Policy::default().remote_owners());
            if let Some(secret) = store::secret(&place)? {
                builder = builder.secret(secret);
            }
            tiers.push(opened.tiers);
            namespaces.push(Arc::new(Namespace {
                name: name.as_str().into(),
                engine: builder.build().await?,
                terms: Arc::new(settings.policy.terms().clone()),
                policy: settings.policy.clone(),
                usage: Usage::default(),
                growth: opened.growth,
                waiters: Waiters::new(settings.waiters_max),
                stopping: stopping.clone(),
            }));
        }
        Ok((Self(namespaces), tiers, promises.join("\n")))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.0.iter().find(|namespace| &*namespace.name == name)
    }

    /// Where operators find the records of each.
    pub(crate) fn places(&self) -> Vec<Place> {
        let place = |namespace: &Arc<Namespace>| {
            let naming = Naming::Claims(Arc::clone(&namespace.name));
            Place::new(Arc::clone(&namespace.name), &namespace.engine, naming)
        };
        self.0.iter().map(place).collect()
    }

    /// What each stands on, with its name.
    pub(crate) fn grounds(&self) -> impl Iterator<Item = (&Arc<str>, &Engine, Arc<Growth>)> {
        self.0.iter().map(|namespace| (&namespace.name, &namespace.engine, Arc::clone(&namespace.growth)))
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0.iter().map(|namespace| namespace.waiters.len()).sum()
    }

    /// Everybody who waits is told how things stand.
    pub(crate) fn stop_waiting(&self) {
        self.0.iter().for_each(|namespace| namespace.stopping.cancel());
    }
}

fn promise(name: &str, place: &StoreSettings, opened: &Opened) -> String {
    let mut text = format!(
        "namespace {name}: {} {}; leases hold across a restart of this service",
        without_password(&place.url),
        survival_of(opened.store.durability())
    );
    let at_rest = opened.encryption.as_ref().map(Encryption::promise);
    for remark in opened.remark.iter().chain(&at_rest) {
        text.push_str("; ");
        text.push_str(remark);
    }
    text
}

/// Where the records of the namespace `name` are: `default` is where the URL says, every other one beside it.
pub(crate) fn place(settings: &StoreSettings, name: &str) -> Result<StoreSettings, ConfigError> {
    let mut place = settings.clone();
    if name == DEFAULT_NAMESPACE {
        return Ok(place);
    }
    if place.fast_tier.is_some() {
        let problem = format!("has one place for all namespaces: it cannot serve `{name}`");
        return Err(ConfigError::field("store.cache", problem));
    }
    match settings.url.split_once(':') {
        Some(("file", folder)) => place.url = format!("file:{}.{name}", folder.trim_end_matches('/')),
        Some(("postgres" | "postgresql", _)) => place.url = with_schema(&settings.url, name),
        Some((scheme, _)) if scheme.starts_with("redis") => {
            let prefix = settings.redis.prefix.as_deref().unwrap_or("onlyonce");
            place.redis.prefix = Some(format!("{prefix}-{name}"));
        }
        // A memory store is its own place, and what is no store is refused when it is opened.
        _ => {}
    }
    Ok(place)
}

/// The URL with `_name` added to its schema.
fn with_schema(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut schema = "onlyonce".to_owned();
    let mut parameters = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("schema", value)) => value.clone_into(&mut schema),
            _ => parameters.push(parameter.to_owned()),
        }
    }
    parameters.push(format!("schema={schema}_{name}"));
    format!("{base}?{}", parameters.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_a_database_is_a_schema() {
        let at = |url: &str| with_schema(url, "pay");
        assert_eq!(at("postgres://h/d"), "postgres://h/d?schema=onlyonce_pay");
        assert_eq!(at("postgres://h/d?schema=a&pool=2"), "postgres://h/d?pool=2&schema=a_pay");
    }
}
