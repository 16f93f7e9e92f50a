//! What is remembered of an operation: who may work on it, how far it got, and what came out.
//!
//! A [`Record`] is plain: it has no behaviour of its own. It changes only through [`transition`](crate::transition),
//! and only [`codec`] knows its bytes.

pub mod codec;
mod stock;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Timestamp;
use crate::error::{MisuseError, RandomError};
use crate::fingerprint::Fingerprint;
use crate::lease::Retention;
use crate::outcome::Outcome;

/// The most steps one record keeps.
pub const STEPS_MAX: usize = 64;
/// The most bytes the values of all steps of one record may have together, as they are stored.
pub const STEPS_BYTES_MAX: usize = 256 * 1024;
/// The most bytes that a store may add to the value of a step: encryption needs some.
pub const STEP_ADDED_BYTES_MAX: usize = 64;
/// The longest name of a step.
pub const STEP_NAME_CHARS_MAX: usize = 100;

/// A number that grows with every grant of a key, so that a later owner can always be told from an earlier one.
///
/// Below 2^53, so that it survives JSON, Lua and JavaScript.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Fence(u64);

impl Fence {
    /// One past the largest fence.
    pub const LIMIT: u64 = 1 << 53;

    /// The fence `number`, or `None` from 2^53 on.
    pub const fn new(number: u64) -> Option<Self> {
        if number < Self::LIMIT { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The fence of the next grant, given what the store's own source offers. Never goes back (I2).
    pub(crate) fn after(self, source: Self) -> Option<Self> {
        Self::new(self.0.saturating_add(1).max(source.0))
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fence({})", self.0)
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The secret of one attempt, made *before* its claim is sent, so that a lost reply can be asked for again.
///
/// An owner is for one attempt only: a new attempt makes a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Makes an owner from the operating system's random source.
    pub fn random() -> Result<Self, RandomError> {
        stock::take().map(Self)
    }

    /// Takes bytes that were kept or sent.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, for a store to compare.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(…)")
    }
}

/// What a store remembers under a [`RecordId`](crate::RecordId).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Record {
    /// The fence of the last grant.
    pub fence: Fence,
    /// How many grants there were since the record came to be.
    pub attempt: u32,
    /// The owner of the last grant.
    pub owner: Owner,
    /// What the request looked like. `None` only after a release that forgot it.
    pub fingerprint: Option<Fingerprint>,
    /// When the first grant was made.
    pub created_at: Timestamp,
    /// When the last grant was made.
    pub granted_at: Timestamp,
    /// When the last attempt can no longer be running.
    pub run_until: Timestamp,
    /// How long the record is kept once completed or released.
    pub retention: Retention,
    /// How long the record is kept while its outcome is unknown.
    pub unknown_retention: Retention,
    /// Whether the last owner lives outside the process that keeps the store, and so outlives it: its lease then holds
    /// across a restart of the store.
    pub remote: bool,
    /// Values that the work recorded under its grants, in order.
    pub steps: Vec<Step>,
    /// How far it got.
    pub state: State,
}

/// How far an operation got. ABSENT is the absence of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// An owner works on it, or died at it.
    InFlight {
        /// When the owner must have renewed.
        lease_until: Timestamp,
    },
    /// It is done, and this is the answer.
    Completed(Completed),
    /// It did not happen; the next claim runs it.
    Released {
        /// When the record may go.
        expires_at: Timestamp,
    },
    /// Nobody can tell whether it happened.
    Unknown {
        /// Since when.
        since: Timestamp,
        /// When the record may go.
        expires_at: Timestamp,
        /// Who is finding out, if anyone.
        recovery: Option<Recovery>,
    },
}

/// A finished operation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Completed {
    /// The answer.
    pub outcome: Outcome,
    /// Who said so.
    pub by: CompletedBy,
    /// When.
    pub at: Timestamp,
    /// When the record may go.
    pub expires_at: Timestamp,
    /// What the true owner reported after the record was sealed or resolved: for operators, never replayed. Boxed, because
    /// few records have one.
    pub late: Option<Box<Outcome>>,
}

/// Who completed a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CompletedBy {
    /// The owner that ran the work.
    Execution,
    /// The `seal` policy, or `hold` that was held too long: the outcome says "indeterminate".
    Seal,
    /// A recovery hook or an operator.
    Resolve,
}

/// A lease to find out what happened. It leaves the fence alone, so the true owner may still complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Recovery {
    /// Who finds out.
    pub owner: Owner,
    /// Until when nobody else tries.
    pub lease_until: Timestamp,
}

