//! How the layer is put together. Rules that cannot work are refused here, before the first request.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Response;
use http::request::Parts;
use onlyonce_core::{Engine, Scope};
use tower_layer::Layer;

use crate::body::Body;
use crate::limits::Room;
use crate::observe::{Observer, Traced};
use crate::principal::{self, TokenVerifier};
use crate::route::Route;
use crate::rules::{Acknowledgement, PrincipalRule, Retain, Rules, RulesError};
use crate::service::OnceService;
use crate::snapshot::Snapshot;

/// Asked before every replay whether the caller may still have the answer: credentials are revoked, answers are not.
pub trait ReplayCheck: fmt::Debug + Send + Sync + 'static {
    /// `Ok` to replay; `Err` is what the caller gets instead.
    fn check<'a>(
        &'a self,
        head: &'a Parts,
    ) -> Pin<Box<dyn Future<Output = Result<(), Response<Body>>> + Send + 'a>>;
}

/// Puts `Idempotency-Key` semantics in front of a service. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use onlyonce_core::{Engine, MemoryStore};
/// use onlyonce_http::{OnceLayer, Rules};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await?;
/// let rules = Rules { required: Some(true), retention: Some("72h".parse()?), ..Rules::default() };
/// let layer = OnceLayer::new(engine, rules)?;
/// # let _ = layer;
/// // axum: Router::new().route("/payments", post(pay)).layer(layer)
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OnceLayer {
    shared: Arc<Shared>,
}

/// What all keyed requests together may hold unless told otherwise: a hundred of the largest, or very many usual ones.
const BUFFERED_BYTES_MAX: u64 = 256 << 20;

/// What all services of a layer share.
#[derive(Debug)]
pub(crate) struct Shared {
    ground: Ground,
    routes: ArcSwap<Routes>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) replay_check: Option<Arc<dyn ReplayCheck>>,
    pub(crate) tokens: Option<Arc<dyn TokenVerifier>>,
    pub(crate) errors_url: Option<Box<str>>,
    pub(crate) room: Arc<Room>,
    /// Whether what is known is left in extensions.
    pub(crate) extends: bool,
}

/// What routes are made of, beside their rules.
#[derive(Debug)]
struct Ground {
    engine: Engine,
    acknowledged: Option<Arc<dyn Acknowledging>>,
    can_verify_tokens: bool,
}

/// Finds the engine for routes whose grants and outcomes wait for more than the store's own answer.
pub trait Acknowledging: fmt::Debug + Send + Sync + 'static {
    /// The engine over the same records, or why there is none.
    fn engine(&self, acknowledgement: Acknowledgement) -> Result<Engine, RulesError>;
}

/// The routes in force. The last one takes what no other does.
#[derive(Debug)]
struct Routes {
    listed: Vec<Arc<Route>>,
    rest: Arc<Route>,
}

impl OnceLayer {
    /// One set of rules for every request.
    pub fn new(engine: Engine, rules: Rules) -> Result<Self, RulesError> {
        Self::builder(engine).defaults(rules).build()
    }

    /// Starts a layer over `engine`.
    pub fn builder(engine: Engine) -> LayerBuilder {
        LayerBuilder {
            engine,
            acknowledged: None,
            defaults: Rules::default(),
            routes: Vec::new(),
            observer: Arc::new(Traced),
            replay_check: None,
            tokens: None,
            errors_url: None,
            buffered_bytes_max: BUFFERED_BYTES_MAX,
            extends: true,
        }
    }

    /// A hand on the routes, to replace them while requests go on.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }
}

impl<S> Layer<S> for OnceLayer {
    type Service = OnceService<S>;

    fn layer(&self, inner: S) -> OnceService<S> {
        OnceService::new(inner, Arc::clone(&self.shared))
    }
}

