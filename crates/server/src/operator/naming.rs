//! From what an operator knows of a caller to where its records are, as the door in front derives it.

use std::sync::Arc;

use onlyonce_core::{Key, Principal, Scope, ScopedKey};
use onlyonce_http::Handle;
use onlyonce_inbox::MessageId;

use super::call::Sought;
use crate::refusal::Refusal;

/// The most bytes of what narrows a key.
const NARROWING_BYTES_MAX: usize = 1000;

/// Whose way of naming records is followed.
#[derive(Debug, Clone)]
pub(crate) enum Naming {
    /// The routes of a sidecar.
    Routes(Handle),
    /// The consumer of this name.
    Messages(Arc<str>),
    /// The claims API, in the namespace of this name.
    Claims(Arc<str>),
}

impl Naming {
    /// The operation that is sought.
    pub(crate) fn key(&self, sought: &Sought, namespace: Option<&str>) -> Result<ScopedKey, Refusal> {
        let principal = sought.principal.as_deref();
        match self {
            Self::Routes(routes) => {
                let scope = routed(routes, sought.path.as_deref(), principal, namespace)?;
                Ok(scope.into_key(key(&sought.key)?))
            }
            Self::Messages(consumer) => {
                let id = MessageId::given(&sought.key).ok_or_else(|| Refusal::invalid("`key` is empty"))?;
                Ok(id.for_consumer(consumer))
            }
            Self::Claims(name) => claimed(name, &sought.key, principal, sought.path.as_deref()),
        }
    }

    /// Every scope that only `principal` has keys in.
    pub(crate) fn scopes(&self, principal: &str, namespace: Option<&str>) -> Result<Vec<Scope>, Refusal> {
        let mut scopes = match self {
            Self::Routes(routes) => routes.scopes(Some(principal)),
            Self::Messages(_) => {
                return Err(Refusal::invalid("messages have no principals: erase them by their ids"));
            }
            Self::Claims(name) => {
                narrowing("principal", Some(principal))?;
                vec![Scope::new(Arc::clone(name), Principal::named(principal))]
            }
        };
        scopes.retain(|scope| namespace.is_none_or(|namespace| namespace == scope.namespace()));
        if scopes.is_empty() {
            return Err(Refusal::invalid("`namespace` is none that keys are in here"));
        }
        // A scope that everybody shares holds more than one principal's records.
        scopes.retain(|scope| matches!(scope.principal(), Principal::Named(_)));
        if scopes.is_empty() {
            return Err(Refusal::invalid(
                "callers are not told apart here: there are no records of one alone",
            ));
        }
        Ok(scopes)
    }
}

fn key(text: &str) -> Result<Key, Refusal> {
    Key::new(text).map_err(|error| Refusal::invalid(format!("`key`: {error}")))
}

/// The scope on `path`; without one, the only scope there is.
fn routed(
    routes: &Handle,
    path: Option<&str>,
    principal: Option<&str>,
    namespace: Option<&str>,
) -> Result<Scope, Refusal> {
    let is_meant = |scope: &Scope| namespace.is_none_or(|namespace| namespace == scope.namespace());
    if let Some(path) = path {
        let scope = routes.scope(path, principal);
        if is_meant(&scope) {
            return Ok(scope);
        }
        let detail = format!("keys of this path are in the namespace `{}`", scope.namespace());
        return Err(Refusal::invalid(detail));
    }
    let mut scopes = routes.scopes(principal);
    scopes.retain(is_meant);
    match (scopes.pop(), scopes.is_empty()) {
        (Some(scope), true) => Ok(scope),
        (Some(_), false) => {
            Err(Refusal::invalid("routes name their keys differently: say the `path` of the request"))
        }
        (None, _) => Err(Refusal::invalid("`namespace` is none that keys are in here")),
    }
}

/// The operation that the claims API knows by this key.
pub(crate) fn claimed(
    namespace: &Arc<str>,
    text: &str,
    principal: Option<&str>,
    path: Option<&str>,
) -> Result<ScopedKey, Refusal> {
    let key = key(text)?;
    narrowing("principal", principal)?;
    narrowing("path", path)?;
    let principal = principal.map_or(Principal::Shared, Principal::named);
    let mut scope = Scope::new(Arc::clone(namespace), principal);
    if let Some(path) = path {
        scope = scope.on_path(path);
    }
    Ok(scope.into_key(key))
}

fn narrowing(name: &str, text: Option<&str>) -> Result<(), Refusal> {
    match text {
        Some(text) if text.len() > NARROWING_BYTES_MAX => {
            Err(Refusal::invalid(format!("`{name}` is longer than {NARROWING_BYTES_MAX} bytes")))
        }
        _ => Ok(()),
    }
}
