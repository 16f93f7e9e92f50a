//! A fast place in front of a store: what it knows, what it may answer, and what it must leave to the store.
//!
//! A completed record never changes until it expires, so whoever remembers one may answer for the store. Nothing else
//! is so: that a record is absent is for the store alone to say (I15), and that it is in flight is a hint, which may
//! cost a caller a moment and never a second execution.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::StoreFuture;
use crate::clock::Timestamp;
use crate::fingerprint::Fingerprint;
use crate::lease::Retention;
use crate::outcome::Outcome;
use crate::record::{Completed, CompletedBy, Fence, Owner, Record, State};
use crate::scope::RecordId;
use crate::transition::{Change, Claim, ClaimAnswer, Moment, Replay, Transition as _};

/// How old an answer of the store may be when it is put into a tier. With [`FRESH_FOR`] it adds up to the five seconds
/// after which an erased body is gone from every process.
pub const LEARN_WITHIN: Duration = Duration::from_secs(1);
/// How long a tier that others cannot reach may go by what it was told.
pub const FRESH_FOR: Duration = Duration::from_secs(4);
/// How long a tier that others can reach takes nothing for an id that was voided: longer than any answer from before
/// may still be on its way.
pub const VOID_FOR: Duration = Duration::from_secs(10);
/// How long a hint that a record is in flight is believed at most.
pub const HINT_FOR: Duration = Duration::from_secs(5);

/// Remembers answers of a store. It may forget any of them at any time.
///
/// # Contract
/// 1. What it gives back for an id is what was put for that id, with the time that has passed since.
/// 2. It gives nothing back once that time is over.
/// 3. After `void` was answered, nothing that was learnt before is given back: not at once in this process and in those
///    that share the tier, and not after [`FRESH_FOR`] anywhere.
/// 4. Trouble of its own is "nothing known", never an error and never a long wait; except for `void`, which must say so.
pub trait Tier: fmt::Debug + Send + Sync + 'static {
    /// What is known of a record.
    fn get<'a>(&'a self, id: &'a RecordId) -> Look<'a>;

    /// Remembers, perhaps. Returns at once.
    fn put(&self, id: &RecordId, known: Known);

    /// Forgets a hint, perhaps. Returns at once.
    fn forget(&self, id: &RecordId);

    /// Forgets, surely.
    fn void<'a>(&'a self, id: &'a RecordId) -> StoreFuture<'a, ()>;

    /// What is worth telling it.
    fn keeps(&self) -> Keeps;
}

/// What a tier is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Answers that were asked for a second time.
    Replays,
    /// These, every completion, and what takes long.
    Everything,
}

/// A look into a tier.
pub enum Look<'a> {
    /// This is what is known.
    Seen(Option<Known>),
    /// It takes a moment.
    Coming(Pin<Box<dyn Future<Output = Option<Known>> + Send + 'a>>),
}

impl Look<'_> {
    /// What many looks see. All are under way at the same time.
    pub(super) async fn all(mut looks: Vec<Self>) -> Vec<Option<Known>> {
        poll_fn(|cx| {
            let mut coming = false;
            for look in &mut looks {
                if let Self::Coming(known) = look {
                    match known.as_mut().poll(cx) {
                        Poll::Ready(known) => *look = Self::Seen(known),
                        Poll::Pending => coming = true,
                    }
                }
            }
            if coming { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        let seen = |look| if let Self::Seen(known) = look { known } else { None };
        looks.into_iter().map(seen).collect()
    }
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seen(known) => known.fmt(f),
            Self::Coming(_) => f.write_str("Coming"),
        }
    }
}

/// A grant, as whoever hands it on remembers it until it ends.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) fingerprint: Fingerprint,
    pub(super) retention: Retention,
}

/// What is known of a record: the record, on a clock of its own that started when it was completed or renewed.
///
/// So the clocks of the store, of this process and of the tier need not agree; they only need to run equally fast.
#[derive(Debug, Clone)]
pub struct Known {
    record: Arc<Record>,
    now: Timestamp,
}