/// Replaces the routes of a running layer.
#[derive(Debug, Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    /// Puts other rules in force, all at once, or none of them when one cannot work. Requests under way keep theirs.
    pub fn replace(&self, defaults: &Rules, routes: &[Rules]) -> Result<(), RulesError> {
        let made = Routes::new(&self.0.ground, defaults, routes)?;
        self.0.routes.store(Arc::new(made));
        Ok(())
    }

    /// The scope of a request for `path` by who shows `shown` to the rule of its route: where its key would be looked
    /// for. `None` shows nothing.
    pub fn scope(&self, path: &str, shown: Option<&str>) -> Scope {
        let route = self.0.route(path);
        route.scope(principal::shown(&route.principal, shown), path)
    }

    /// The route that rules requests for `path`, by the path of its rules: one of a bounded set of names.
    pub fn route_name(&self, path: &str) -> Box<str> {
        self.0.route(path).name.clone()
    }

    /// Every scope that who shows `shown` may have keys in, one for each namespace and way of telling callers apart.
    /// Paths are left out: they do not change a scope's tag.
    pub fn scopes(&self, shown: Option<&str>) -> Vec<Scope> {
        let routes = self.0.routes.load();
        let mut scopes: Vec<Scope> = Vec::new();
        for route in routes.listed.iter().chain([&routes.rest]) {
            let principal = principal::shown(&route.principal, shown);
            let scope = Scope::new(Arc::clone(&route.namespace), principal);
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        scopes
    }

    /// What may be kept of an answer that did not come from the application, but from somebody who knows it: by the rules
    /// for `path`. Without a path by those of every route at once, because a record does not tell which was its own. `None`
    /// when only the status may be kept.
    pub fn kept(&self, answer: &Snapshot, path: Option<&str>) -> Option<Snapshot> {
        let routes = match path {
            Some(path) => vec![self.0.route(path)],
            None => {
                let routes = self.0.routes.load();
                routes.listed.iter().chain([&routes.rest]).map(Arc::clone).collect()
            }
        };
        if routes.iter().any(|route| route.retain == Retain::StatusOnly) {
            return None;
        }
        let redactions = routes.iter().filter_map(|route| route.redaction.as_ref());
        let Some(all) = redactions.cloned().reduce(|all, more| all.and(&more)) else {
            return Some(answer.clone());
        };
        let redacted = all.apply(&answer.headers, answer.trailers.as_ref(), &answer.body)?;
        Some(redacted.into_snapshot(answer.status))
    }
}

impl Shared {
    /// The first route for `path`.
    pub(crate) fn route(&self, path: &str) -> Arc<Route> {
        let routes = self.routes.load();
        let listed = routes.listed.iter().find(|route| route.matches(path));
        Arc::clone(listed.unwrap_or(&routes.rest))
    }
}

impl Ground {
    /// The engine that `rules` ask for.
    fn engine(&self, rules: &Rules) -> Result<Engine, RulesError> {
        match (rules.acknowledgement, &self.acknowledged) {
            (None, _) => Ok(self.engine.clone()),
            (Some(acknowledgement), Some(acknowledged)) => acknowledged.engine(acknowledgement),
            (Some(_), None) => {
                Err(RulesError::new("acknowledgement: this store has no replicas that could be waited for"))
            }
        }
    }
}

impl Routes {
    fn new(ground: &Ground, defaults: &Rules, routes: &[Rules]) -> Result<Self, RulesError> {
        let make = |rules: &Rules| -> Result<Arc<Route>, RulesError> {
            let route = Route::new(&ground.engine(rules)?, rules)?;
            if matches!(route.principal, PrincipalRule::Jwt(_)) && !ground.can_verify_tokens {
                return Err(RulesError::new("principal = \"jwt:…\" needs a key to verify tokens with"));
            }
            Ok(Arc::new(route))
        };
        let named = |rules: &Rules| {
            let path = rules.path.as_deref().unwrap_or("*").to_owned();
            make(&rules.clone().or(defaults)).map_err(|error| error.in_route(&path))
        };
        if let Some(path) = &defaults.path {
            let what = format!("the defaults are for every path: put {path:?} into a route");
            return Err(RulesError::new(what).in_route("*"));
        }
        let listed = routes.iter().map(named).collect::<Result<_, _>>()?;
        let rest = make(defaults).map_err(|error| error.in_route("*"))?;
        Ok(Self { listed, rest })
    }
}

