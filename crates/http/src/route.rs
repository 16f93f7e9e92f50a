//! A route: rules made ready once, so that a request only looks things up.

mod pattern;
mod query;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use onlyonce_core::{
    Engine, EngineError, KeyForm, Lease, Outcome, Policy, Principal, Retention, Scope, Tombstone,
    UnknownPolicy,
};

use self::pattern::Pattern;
use self::query::Query;
use crate::classify::Classes;
use crate::fingerprint::FingerprintRules;
use crate::problem::Style;
use crate::redact::Redaction;
use crate::rules::{
    KeySource, Limits, OnStoreFailure, PrincipalRule, Profile, ReplayStatus, Retain, Rules, RulesError,
    Unknown,
};
use crate::snapshot;

/// Rules that requests are treated by.
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own that people switch")]
pub struct Route {
    pub(crate) name: Box<str>,
    pattern: Pattern,
    methods: Vec<Method>,
    pub(crate) profile: Profile,
    pub(crate) required: bool,
    pub(crate) key: KeySource,
    pub(crate) form: KeyForm,
    pub(crate) refuse_old_uuidv7: bool,
    pub(crate) namespace: Arc<str>,
    pub(crate) principal: PrincipalRule,
    pub(crate) scope_path: bool,
    pub(crate) fingerprint: Arc<FingerprintRules>,
    pub(crate) wait: Duration,
    pub(crate) wait_max: Duration,
    pub(crate) classes: Classes,
    pub(crate) request_bytes_max: u64,
    pub(crate) response_bytes_max: u64,
    pub(crate) response_within: Duration,
    pub(crate) retain: Retain,
    pub(crate) redaction: Option<Redaction>,
    pub(crate) store_set_cookie: bool,
    pub(crate) replay_status: ReplayStatus,
    pub(crate) on_store_failure: OnStoreFailure,
    pub(crate) shadow: bool,
    /// Where to ask what became of a request; only under `unknown = "query"`.
    pub(crate) query: Option<Query>,
    pub(crate) engine: Engine,
    unkeyed: AtomicBool,
    anonymous: AtomicBool,
    token_may_change: AtomicBool,
}

impl Route {
    /// Makes `rules` ready. What they do not say comes from their profile and from the policy of `engine`.
    pub fn new(engine: &Engine, rules: &Rules) -> Result<Self, RulesError> {
        let profile = rules.profile.unwrap_or_default();
        let policy = policy(engine.policy().clone(), profile, rules)?;
        let query = query(&policy, rules)?;
        let wait = rules.wait.map_or_else(|| policy.waits_for(), |wait| wait.0);
        let wait_max = rules.wait_max.map_or(Duration::from_secs(30), |wait| wait.0).max(wait);
        Ok(Self {
            name: rules.path.as_deref().unwrap_or("*").into(),
            pattern: Pattern::new(rules.path.as_deref().unwrap_or("*"))?,
            methods: methods(rules.methods.as_deref())?,
            profile,
            required: rules.required.unwrap_or(profile == Profile::Ietf),
            key: rules.key.clone().unwrap_or_default(),
            form: form(profile, rules.strict),
            refuse_old_uuidv7: rules.refuse_old_uuidv7.unwrap_or(false),
            namespace: rules.namespace.as_deref().unwrap_or("http").into(),
            principal: rules.principal.clone().unwrap_or_default(),
            scope_path: rules.scope_path.unwrap_or(false),
            fingerprint: Arc::new(FingerprintRules::new(rules)?),
            wait,
            wait_max,
            classes: classes(profile, rules)?,
            request_bytes_max: rules.request_bytes_max.unwrap_or(2 << 20),
            response_bytes_max: rules.response_bytes_max.unwrap_or(1 << 20),
            response_within: rules.response_within.map_or(Duration::from_secs(10), |within| within.0),
            retain: rules.store.unwrap_or_default(),
            redaction: Redaction::new(rules)?,
            store_set_cookie: rules.store_set_cookie.unwrap_or(false),
            replay_status: rules.replay_status.unwrap_or_default(),
            on_store_failure: rules.on_store_failure.unwrap_or_default(),
            shadow: rules.shadow.unwrap_or(false),
            engine: match &query {
                Some(_) => engine.with_policy_and_hooks_of_requests(policy)?,
                None => engine.with_policy(policy).map_err(|error| nobody_to_ask(rules, error))?,
            },
            query,
            unkeyed: AtomicBool::new(false),
            anonymous: AtomicBool::new(false),
            token_may_change: AtomicBool::new(false),
        })
    }

    pub(crate) fn matches(&self, path: &str) -> bool {
        self.pattern.matches(path)
    }

    pub(crate) fn protects(&self, method: &Method) -> bool {
        self.methods.contains(method)
    }

    /// In which scope the keys of `principal` are, on `path`.
    pub(crate) fn scope(&self, principal: Principal, path: &str) -> Scope {
        let scope = Scope::new(Arc::clone(&self.namespace), principal);
        if self.scope_path { scope.on_path(path) } else { scope }
    }