/// A value that the work recorded once and reads back on every later attempt.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Step {
    /// Its name within the operation.
    pub name: StepName,
    /// Its bytes, or `None` after erasure.
    pub value: Option<Bytes>,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "Step({:?}, {} bytes)", self.name.as_str(), value.len()),
            None => write!(f, "Step({:?}, erased)", self.name.as_str()),
        }
    }
}

/// The name of a step: 1 to 100 printable ASCII characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepName(Arc<str>);

impl StepName {
    /// Takes `name` if it is one.
    pub fn new(name: &str) -> Result<Self, MisuseError> {
        let printable = name.bytes().all(|byte| matches!(byte, 0x20..=0x7e));
        if name.is_empty() || name.len() > STEP_NAME_CHARS_MAX || !printable {
            return Err(MisuseError::new("a step name has 1 to 100 printable ASCII characters"));
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a state, for lists and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateKind {
    /// See [`State::InFlight`].
    InFlight,
    /// See [`State::Completed`].
    Completed,
    /// See [`State::Released`].
    Released,
    /// See [`State::Unknown`].
    Unknown,
}

impl StateKind {
    /// Every state, in the order of the state machine.
    pub const ALL: [Self; 4] = [Self::InFlight, Self::Completed, Self::Released, Self::Unknown];
}

impl fmt::Display for StateKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InFlight => "in-flight",
            Self::Completed => "completed",
            Self::Released => "released",
            Self::Unknown => "unknown",
        })
    }
}

impl Record {
    /// The same record in another state. The old state is not copied: it may hold an outcome.
    #[must_use]
    pub(crate) fn with_state(&self, state: State) -> Self {
        Self {
            fence: self.fence,
            attempt: self.attempt,
            owner: self.owner,
            fingerprint: self.fingerprint.clone(),
            created_at: self.created_at,
            granted_at: self.granted_at,
            run_until: self.run_until,
            retention: self.retention,
            unknown_retention: self.unknown_retention,
            remote: self.remote,
            steps: self.steps.clone(),
            state,
        }
    }

    /// The state as stored.
    pub const fn kind(&self) -> StateKind {
        match self.state {
            State::InFlight { .. } => StateKind::InFlight,
            State::Completed(_) => StateKind::Completed,
            State::Released { .. } => StateKind::Released,
            State::Unknown { .. } => StateKind::Unknown,
        }
    }

    /// When the record may go. IN FLIGHT never expires: it becomes UNKNOWN first.
    pub const fn expires_at(&self) -> Option<Timestamp> {
        match &self.state {
            State::InFlight { .. } => None,
            State::Completed(Completed { expires_at, .. })
            | State::Released { expires_at }
            | State::Unknown { expires_at, .. } => Some(*expires_at),
        }
    }

    /// Whether the record is past its expiry, and so reads as ABSENT.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at().is_some_and(|expires_at| now >= expires_at)
    }

    /// Whether the owner failed to renew in time, so that the record reads as UNKNOWN.
    pub fn is_lapsed(&self, now: Timestamp) -> bool {
        matches!(self.state, State::InFlight { lease_until } if now >= lease_until)
    }

    /// The state as every operation but `complete` reads it at `now`; `None` is ABSENT.
    pub fn kind_at(&self, now: Timestamp) -> Option<StateKind> {
        if self.is_expired(now) {
            None
        } else if self.is_lapsed(now) {
            Some(StateKind::Unknown)
        } else {
            Some(self.kind())
        }
    }

    /// When a sweep has something to do here: the lease or the retention ends.
    pub const fn due_at(&self) -> Timestamp {
        match &self.state {
            State::InFlight { lease_until } => *lease_until,
            State::Completed(Completed { expires_at, .. })
            | State::Released { expires_at }
            | State::Unknown { expires_at, .. } => *expires_at,
        }
    }

    /// How many bytes the record takes in memory, roughly: what bounded stores count.
    pub fn weight(&self) -> usize {
        let rules = self.fingerprint.as_ref().map_or(0, |fingerprint| fingerprint.rules().text().len());
        let outcomes = match &self.state {
            State::Completed(completed) => {
                completed.outcome.len() + completed.late.as_deref().map_or(0, Outcome::len)
            }
            _ => 0,
        };
        size_of::<Self>() + rules + outcomes + self.steps_weight()
    }

    /// How many bytes the steps take.
    pub fn steps_weight(&self) -> usize {
        self.steps.iter().map(|step| step.value.as_ref().map_or(0, Bytes::len)).sum()
    }
}
