//! Finding out what happened to an unknown outcome, by asking someone who can know.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::{Engine, EngineError, Request};
use crate::decision;
use crate::error::BoxError;
use crate::outcome::Outcome;
use crate::record::{Fence, Step};
use crate::scope::{RecordId, ScopedKey};
use crate::transition::{Actor, RecoverGrant, Resolve, ResolveAnswer, Verdict};

/// Knows, or can find out, whether an operation happened: a lookup by reference, a safe GET.
///
/// # Contract
/// 1. It has no effect of its own.
/// 2. `Executed` and `NotExecuted` are said only when they are known. A failure or a doubt is `Unknown`.
///
/// "Not executed" counts only once the attempt can no longer run (its maximum run time is over); until then the
/// outcome stays unknown.
pub trait RecoveryHook: fmt::Debug + Send + Sync + 'static {
    /// Finds out. It is given as long as a lease.
    fn find_out<'a>(
        &'a self,
        question: &'a Question,
    ) -> Pin<Box<dyn Future<Output = Result<Found, BoxError>> + Send + 'a>>;
}

/// What is asked of a hook.
#[derive(Debug, Clone)]
pub struct Question {
    /// The operation.
    pub key: ScopedKey,
    /// Where it is remembered.
    pub id: RecordId,
    /// The fence of the attempt in question.
    pub fence: Fence,
    /// The attempt in question.
    pub attempt: u32,
    /// What that attempt recorded: a reference to ask for, perhaps.
    pub steps: Vec<Step>,
}

/// What a hook found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It happened, with this outcome.
    Executed(Outcome),
    /// It did not happen.
    NotExecuted,
    /// It could not be found out.
    Unknown,
}

impl Engine {
    /// Asks the hook and resolves by its answer. `true` when the outcome is known now.
    pub(super) async fn recover(&self, request: &Request, grant: RecoverGrant) -> Result<bool, EngineError> {
        let question = Question {
            key: request.key.clone(),
            id: request.id,
            fence: grant.fence,
            attempt: grant.attempt,
            steps: grant.steps,
        };
        let hook = request.hook.as_ref().or(self.shared.hook.as_ref()).map(Arc::clone);
        let found = match hook {
            Some(hook) => self.ask(hook, question).await,
            // Nobody to ask: a request that was to bring its own hook did not.
            None => None,
        };
        let verdict = decision::verdict(found, grant.quiet_in);
        let known = verdict != Verdict::StillUnknown;
        let resolve = Resolve { id: request.id, fence: grant.fence, verdict, actor: Actor::Hook };
        let resolving = self.shared.store.resolve(&resolve);
        let answer = match self.shared.bounded(self.policy.store_within, resolving).await {
            Ok(answer) => answer,
            Err(error) => {
                // The recovery ends with its lease; nothing was run.
                self.shared.observe_failure(&request.id, grant.fence, &error);
                return Err(EngineError::from(error).taken());
            }
        };
        Ok(match answer {
            ResolveAnswer::Resolved | ResolveAnswer::Already => known,
            // The true owner completed, or an operator resolved, while we asked: that is an answer.
            ResolveAnswer::NotUnknown(_) | ResolveAnswer::Stale(_) | ResolveAnswer::Absent => true,
            ResolveAnswer::TooEarly(_) | ResolveAnswer::Contradicted => false,
        })
    }

    /// The hook's finding; `None` when it failed, panicked or took longer than the recovery's lease.
    async fn ask(&self, hook: Arc<dyn RecoveryHook>, question: Question) -> Option<Found> {
        let id = question.id;
        let mut asking = tokio::spawn(async move { hook.find_out(&question).await });
        let found = tokio::select! {
            found = &mut asking => found,
            () = self.shared.clock.sleep(self.terms.lease.get()) => {
                asking.abort();
                tracing::warn!(id = id.short(), "the recovery hook took longer than a lease");
                return None;
            }
            () = self.shared.aborting.cancelled() => {
                asking.abort();
                return None;
            }
        };
        match found {
            Ok(Ok(found)) => Some(found),
            Ok(Err(error)) => {
                tracing::warn!(id = id.short(), %error, "the recovery hook failed");
                None
            }
            Err(error) => {
                tracing::warn!(id = id.short(), %error, "the recovery hook panicked");
                None
            }
        }
    }
}
