//! What operators ask of records and say about them: named commands, audited before they run, behind the admin API and
//! `onlyonce records` alike.

mod audit;
mod call;
pub(crate) mod naming;
mod open;
mod outcome;
mod records;
mod shown;
pub(crate) mod verdict;

use std::path::PathBuf;
use std::sync::Arc;

use onlyonce_core::{Engine, RecordId, Secret, Store};
use onlyonce_http::ProblemKind;
use serde_json::Value;

pub(crate) use self::audit::Audit;
use self::audit::{Entry, WHY_CHARS_MAX};
pub(crate) use self::call::Target;
pub use self::call::{Asked, By, Call, Filter, Freeing, OfPrincipal, Resolution, Sought};
pub(crate) use self::naming::Naming;
pub use self::open::{OfDoor, OpenOperator};
pub use self::outcome::GivenOutcome;
pub(crate) use self::records::stats;
pub(crate) use self::shown::{now, time};
pub use self::verdict::VerdictName;
use crate::config::{ConfigError, Sources};
use crate::events::Ring;
use crate::refusal::Refusal;

/// Answers operators about the records of one process or one store. Cheap to clone.
#[derive(Clone)]
pub struct Operator(Arc<Shared>);

struct Shared {
    places: Vec<Place>,
    audit: Option<Audit>,
    /// What this process saw; nothing, when there is only a store.
    events: Option<Arc<Ring>>,
    warning: Option<String>,
}

/// The audit of what is done to the files of a store, past any process that serves it.
#[derive(Debug, Clone)]
pub struct AuditFile(Audit);

impl AuditFile {
    /// The one that `sources` name, or the one beside a store that is a folder.
    pub fn of(sources: &Sources) -> Result<Option<Self>, ConfigError> {
        Ok(sources.read()?.audit_file().map(Self::at))
    }

    /// The one at `path`.
    pub fn at(path: PathBuf) -> Self {
        Self(Audit::new(path))
    }

    /// Runs `action` between two lines: that it is about to run, and what `told` makes of its answer. What cannot be
    /// audited does not run.
    pub async fn around<T>(
        &self,
        action: &'static str,
        what: String,
        by: &By,
        run: impl Future<Output = T>,
        told: impl FnOnce(&T) -> String,
    ) -> Result<T, Refusal> {
        self.0.around(Entry { action, id: None, what: Some(what), by }, run, told).await
    }
}

/// Where records are, and how they are named there.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) name: Arc<str>,
    pub(crate) store: Arc<dyn Store>,
    secret: Secret,
    naming: Naming,
}

impl Place {
    pub(crate) fn new(name: impl Into<Arc<str>>, engine: &Engine, naming: Naming) -> Self {
        let (store, secret) = (Arc::clone(engine.store()), engine.secret().clone());
        Self { name: name.into(), store, secret, naming }
    }
}

impl Operator {
    pub(crate) fn new(places: Vec<Place>, audit: Option<Audit>, events: Option<Arc<Ring>>) -> Self {
        Self(Arc::new(Shared { places, audit, events, warning: None }))
    }

    /// The same, with what whoever asks must be told first.
    fn warning_of(self, warning: Option<String>) -> Self {
        let Shared { places, audit, events, .. } = &*self.0;
        let (places, audit, events) = (places.clone(), audit.clone(), events.clone());
        Self(Arc::new(Shared { places, audit, events, warning }))
    }

    /// What to know before its answers are read: that the keys at hand are not those of the store.
    pub fn warning(&self) -> Option<&str> {
        self.0.warning.as_deref()
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.0.places
    }

    pub(crate) fn audit(&self) -> Option<&Audit> {
        self.0.audit.as_ref()
    }

