//! What operators may say about a record, and what becomes of it: behind the claims API and the admin side alike.

use onlyonce_core::record::StateKind;
use onlyonce_core::transition::{Actor, Erase, EraseAnswer, Resolve, ResolveAnswer, Verdict};
use onlyonce_core::{Outcome, RecordId, Store};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::claims::millis;
use crate::refusal::Refusal;
use crate::store::bounded;

/// The longest name of who resolves.
const ACTOR_CHARS_MAX: usize = 200;

/// How far an operation got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StateName {
    InFlight,
    Completed,
    Released,
    Unknown,
}

impl From<StateKind> for StateName {
    fn from(kind: StateKind) -> Self {
        match kind {
            StateKind::InFlight => Self::InFlight,
            StateKind::Completed => Self::Completed,
            StateKind::Released => Self::Released,
            StateKind::Unknown => Self::Unknown,
        }
    }
}

impl From<StateName> for StateKind {
    fn from(name: StateName) -> Self {
        match name {
            StateName::InFlight => Self::InFlight,
            StateName::Completed => Self::Completed,
            StateName::Released => Self::Released,
            StateName::Unknown => Self::Unknown,
        }
    }
}

/// What happened to a record that is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictName {
    /// The work happened.
    Executed,
    /// The work did not happen, and no longer can.
    NotExecuted,
    /// It could not be found out.
    StillUnknown,
}

/// What became of a resolution.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum ResolveResult {
    Resolved,
    Already,
    /// There is nothing to resolve.
    NotUnknown {
        state: StateName,
    },
    /// The record is at this fence now.
    Stale {
        fence: u64,
    },
    /// The attempt may still run for this long.
    TooEarly {
        left_ms: u64,
    },
    Contradicted,
    Absent,
}

impl From<ResolveAnswer> for ResolveResult {
    fn from(answer: ResolveAnswer) -> Self {
        match answer {
            ResolveAnswer::Resolved => Self::Resolved,
            ResolveAnswer::Already => Self::Already,
            ResolveAnswer::NotUnknown(state) => Self::NotUnknown { state: StateKind::into(state) },
            ResolveAnswer::Stale(fence) => Self::Stale { fence: fence.get() },
            ResolveAnswer::TooEarly(left) => Self::TooEarly { left_ms: millis(left) },
            ResolveAnswer::Contradicted => Self::Contradicted,
            ResolveAnswer::Absent => Self::Absent,
        }
    }
}

/// What became of an erasure.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub(crate) enum EraseResult {
    Erased,
    InFlight,
    Absent,
}

impl From<EraseAnswer> for EraseResult {
    fn from(answer: EraseAnswer) -> Self {
        match answer {
            EraseAnswer::Erased => Self::Erased,
            EraseAnswer::InFlight => Self::InFlight,
            EraseAnswer::Absent => Self::Absent,
        }
    }
}

/// The verdict that is named, with what it needs and nothing else.
pub(crate) fn verdict(
    name: VerdictName,
    outcome: Option<Outcome>,
    force: Option<bool>,
) -> Result<Verdict, Refusal> {
    match (name, outcome, force) {
        (VerdictName::Executed, Some(outcome), None) => Ok(Verdict::Executed(outcome)),
        (VerdictName::Executed, _, _) => Err(Refusal::invalid("`executed` needs `outcome`, and no `force`")),
        (VerdictName::NotExecuted, None, force) => Ok(Verdict::NotExecuted { force: force.unwrap_or(false) }),
        (VerdictName::StillUnknown, None, None) => Ok(Verdict::StillUnknown),
        _ => Err(Refusal::invalid("`outcome` is for `executed` only, `force` for `not-executed` only")),
    }
}

pub(crate) fn actor(name: Option<String>) -> Result<Actor, Refusal> {
    match name {
        None => Ok(Actor::Hook),
        Some(name) if !name.is_empty() && name.chars().count() <= ACTOR_CHARS_MAX => {
            Ok(Actor::Operator(name))
        }
        Some(_) => Err(Refusal::invalid("`actor` has 1 to 200 characters")),
    }
}

/// Resolves a record of `place`, and writes into the log who said so.
pub(crate) async fn resolved(
    store: &dyn Store,
    place: &str,
    resolve: &Resolve,
) -> Result<ResolveResult, Refusal> {
    let answer = bounded(store.resolve(resolve)).await?;
    tracing::info!(
        target: "onlyonce::audit", namespace = place, id = resolve.id.short(), fence = resolve.fence.get(),
        actor = ?resolve.actor, ?answer, "resolved"
    );
    Ok(answer.into())
}

/// The same for erasures.
pub(crate) async fn erased(store: &dyn Store, place: &str, id: RecordId) -> Result<EraseResult, Refusal> {
    let answer = bounded(store.erase(&Erase { id })).await?;
    tracing::info!(target: "onlyonce::audit", namespace = place, id = id.short(), ?answer, "erased");
    Ok(answer.into())
}
