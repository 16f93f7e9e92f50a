//! What the engine lets others see: one event for each thing that happened, with ids and never with keys or bodies.

use std::fmt;
use std::time::Duration;

use crate::record::Fence;
use crate::scope::RecordId;
use crate::store::{StoreError, StoreErrorKind};

/// Something that happened to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Work starts.
    Granted {
        /// 1 for the first.
        attempt: u32,
    },
    /// A recorded answer was given instead of running.
    Replayed {
        /// How old the answer is: retention can be sized by it.
        age: Duration,
    },
    /// Someone else runs it.
    Busy,
    /// Nobody knows whether it happened, and the caller was told so.
    Held,
    /// The key was used for another request.
    Mismatched,
    /// The principal uses as much as it may, and was refused before a claim.
    OverQuota,
    /// The outcome was recorded.
    Completed,
    /// The key was given back.
    Released,
    /// Nobody knows whether the work happened.
    Abandoned,
    /// A recovery hook was asked.
    Recovering,
    /// The grant was lost while the work ran: its effect may exist twice.
    Fenced,
    /// The outcome came after the record was sealed or resolved.
    Late,
    /// Two outcomes were reported under one fence: a bug of ours.
    Alarm,
    /// The caller got an answer that is not recorded (yet).
    Unrecorded,
    /// The lease could not be renewed in time, so the work was stopped.
    LeaseLost,
    /// The store failed.
    StoreFailed(StoreErrorKind),
}

impl Event {
    /// A stable name for metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Granted { .. } => "granted",
            Self::Replayed { .. } => "replayed",
            Self::Busy => "busy",
            Self::Held => "held",
            Self::Mismatched => "mismatched",
            Self::OverQuota => "over-quota",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Abandoned => "abandoned",
            Self::Recovering => "recovering",
            Self::Fenced => "fenced",
            Self::Late => "late",
            Self::Alarm => "alarm",
            Self::Unrecorded => "unrecorded",
            Self::LeaseLost => "lease-lost",
            Self::StoreFailed(_) => "store-failed",
        }
    }
}

/// Sees every event, on the task where it happens: it must return at once.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Called for each event. `fence` is zero where no grant exists.
    fn event(&self, id: &RecordId, fence: Fence, event: Event);
}

/// Writes events to `tracing`: what someone on call must see as warnings, the rest for debugging.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traced;

impl Observer for Traced {
    fn event(&self, id: &RecordId, fence: Fence, event: Event) {
        let (name, fence) = (event.name(), fence.get());
        // The id is written inside the macros: nothing is made for a level that nobody listens to.
        match event {
            Event::Alarm => {
                tracing::error!(id = id.short(), fence, "two outcomes under one fence: a bug in onlyonce");
            }
            Event::Fenced | Event::Late | Event::LeaseLost | Event::Unrecorded | Event::StoreFailed(_) => {
                tracing::warn!(id = id.short(), fence, event = name, "{event:?}");
            }
            _ => tracing::debug!(id = id.short(), fence, event = name, "{event:?}"),
        }
    }
}

impl From<&StoreError> for Event {
    fn from(error: &StoreError) -> Self {
        Self::StoreFailed(error.kind())
    }
}