    /// Whether there are requests that run here without protection.
    pub(crate) fn may_run_unprotected(&self) -> bool {
        self.shadow || self.on_store_failure == OnStoreFailure::Open
    }

    /// In which form our own answers are given here.
    pub(crate) const fn style(&self, is_grpc: bool) -> Style {
        match (is_grpc, self.profile) {
            (true, _) => Style::Grpc,
            (false, Profile::Stripe) => Style::Stripe,
            (false, Profile::Standard | Profile::Ietf) => Style::ProblemJson,
        }
    }

    /// How long a duplicate waits, when its caller asks for `preferred`.
    pub(crate) fn wait_for(&self, preferred: Option<Duration>) -> Duration {
        preferred.map_or(self.wait, |preferred| preferred.min(self.wait_max))
    }

    pub(crate) fn is_first_unkeyed(&self) -> bool {
        first(&self.unkeyed)
    }

    pub(crate) fn is_first_anonymous(&self) -> bool {
        first(&self.anonymous)
    }

    pub(crate) fn is_first_changing_token(&self) -> bool {
        first(&self.token_may_change)
    }
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("path", &self.name)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

/// Whether it happens for the first time. A plain read first: the flag is written once and read for ever.
fn first(flag: &AtomicBool) -> bool {
    !flag.load(Ordering::Relaxed) && !flag.swap(true, Ordering::Relaxed)
}

fn methods(names: Option<&[String]>) -> Result<Vec<Method>, RulesError> {
    const PROTECTABLE: [Method; 4] = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    let Some(names) = names else { return Ok(vec![Method::POST, Method::PATCH]) };
    let method = |name: &String| {
        let known = PROTECTABLE.into_iter().find(|method| method.as_str() == name);
        known.ok_or_else(|| {
            RulesError::new(format!("{name:?} cannot be protected: only POST, PATCH, PUT and DELETE can"))
        })
    };
    names.iter().map(method).collect()
}

fn form(profile: Profile, strict: Option<bool>) -> KeyForm {
    match (strict, profile) {
        (Some(true), _) | (None, Profile::Ietf) => KeyForm::Quoted,
        (_, Profile::Stripe) => KeyForm::Bare,
        (Some(false), _) | (None, Profile::Standard) => KeyForm::QuotedOrBare,
    }
}

fn classes(profile: Profile, rules: &Rules) -> Result<Classes, RulesError> {
    let mut overrides = rules.classify.clone().unwrap_or_default();
    if let Some(verdict) = rules.on_5xx {
        overrides.entry("5xx".into()).or_insert(verdict);
    }
    Classes::new(profile, &overrides as &BTreeMap<_, _>)
}

/// The question that is asked under `query`. Without one, the engine must have a hook: it says so itself.
fn query(policy: &Policy, rules: &Rules) -> Result<Option<Query>, RulesError> {
    let made = rules.query_url.as_deref().map(|url| Query::new(url, rules)).transpose()?;
    Ok(made.filter(|_| policy.terms().unknown == UnknownPolicy::Query))
}

fn nobody_to_ask(rules: &Rules, error: EngineError) -> RulesError {
    if rules.unknown == Some(Unknown::Query) && rules.query_url.is_none() {
        return RulesError::new("unknown = \"query\" needs query_url, or an engine with a recovery hook");
    }
    error.into()
}

fn policy(base: Policy, profile: Profile, rules: &Rules) -> Result<Policy, RulesError> {
    let sealed = Outcome::tombstone(snapshot::CONTENT_VERSION, Tombstone::Indeterminate);
    let mut policy =
        base.sealed(sealed.with_head(snapshot::head(http::StatusCode::INTERNAL_SERVER_ERROR, None))?);
    if let Some(lease) = rules.lease {
        policy = policy.lease(Lease::new(lease.0)?);
    }
    if let Some(run_max) = rules.run_max {
        policy = policy.run_max(run_max.0);
    }
    if let Some(retention) = rules.retention {
        policy = policy.retention(Retention::new(retention.0)?);
    }
    if let Some(retention) = rules.unknown_retention {
        policy = policy.unknown_retention(Retention::new(retention.0)?);
    }
    let customary = (profile == Profile::Stripe).then_some(Unknown::Seal);
    if let Some(unknown) = rules.unknown.or(customary) {
        policy = policy.unknown(unknown.into());
    }
    if let Some(hold_for) = rules.hold_for {
        policy = policy.hold_for(hold_for.0);
    }
    if let Some(attempts_max) = rules.attempts_max {
        policy = policy.attempts_max(attempts_max);
    }
    if let Some(wait) = rules.wait {
        policy = policy.wait(wait.0);
    }
    if let Some(waiters_max) = rules.waiters_max {
        policy = policy.waiters_max(waiters_max);
    }
    if let Some(Limits { in_flight_max, records_max, bytes_max }) = rules.limits {
        policy = policy.quota(onlyonce_core::Quota { in_flight_max, records_max, bytes_max });
    }
    policy.check()?;
    Ok(policy)
}
