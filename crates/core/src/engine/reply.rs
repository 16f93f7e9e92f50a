//! What goes into the engine and what comes out: requests, endings of work, and replies. Values only.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::recover::RecoveryHook;
use crate::fingerprint::Fingerprinted;
use crate::lease::Retention;
use crate::outcome::{Outcome, Tombstone};
use crate::record::Fence;
use crate::scope::{RecordId, ScopedKey};
use crate::secret::Secret;
use crate::transition::Replay;

/// One call of an operation.
pub struct Request {
    pub(super) id: RecordId,
    pub(super) key: ScopedKey,
    pub(super) fingerprint: Arc<dyn Fingerprinted>,
    pub(super) wait: Option<Duration>,
    pub(super) hook: Option<Arc<dyn RecoveryHook>>,
    pub(super) is_on_record: bool,
}

impl Request {
    /// The call named by `key` that looks like `fingerprint`.
    pub fn new(secret: &Secret, key: ScopedKey, fingerprint: impl Fingerprinted + 'static) -> Self {
        Self::shared(secret, key, Arc::new(fingerprint))
    }

    /// The same, for callers who keep a hand on what they look like: to take it back when the work never began.
    pub fn shared(secret: &Secret, key: ScopedKey, fingerprint: Arc<dyn Fingerprinted>) -> Self {
        let id = key.record_id(secret);
        Self { id, key, fingerprint, wait: None, hook: None, is_on_record: false }
    }

    /// Waits for this long, and not as the policy says, if someone else runs it.
    #[must_use]
    pub const fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Asks `hook`, and not the engine's own, what became of it: for hooks that ask on behalf of this caller.
    #[must_use]
    pub fn recovered_by(mut self, hook: Arc<dyn RecoveryHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    /// Says that its caller has seen a record of it: should the store fail before anything is claimed, the error tells of
    /// another attempt ([`EngineError::is_taken`](super::EngineError::is_taken)).
    #[must_use]
    pub const fn on_record(mut self) -> Self {
        self.is_on_record = true;
        self
    }

    /// Where the operation is remembered.
    pub const fn id(&self) -> RecordId {
        self.id
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How work ends, as the work itself declares it. `value` goes to the caller in each case.
#[derive(Debug)]
pub enum Ending<R> {
    /// It is done: record the outcome.
    Complete {
        /// For the caller.
        value: R,
        /// For retries.
        outcome: Outcome,
        /// A retention other than the policy's.
        retention: Option<Retention>,
    },
    /// It did not happen: the next call runs it.
    Release {
        /// For the caller.
        value: R,
        /// Whether the next call must be the same request. `false` after a refusal of this one.
        keep_fingerprint: bool,
    },
    /// It may have happened.
    Abandon {
        /// For the caller.
        value: R,
    },
}

/// What became of a call.
#[derive(Debug)]
pub enum Reply<R> {
    /// The work ran now.
    Ran(Ran<R>),
    /// The work ran before; this was its outcome.
    Replay(Replay),
    /// The work was not run for this call, or its result cannot be given out.
    Conflict(Conflict),
}

/// Work that ran for this call.
#[derive(Debug)]
pub struct Ran<R> {
    /// What it returned.
    pub value: R,
    /// The fence it ran under.
    pub fence: Fence,
    /// 1 for the first.
    pub attempt: u32,
    /// What is on record.
    pub recorded: Recorded,
}

/// What is on record after work ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The outcome: retries get it.
    Completed,
    /// That it did not happen: a retry runs it.
    Released,
    /// That nobody knows: the policy decides.
    Abandoned,
    /// Nothing yet: the store failed. It is tried again in the background.
    Unrecorded,
    /// Another answer: the record was sealed or resolved before the work returned.
    Late,
}

/// Why a call got no answer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflict {
    /// Someone else runs it.
    InFlight {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// Nobody knows whether it happened.
    OutcomeUnknown {
        /// The fence to resolve it with.
        fence: Fence,
        /// How this call's own attempt was cut short; `None` when it made none.
        cut: Option<Cut>,
    },
    /// The key was used for another request.
    KeyReused,
    /// The grant was lost while the work ran; another attempt holds the truth.
    Fenced,
    /// The principal uses as much as it may: no claim was made.
    OverQuota {
        /// When asking again makes sense.
        retry_after: Duration,
    },
    /// It was done before, but its answer was not kept.
    NotKept {
        /// Why.
        why: Tombstone,
    },
}

/// How an attempt ended that did not return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The work panicked.
    Panicked,
    /// The lease could not be kept, or the attempt took longer than it may.
    OutOfTime,
    /// The process shuts down.
    ShutDown,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InFlight { .. } => "the operation is running",
            Self::OutcomeUnknown { .. } => "it is unknown whether the operation happened",
            Self::KeyReused => "the key was used for another request",
            Self::Fenced => "another attempt has taken over",
            Self::OverQuota { .. } => "the caller uses as much as it may",
            Self::NotKept { .. } => "the operation was done, its answer was not kept",
        })
    }
}

impl std::error::Error for Conflict {}

/// What became of a typed call.
#[derive(Debug)]
pub enum Run<T, E> {
    /// There is a value.
    Done(Done<T>),
    /// The work ran for this call and failed.
    Failed(Failure<E>),
    /// There is no value for this call.
    Conflict(Conflict),
}

/// A value, run for or replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done<T> {
    /// The value.
    pub value: T,
    /// Whether it comes from the record.
    pub replayed: bool,
    /// The attempt that made it.
    pub attempt: u32,
    /// What is on record. Only `Completed` protects the next retry.
    pub recorded: Recorded,
}

impl<T, E> Run<T, E> {
    /// The value, if there is one.
    pub fn done(self) -> Option<Done<T>> {
        match self {
            Self::Done(done) => Some(done),
            Self::Failed(_) | Self::Conflict(_) => None,
        }
    }
}

/// Work that failed, and what is known about its effect.
///
/// An error that is merely passed on with `?` is *unknown*: only the work can know that nothing happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<E> {
    /// What went wrong.
    pub error: E,
    pub(super) effect: Effect,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Refused,
    RolledBack,
    Unknown,
}

impl<E> Failure<E> {
    /// The request was refused before anything happened: a corrected one may use the key.
    pub const fn refused(error: E) -> Self {
        Self { error, effect: Effect::Refused }
    }

    /// Nothing happened, or it was rolled back: the same request may be tried again.
    pub const fn rolled_back(error: E) -> Self {
        Self { error, effect: Effect::RolledBack }
    }

    /// It may have happened.
    pub const fn unknown(error: E) -> Self {
        Self { error, effect: Effect::Unknown }
    }
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Self {
        Self::unknown(error)
    }
}