/// Collects what an [`OnceLayer`] needs. Only the engine has no default.
#[derive(Debug)]
#[must_use = "a layer is made by `build`"]
pub struct LayerBuilder {
    engine: Engine,
    acknowledged: Option<Arc<dyn Acknowledging>>,
    defaults: Rules,
    routes: Vec<Rules>,
    observer: Arc<dyn Observer>,
    replay_check: Option<Arc<dyn ReplayCheck>>,
    tokens: Option<Arc<dyn TokenVerifier>>,
    errors_url: Option<Box<str>>,
    buffered_bytes_max: u64,
    extends: bool,
}

impl LayerBuilder {
    /// The rules for what no route says, and for requests that no route is for.
    pub fn defaults(mut self, rules: Rules) -> Self {
        self.defaults = rules;
        self
    }

    /// Adds a route. The first route that matches a path counts.
    pub fn route(mut self, rules: Rules) -> Self {
        self.routes.push(rules);
        self
    }

    /// Who sees what happens. Default: `tracing`.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Who is asked before every replay. Default: nobody; the application's own authentication runs before the layer.
    pub fn before_replay(mut self, check: Arc<dyn ReplayCheck>) -> Self {
        self.replay_check = Some(check);
        self
    }

    /// Where routes with an `acknowledgement` get their engine from. Default: from nowhere, and such rules are refused.
    pub fn acknowledged(mut self, engines: Arc<dyn Acknowledging>) -> Self {
        self.acknowledged = Some(engines);
        self
    }

    /// Who verifies bearer tokens, for `principal = "jwt:CLAIM"`.
    pub fn tokens(mut self, tokens: Arc<dyn TokenVerifier>) -> Self {
        self.tokens = Some(tokens);
        self
    }

    /// Where the pages of the problem types are; each type's name is added. Default: none, and types are URNs.
    pub fn errors_url(mut self, url: &str) -> Self {
        self.errors_url = Some(url.into());
        self
    }

    /// How many bytes of request bodies are held at a time, of all keyed requests together. Default 256 MiB; beyond it
    /// requests are refused (503) before anything is claimed.
    pub const fn buffered_bytes_max(mut self, bytes: u64) -> Self {
        self.buffered_bytes_max = bytes;
        self
    }

    /// Whether what is known is left in extensions: the grant in those of a request, as [`Execution`], and how it was
    /// answered in those of the answer, as [`Answered`]. Default yes; who looks at neither saves some time.
    ///
    /// [`Execution`]: onlyonce_core::Execution
    /// [`Answered`]: crate::Answered
    pub const fn extensions(mut self, yes: bool) -> Self {
        self.extends = yes;
        self
    }

    /// Makes the rules ready, and the layer.
    pub fn build(self) -> Result<OnceLayer, RulesError> {
        let ground = Ground {
            engine: self.engine,
            acknowledged: self.acknowledged,
            can_verify_tokens: self.tokens.is_some(),
        };
        let routes = Routes::new(&ground, &self.defaults, &self.routes)?;
        if let Some(url) = &self.errors_url
            && url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()).eq(&false)
        {
            return Err(RulesError::new(format!("{url:?} is not an absolute URL")));
        }
        Ok(OnceLayer {
            shared: Arc::new(Shared {
                ground,
                routes: ArcSwap::from_pointee(routes),
                observer: self.observer,
                replay_check: self.replay_check,
                tokens: self.tokens,
                errors_url: self.errors_url,
                room: Room::new(self.buffered_bytes_max),
                extends: self.extends,
            }),
        })
    }
}
