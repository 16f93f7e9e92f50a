//! What the layer lets others see: one event for each request it decided on, and a note on each answer it gave.
//!
//! Ids, statuses and routes only; never a key, a credential or a body.

use std::fmt;
use std::time::Duration;

use http::StatusCode;
use onlyonce_core::{Fence, RecordId, Recorded, Tombstone};

use crate::problem::ProblemKind;
use crate::trace::TraceContext;

/// Something the layer decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A request of a protected method had no key and passed.
    Unkeyed {
        /// Whether it is the first on this route: worth a warning.
        first: bool,
    },
    /// A keyed request had no credential at all and shares the anonymous scope.
    Anonymous {
        /// Whether it is the first on this route.
        first: bool,
    },
    /// A bearer token looks like a JWT, which a refresh changes, under `principal = "authorization"`. Once per route.
    TokenMayChange,
    /// The work ran for this request.
    Ran {
        /// Where it is remembered.
        id: RecordId,
        /// The status of the application's answer; `None` when it had none.
        status: Option<StatusCode>,
        /// What is on record.
        recorded: Recorded,
        /// 1 for the first.
        attempt: u32,
    },
    /// A recorded answer was given.
    Replayed {
        /// Where it is remembered.
        id: RecordId,
        /// Its status.
        status: StatusCode,
        /// How old it is.
        age: Duration,
        /// How long it will still be kept.
        left: Duration,
    },
    /// A recorded answer was withheld: the caller may no longer have it, as whoever was asked before the replay said.
    Withheld {
        /// Where it is remembered.
        id: RecordId,
    },
    /// An answer was too large or too long to be kept, or asked not to be.
    NotKept {
        /// Where it is remembered.
        id: RecordId,
        /// Why.
        why: Tombstone,
    },
    /// The request was refused with one of our own answers.
    Refused {
        /// Which.
        kind: ProblemKind,
        /// Where it would be remembered, when that is known.
        id: Option<RecordId>,
    },
    /// The store could not be reached and the route says `open`: the request ran without protection.
    Unprotected {
        /// Where it would be remembered.
        id: RecordId,
    },
    /// Shadow mode: what would have happened. The request passed.
    Shadow {
        /// What.
        would: Would,
        /// Where it is remembered, when that is known.
        id: Option<RecordId>,
    },
    /// The application sent an `Onlyonce-Outcome` or `Onlyonce-Retention` that is not understood.
    SteeringIgnored,
}

/// What shadow mode did not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Would {
    /// Run it: it did.
    Run,
    /// Replay a recorded answer.
    Replay,
    /// Refuse it.
    Refuse(ProblemKind),
}

impl Event {
    /// A stable name for metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unkeyed { .. } => "unkeyed",
            Self::Anonymous { .. } => "anonymous",
            Self::TokenMayChange => "token-may-change",
            Self::Ran { .. } => "ran",
            Self::Replayed { .. } => "replayed",
            Self::Withheld { .. } => "withheld",
            Self::NotKept { .. } => "not-kept",
            Self::Refused { .. } => "refused",
            Self::Unprotected { .. } => "unprotected",
            Self::Shadow { .. } => "shadow",
            Self::SteeringIgnored => "steering-ignored",
        }
    }
}

/// Sees every event, on the task where it happens: it must return at once.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Called for each event. `route` is the path of the route's rules: a bounded set of values.
    fn event(&self, route: &str, event: Event);
}

/// Writes events to `tracing`: what someone on call must see as warnings, the rest for debugging.
#[derive(Debug, Clone, Copy, Default)]
pub struct Traced;

impl Observer for Traced {
    fn event(&self, route: &str, event: Event) {
        match event {
            Event::Unkeyed { first: true } => {
                tracing::warn!(route, "requests without an idempotency key pass unprotected (said once)");
            }
            Event::Anonymous { first: true } => {
                tracing::warn!(route, "keyed requests without a credential share one scope (said once)");
            }
            Event::TokenMayChange => tracing::warn!(
                route,
                "bearer tokens look like JWTs: a refreshed token makes a retry another caller's request; use \
                 principal = \"jwt:CLAIM\" (said once)"
            ),
            Event::Unprotected { id } => {
                tracing::warn!(route, id = id.short(), "the store is away: a request ran without protection");
            }
            Event::SteeringIgnored => {
                tracing::warn!(route, "an Onlyonce-Outcome or Onlyonce-Retention header is not understood");
            }
            _ => tracing::debug!(route, event = event.name(), "{event:?}"),
        }
    }
}

/// How a protected request was answered. It is in the extensions of the response, for access logs, unless the layer was
/// told to leave nothing there ([`LayerBuilder::extensions`](crate::LayerBuilder::extensions)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// How.
    pub how: How,
    /// Where the operation is remembered, when that is known.
    pub id: Option<RecordId>,
    /// The fence the answer was made under, when there is one.
    pub fence: Option<Fence>,
    /// For an answer from the record: the trace in which it was made, if that was traced.
    pub original: Option<TraceContext>,
}

/// The ways of answering a protected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum How {
    /// The work ran for it.
    Ran(Recorded),
    /// From the record.
    Replayed,
    /// By whoever was asked before a replay, and did not allow it.
    Withheld,
    /// By one of our own answers.
    Refused(ProblemKind),
    /// Without protection, because the store is away.
    Unprotected,
    /// Without protection, because the route is in shadow mode.
    Shadow,
}
