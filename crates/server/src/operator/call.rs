//! What can be asked of the records: the same questions and commands over HTTP and straight on a store.

mod target;

use http::Method;
use onlyonce_core::RecordId;
use onlyonce_http::ProblemKind;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::outcome::GivenOutcome;
use super::verdict::VerdictName;
use crate::refusal::Refusal;

pub(crate) use target::Target;

/// A question or a command, with who asks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What is asked.
    pub call: Call,
    /// Where: the namespace of a claims API, or of keys.
    pub namespace: Option<String>,
    /// By whom.
    pub by: By,
}

/// Who asks, for the audit.
#[derive(Debug, Clone, Default)]
pub struct By {
    /// The name they give.
    pub who: Option<String>,
    /// Why, which every command must say.
    pub why: Option<String>,
    /// From where.
    pub from: String,
}

/// What can be asked.
#[derive(Debug, Clone)]
pub enum Call {
    /// A page of records.
    List(Filter),
    /// One record, with its body if that is asked for.
    Show {
        /// The record.
        id: RecordId,
        /// Whether bodies are shown.
        body: bool,
    },
    /// The record of a key.
    Find(Sought),
    /// Say what happened to an unknown record.
    Resolve {
        /// The record.
        id: RecordId,
        /// What happened.
        resolution: Resolution,
    },
    /// Free the key of an unknown record.
    Release {
        /// The record.
        id: RecordId,
        /// Of which attempt.
        freeing: Freeing,
    },
    /// Drop what a record holds about a person.
    Erase {
        /// The record.
        id: RecordId,
    },
    /// The same for all records of one principal.
    ErasePrincipal(OfPrincipal),
    /// Remove some of what has expired.
    Purge,
    /// How much is stored.
    Stats,
    /// What operators did.
    Audit {
        /// Only entries after this number.
        after: u64,
        /// How many at most.
        limit: Option<usize>,
    },
}

/// Which records are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these states; all when empty.
    pub states: Vec<String>,
    /// Only ids that begin with these digits.
    pub prefix: Option<String>,
    /// Only this scope: 16 hexadecimal digits.
    pub scope: Option<String>,
    /// Only records first claimed longer ago than this.
    pub older_than: Option<String>,
    /// Only ids after this one.
    pub after: Option<String>,
    /// How many at most.
    pub limit: Option<usize>,
}

/// What is known of a request whose record is sought.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sought {
    /// Its key.
    pub key: String,
    /// Who asked: what the caller shows, as the route reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Its method. Routes do not differ by it; it is taken so that a request can be described whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What happened to an unknown record.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolution {
    /// The fence of the attempt in question.
    pub fence: u64,
    /// What happened.
    pub verdict: VerdictName,
    /// What came out, when it was executed; without it, retries learn that the answer was not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<GivenOutcome>,
    /// The path of the request, if it is known: its route says what of the outcome may be kept. Without it, what any route
    /// forbids is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// "Not executed" although the attempt may still be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

impl Resolution {
    /// In a few words, for the audit.
    pub(super) fn told(&self) -> String {
        let verdict = match self.verdict {
            VerdictName::Executed => "executed",
            VerdictName::NotExecuted => "not-executed",
            VerdictName::StillUnknown => "still-unknown",
        };
        told(verdict, self.fence, self.force)
    }
}

fn told(verdict: &str, fence: u64, force: Option<bool>) -> String {
    format!("{verdict}, fence {fence}{}", if force == Some(true) { ", by force" } else { "" })
}

/// Which attempt did not happen.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Freeing {
    /// Its fence.
    pub fence: u64,
    /// Also when it may still be running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
}

impl Freeing {
    /// In a few words, for the audit.
    pub(super) fn told(&self) -> String {
        told("not-executed", self.fence, self.force)
    }
}

/// Whose records are meant.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfPrincipal {
    /// What the principal shows, as the routes read it.
    pub principal: String,
    /// Only ids after this one: the `next` of the answer before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