impl Known {
    /// A `record` as [`Known::record`] gave it, at `now` of its own clock.
    pub fn new(record: Arc<Record>, now: Timestamp) -> Self {
        Self { record, now }
    }

    /// What a replay tells about the record that was claimed. Nothing if it was sealed: that may still be resolved.
    pub(super) fn replayed(claim: &Claim, replay: &Replay) -> Option<Self> {
        let granted = Granted {
            owner: NOBODY,
            fence: replay.fence,
            attempt: replay.attempt,
            fingerprint: claim.fingerprint.clone(),
            retention: claim.terms.retention,
        };
        let completed = Completed {
            outcome: replay.outcome.clone(),
            by: replay.by,
            at: Timestamp::default(),
            expires_at: Timestamp::default() + replay.age + replay.left,
            late: None,
        };
        let known =
            || Self::new(record(granted, State::Completed(completed)), Timestamp::default() + replay.age);
        (replay.by != CompletedBy::Seal).then(known)
    }

    /// What a completion tells about the record.
    pub(super) fn completed(granted: Granted, outcome: Outcome, retention: Retention) -> Self {
        let completed = Completed {
            outcome,
            by: CompletedBy::Execution,
            at: Timestamp::default(),
            expires_at: Timestamp::default() + retention.get(),
            late: None,
        };
        Self::new(record(granted, State::Completed(completed)), Timestamp::default())
    }

    /// The hint that the owner will be at it for `left`.
    pub(super) fn in_flight(granted: Granted, left: Duration) -> Self {
        let lease_until = Timestamp::default() + left;
        Self::new(record(granted, State::InFlight { lease_until }), Timestamp::default())
    }

    /// The record. Its times are on its own clock.
    pub const fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// How long this may be believed: an answer until it expires, a hint for a moment.
    pub fn left(&self) -> Duration {
        self.now.until(self.believed_until())
    }

    fn believed_until(&self) -> Timestamp {
        let until = self.record.due_at();
        if self.is_hint() { until.min(Timestamp::default() + HINT_FOR) } else { until }
    }

    /// The same when `by` has passed.
    #[must_use]
    pub fn aged(self, by: Duration) -> Self {
        Self { now: self.now + by, ..self }
    }

    /// The same when no more than `left` is left of it.
    #[must_use]
    pub fn with_left(self, left: Duration) -> Self {
        let now = self.now.max(self.believed_until() - left);
        Self { now, ..self }
    }

    /// Whether it is only a hint.
    pub fn is_hint(&self) -> bool {
        matches!(self.record.state, State::InFlight { .. })
    }

    /// What the store would answer to `claim`, as far as that can be said from here: that it is completed, or that
    /// someone else is at it. A grant, a mismatch and all else is the store's to say.
    pub(super) fn answer(&self, claim: &Claim) -> Option<ClaimAnswer> {
        if self.left().is_zero() {
            return None;
        }
        let moment = Moment { now: self.now, next_fence: Fence::default() };
        match claim.decide(Some(&self.record), moment) {
            (Change::Keep, answer @ (ClaimAnswer::Replay(_) | ClaimAnswer::Busy(_))) => Some(answer),
            _ => None,
        }
    }
}

/// The owner of what is known only from a replay. It has ended: nobody asks.
const NOBODY: Owner = Owner::from_bytes([0; 16]);

fn record(granted: Granted, state: State) -> Arc<Record> {
    let start = Timestamp::default();
    Arc::new(Record {
        fence: granted.fence,
        attempt: granted.attempt,
        owner: granted.owner,
        fingerprint: Some(granted.fingerprint),
        created_at: start,
        granted_at: start,
        run_until: start,
        retention: granted.retention,
        unknown_retention: granted.retention,
        remote: false,
        steps: Vec::new(),
        state,
    })
}