    /// Answers a question, or runs a command. A command goes on to its end once this is polled to it: put it on a task
    /// of its own where whoever asks may go away.
    pub async fn answer(&self, asked: Asked) -> Result<Value, Refusal> {
        let Asked { call, namespace, by } = asked;
        let namespace = namespace.as_deref();
        if let Call::Audit { after, limit } = call {
            return self.auditor()?.page(after, limit).await;
        }
        let place = self.place(namespace)?;
        match call {
            Call::List(filter) => place.list(&filter).await,
            Call::Show { id, body: false } => place.show(&id, &self.seen(&id), false).await,
            Call::Find(sought) => place.find(&sought, namespace).await,
            Call::Stats => place.stats().await,
            Call::Audit { .. } => Err(Refusal::invalid("the audit is of the whole process")),
            Call::Show { id, body: true } => {
                let showing = async { place.show(&id, &self.seen(&id), true).await };
                self.audited(("read-body", Some(id), None), &by, showing).await
            }
            Call::Resolve { id, resolution } => {
                why_is_said(&by)?;
                let what = resolution.told();
                let resolving = place.resolve(&id, resolution, by.who.as_deref(), self.events());
                self.audited(("resolve", Some(id), Some(what)), &by, resolving).await
            }
            Call::Release { id, freeing } => {
                why_is_said(&by)?;
                let what = freeing.told();
                let releasing = place.release(&id, freeing, by.who.as_deref(), self.events());
                self.audited(("release", Some(id), Some(what)), &by, releasing).await
            }
            Call::Erase { id } => {
                why_is_said(&by)?;
                self.audited(("erase", Some(id), None), &by, place.erase(id, self.events())).await
            }
            Call::ErasePrincipal(of) => {
                why_is_said(&by)?;
                let what = place.scopes_told(&of, namespace)?;
                let erasing = place.erase_all(&of, namespace, self.events());
                self.audited(("erase-principal", None, Some(what)), &by, erasing).await
            }
            Call::Purge => {
                why_is_said(&by)?;
                self.audited(("purge", None, None), &by, place.purge()).await
            }
        }
    }

    fn events(&self) -> Option<&Ring> {
        self.0.events.as_deref()
    }

    fn seen(&self, id: &RecordId) -> Vec<crate::events::Seen> {
        self.events().map(|ring| ring.of(id)).unwrap_or_default()
    }

    /// The place that is meant: the one of that name, where there are several.
    fn place(&self, namespace: Option<&str>) -> Result<&Place, Refusal> {
        if let [only] = self.0.places.as_slice() {
            return Ok(only);
        }
        let names: Vec<&str> = self.0.places.iter().map(|place| &*place.name).collect();
        let names = names.join(", ");
        let Some(namespace) = namespace else {
            return Err(Refusal::invalid(format!("say which `namespace` is meant: {names}")));
        };
        let found = self.0.places.iter().find(|place| &*place.name == namespace);
        found.ok_or_else(|| Refusal::invalid(format!("`namespace` is none of: {names}")))
    }

    fn auditor(&self) -> Result<&Audit, Refusal> {
        self.0.audit.as_ref().ok_or_else(|| {
            let detail =
                "no audit file is named: set [admin] audit (or --audit), so that it can be seen who did what";
            Refusal::new(ProblemKind::AuditUnavailable, detail)
        })
    }

    /// Runs a command between two lines of the audit: that it is about to run, and what came of it.
    async fn audited(
        &self,
        (action, id, what): (&'static str, Option<RecordId>, Option<String>),
        by: &By,
        run: impl Future<Output = Result<Value, Refusal>>,
    ) -> Result<Value, Refusal> {
        let told = |answer: &Result<Value, Refusal>| match answer {
            Ok(value) => told(value),
            Err(refusal) => {
                let problem = refusal.to_json();
                let may_have_run = problem["outcome_unknown"].as_bool().unwrap_or(false);
                let how = if may_have_run { "failed, may have run" } else { "refused" };
                format!("{how}: {}", problem["detail"].as_str().unwrap_or_default())
            }
        };
        self.auditor()?.around(Entry { action, id, what, by }, run, told).await?
    }
}

/// An answer in a few words: its own, or its figures. Never a body.
fn told(value: &Value) -> String {
    if let Some(answer) = value["answer"].as_str() {
        return answer.to_owned();
    }
    // A record that is shown has figures of its own, and they are not what was done.
    if value["state"].is_string() {
        return "shown".to_owned();
    }
    let figures = value.as_object().into_iter().flatten();
    let figures = figures.filter(|(_, value)| value.is_number() || value.is_boolean());
    let figures: Vec<_> = figures.map(|(name, value)| format!("{name} {value}")).collect();
    figures.join(", ")
}

fn why_is_said(by: &By) -> Result<(), Refusal> {
    match &by.why {
        Some(why) => audit::checked("why", why, WHY_CHARS_MAX).map(drop),
        None => Err(Refusal::invalid("`why` is missing: every command says why, for the audit")),
    }
}