impl Asked {
    /// Reads a question about `target`: from the query of a GET, from the body of a POST.
    pub(crate) fn read(
        target: Target,
        query: Vec<(String, String)>,
        body: &[u8],
        from: String,
    ) -> Result<Self, Refusal> {
        if target.method() == Method::GET {
            return Self::questioned(target, query, from);
        }
        if !query.is_empty() {
            return Err(Refusal::invalid("a command says everything in its body"));
        }
        let mut fields: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| Refusal::invalid(error.to_string()))?;
        let mut text = |name: &str| match fields.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::invalid(format!("`{name}` is not text"))),
        };
        let by = By { who: text("who")?, why: text("why")?, from };
        let is_find = matches!(target, Target::Find);
        let namespace = text("namespace")?;
        if is_find && by.why.is_some() {
            return Err(Refusal::invalid("`why` is for commands: looking for a record changes nothing"));
        }
        let call = match target {
            Target::Find => Call::Find(rest(fields)?),
            Target::Resolve(id) => Call::Resolve { id, resolution: rest(fields)? },
            Target::Release(id) => Call::Release { id, freeing: rest(fields)? },
            Target::Erase(id) => rest::<Nothing>(fields).map(|_| Call::Erase { id })?,
            Target::ErasePrincipal => Call::ErasePrincipal(rest(fields)?),
            _ => rest::<Nothing>(fields).map(|_| Call::Purge)?,
        };
        Ok(Self { call, namespace, by })
    }

    fn questioned(target: Target, query: Vec<(String, String)>, from: String) -> Result<Self, Refusal> {
        let (mut filter, mut body, mut namespace) = (Filter::default(), false, None);
        let (mut by, mut after_entry) = (By { from, ..By::default() }, 0);
        for (name, value) in query {
            let number =
                || value.parse::<u64>().map_err(|_| Refusal::invalid(format!("`{name}` is not a number")));
            match (name.as_str(), &target) {
                ("namespace", _) => namespace = Some(value),
                ("state", Target::Records) => filter.states.push(value),
                ("prefix", Target::Records) => filter.prefix = Some(value),
                ("scope", Target::Records) => filter.scope = Some(value),
                ("older_than", Target::Records) => filter.older_than = Some(value),
                ("after", Target::Records) => filter.after = Some(value),
                ("after", Target::Audit) => after_entry = number()?,
                ("limit", Target::Records | Target::Audit) => {
                    filter.limit = Some(usize::try_from(number()?).unwrap_or(usize::MAX));
                }
                ("body", Target::Record(_)) => body = value == "true",
                ("who", Target::Record(_)) => by.who = Some(value),
                _ => return Err(Refusal::invalid(format!("`{name}` is not asked here"))),
            }
        }
        let call = match target {
            Target::Records => Call::List(filter),
            Target::Record(id) => Call::Show { id, body },
            Target::Audit => Call::Audit { after: after_entry, limit: filter.limit },
            _ => Call::Stats,
        };
        Ok(Self { call, namespace, by })
    }

    /// The same as a request: method, path with query, and body.
    pub(crate) fn request(&self) -> (Method, String, Option<Value>) {
        let target = self.call.target();
        let mut path = target.path();
        let fields = match &self.call {
            Call::Find(sought) => json(sought),
            Call::Resolve { resolution, .. } => json(resolution),
            Call::Release { freeing, .. } => json(freeing),
            Call::ErasePrincipal(principal) => json(principal),
            Call::Erase { .. } | Call::Purge => Value::Object(Map::new()),
            Call::List(_) | Call::Show { .. } | Call::Stats | Call::Audit { .. } => {
                path.push_str(&target::query(&self.query()));
                return (Method::GET, path, None);
            }
        };
        let Value::Object(mut fields) = fields else { return (Method::POST, path, None) };
        let common = [("namespace", &self.namespace), ("who", &self.by.who), ("why", &self.by.why)];
        for (name, value) in common {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value.as_str().into());
            }
        }
        (Method::POST, path, Some(Value::Object(fields)))
    }

    /// What a GET says beside its path.
    fn query(&self) -> Vec<(&'static str, String)> {
        let mut query = Vec::new();
        let mut add = |name, value: &Option<String>| query.extend(value.clone().map(|value| (name, value)));
        add("namespace", &self.namespace);
        match &self.call {
            Call::List(filter) => {
                for state in &filter.states {
                    add("state", &Some(state.clone()));
                }
                add("prefix", &filter.prefix);
                add("scope", &filter.scope);
                add("older_than", &filter.older_than);
                add("after", &filter.after);
                add("limit", &filter.limit.map(|limit| limit.to_string()));
            }
            Call::Show { body: true, .. } => {
                add("body", &Some("true".to_owned()));
                add("who", &self.by.who);
            }
            Call::Audit { after, limit } => {
                add("after", &Some(after.to_string()));
                add("limit", &limit.map(|limit| limit.to_string()));
            }
            _ => {}
        }
        query
    }
}

impl Call {
    fn target(&self) -> Target {
        match self {
            Self::List(_) => Target::Records,
            Self::Show { id, .. } => Target::Record(*id),
            Self::Find(_) => Target::Find,
            Self::Resolve { id, .. } => Target::Resolve(*id),
            Self::Release { id, .. } => Target::Release(*id),
            Self::Erase { id } => Target::Erase(*id),
            Self::ErasePrincipal(_) => Target::ErasePrincipal,
            Self::Purge => Target::Purge,
            Self::Stats => Target::Stats,
            Self::Audit { .. } => Target::Audit,
        }
    }
}

fn rest<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, Refusal> {
    serde_json::from_value(Value::Object(fields))
        .map_err(|error| Refusal::new(ProblemKind::RequestInvalid, error.to_string()))
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
