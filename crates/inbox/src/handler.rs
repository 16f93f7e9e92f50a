//! What a handler gets and what it may say about how it went.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Execution, Outcome, RecordId};

use crate::id::MessageId;
use crate::message::Message;

/// What handling returns.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Handled> + Send>>;

/// Does what a message asks for. Any `Fn(Work) -> impl Future<Output = Handled>` is one.
///
/// A handler that panics, or that is stopped by the end of its lease or a shutdown, may have had its effect: its record
/// becomes unknown, and the policy decides.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message. Called on a task of its own.
    fn handle(&self, work: Work) -> HandlerFuture;

    /// Told of a delivery whose message is done, with its record and what came of it, before it is acknowledged. Nothing is to
    /// be done for it: this is for logs and traces. Does nothing by default.
    fn duplicate(&self, work: &Work, record: &RecordId, outcome: &Outcome) {
        let _ = (work, record, outcome);
    }
}

impl<H, F> Handler for H
where
    H: Fn(Work) -> F + Send + Sync + 'static,
    F: Future<Output = Handled> + Send + 'static,
{
    fn handle(&self, work: Work) -> HandlerFuture {
        Box::pin(self(work))
    }
}

/// One message to be handled.
#[derive(Debug, Clone)]
pub struct Work {
    pub(crate) message: Arc<Message>,
    pub(crate) id: Option<MessageId>,
    pub(crate) execution: Option<Execution>,
}

impl Work {
    /// The message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// What names it; `None` when nothing does and the consumer runs such messages all the same.
    pub const fn id(&self) -> Option<&MessageId> {
        self.id.as_ref()
    }

    /// The grant it runs under: fence, attempt, keys for calls to others. `None` when nothing protects it.
    pub const fn execution(&self) -> Option<&Execution> {
        self.execution.as_ref()
    }

    /// 1 for the first attempt; also 1 when nobody counts.
    pub fn attempt(&self) -> u32 {
        self.execution.as_ref().map_or(1, Execution::attempt)
    }
}

/// How handling went, and what is known about its effect.
#[derive(Clone, PartialEq, Eq)]
pub enum Handled {
    /// It is done. The outcome is kept and the message is acknowledged.
    Done(Outcome),
    /// Nothing happened, or it was rolled back: it may be tried again.
    Retry {
        /// Why, for logs and dead letters.
        why: String,
        /// When; by the consumer's backoff when `None`.
        after: Option<Duration>,
    },
    /// It may have happened. Tried again or not, as the policy for unknown outcomes says.
    Unknown {
        /// Why, for logs and dead letters.
        why: String,
    },
    /// It will never be done, and nothing happened: to the dead letters.
    Refused {
        /// Why, for logs and dead letters.
        why: String,
    },
}

impl Handled {
    /// Done, with nothing worth keeping but that.
    pub fn done() -> Self {
        Self::Done(Outcome::kept(MESSAGE_OUTCOME, ""))
    }

    /// Done, with `result` to be given to whoever asks again.
    pub fn with(result: impl Into<bytes::Bytes>) -> Self {
        Self::Done(Outcome::kept(MESSAGE_OUTCOME, result))
    }

    /// Nothing happened; try again by the backoff.
    pub fn retry(why: impl Into<String>) -> Self {
        Self::Retry { why: why.into(), after: None }
    }

    /// It will never be done.
    pub fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into() }
    }

    /// It may have happened.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }
}

/// Marks outcomes that a handler of messages wrote, so that bytes of another door are never read as one.
pub const MESSAGE_OUTCOME: u16 = 2;

impl fmt::Debug for Handled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(outcome) => write!(f, "Done({outcome:?})"),
            Self::Retry { why, after } => write!(f, "Retry({why:?}, {after:?})"),
            Self::Unknown { why } => write!(f, "Unknown({why:?})"),
            Self::Refused { why } => write!(f, "Refused({why:?})"),
        }
    }
}
