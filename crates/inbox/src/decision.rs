//! What follows for a delivery from what became of its message. Pure: no clock, no await, no broker, no store.

use std::time::Duration;

use onlyonce_core::record::CompletedBy;
use onlyonce_core::{Conflict, Cut, Ending, EngineError, Outcome, Ran, Recorded, Reply};

use crate::handler::Handled;
use crate::source::Settlement;

/// What became of a delivery, for counters and logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// The handler ran, and its outcome is on record.
    Done,
    /// It was done before: nothing ran.
    Duplicate,
    /// Someone else is at it: nothing ran.
    Busy,
    /// The handler ran, or may have, and did not succeed: it is tried again.
    Retried,
    /// It was neither claimed nor begun, and is given back: a shutdown.
    GivenBack,
    /// It went to the dead letters.
    DeadLettered,
    /// Its id was used for another message.
    Mismatched,
    /// Nothing names it.
    Nameless,
    /// The store could not be asked, so nothing ran.
    StoreFailed,
    /// The handler ran and its outcome could not be recorded yet.
    Unrecorded,
}

/// What to do with a message whose id was used for another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnMismatch {
    /// To the dead letters, where someone finds it. The default.
    #[default]
    DeadLetter,
    /// Say so and acknowledge it: for producers that are known to send corrected copies under the same id.
    Report,
}

/// How soon a message is tried again: the first wait, doubled with each attempt, up to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first attempt. Default 1 s.
    pub first: Duration,
    /// Never longer than this. Default 5 min.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_mins(5) }
    }
}

impl Backoff {
    /// How long to wait after the `attempt`th, 1 for the first.
    pub fn after(&self, attempt: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1).min(31));
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

/// How handling ended, as the engine hands it back.
#[derive(Debug)]
pub(crate) enum Ended {
    Done(Outcome),
    Retry { why: String, after: Option<Duration> },
    Unknown { why: String },
    Refused { why: String },
}

/// Which of the three endings the grant has.
pub(crate) fn ending(handled: Handled) -> Ending<Ended> {
    match handled {
        Handled::Done(outcome) => {
            Ending::Complete { value: Ended::Done(outcome.clone()), outcome, retention: None }
        }
        Handled::Retry { why, after } => {
            Ending::Release { value: Ended::Retry { why, after }, keep_fingerprint: true }
        }
        Handled::Unknown { why } => Ending::Abandon { value: Ended::Unknown { why } },
        Handled::Refused { why } => {
            Ending::Release { value: Ended::Refused { why }, keep_fingerprint: false }
        }
    }
}

/// By what a delivery is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rulings {
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Backoff,
    pub(crate) on_mismatch: OnMismatch,
}

impl Rulings {
    /// What becomes of a delivery. `attempt` is the one that was made for it, 0 when there was none; `deliveries` is
    /// which delivery it is.
    ///
    /// Never `Ack` unless an outcome is on record: that is the whole point.
    pub(crate) fn settle(
        &self,
        replied: Result<Reply<Ended>, EngineError>,
        attempt: u32,
        deliveries: u32,
    ) -> (Settlement, Fate) {
        match replied {
            Ok(Reply::Ran(ran)) => self.ran(ran),
            // A sealed record says that nobody knows: that is no reason to forget the message.
            Ok(Reply::Replay(replay)) if replay.by == CompletedBy::Seal => {
                dead("the outcome of an earlier attempt is unknown and was closed")
            }
            Ok(Reply::Replay(_)) => (Settlement::Ack, Fate::Duplicate),
            Ok(Reply::Conflict(conflict)) => self.conflict(conflict, attempt, deliveries),
            Err(_) => (self.retry(attempt), Fate::StoreFailed),
        }
    }

    fn ran(&self, Ran { value, attempt, recorded, .. }: Ran<Ended>) -> (Settlement, Fate) {
        match (value, recorded) {
            (Ended::Done(_), Recorded::Completed | Recorded::Late) => (Settlement::Ack, Fate::Done),
            // Recording is tried in the background: the next delivery finds the outcome, or does it again by the policy.
            (Ended::Done(_), _) => (self.retry(attempt), Fate::Unrecorded),
            (Ended::Refused { why }, _) => dead(why),
            (Ended::Retry { why, after }, _) => self.failed(&why, after, attempt),
            (Ended::Unknown { why }, _) => self.failed(&why, None, attempt),
        }
    }

    fn conflict(&self, conflict: Conflict, attempt: u32, deliveries: u32) -> (Settlement, Fate) {
        match conflict {
            // Most handlers end long before their lease: soon at first, then seldom, and at its end at the latest.
            Conflict::InFlight { retry_after } => {
                (Settlement::Retry { after: retry_after.min(self.backoff.after(deliveries)) }, Fate::Busy)
            }
            Conflict::KeyReused => match self.on_mismatch {
                OnMismatch::DeadLetter => {
                    let (settlement, _) = dead("its id was used for another message");
                    (settlement, Fate::Mismatched)
                }
                OnMismatch::Report => (Settlement::Ack, Fate::Mismatched),
            },
            Conflict::OutcomeUnknown { cut: Some(cut), .. } => {
                let why = match cut {
                    Cut::Panicked => "the handler panicked",
                    Cut::OutOfTime => "the handler took longer than it may",
                    Cut::ShutDown => return (self.retry(1), Fate::Retried),
                };
                self.failed(why, None, attempt)
            }
            Conflict::OutcomeUnknown { cut: None, .. } => {
                dead("the outcome of an earlier attempt is unknown, and no other may be made")
            }
            // The one that took over decides.
            _ => (self.retry(attempt), Fate::Retried),
        }
    }

    /// What becomes of a message whose handler failed: another try, or none.
    pub(crate) fn failed(&self, why: &str, after: Option<Duration>, attempt: u32) -> (Settlement, Fate) {
        if attempt >= self.attempts_max {
            return dead(format!("{why} (attempt {attempt} of {})", self.attempts_max));
        }
        (Settlement::Retry { after: after.unwrap_or_else(|| self.backoff.after(attempt)) }, Fate::Retried)
    }

    fn retry(&self, attempt: u32) -> Settlement {
        Settlement::Retry { after: self.backoff.after(attempt) }
    }
}

/// What came of a message that is done, for whoever delivers it again.
pub(crate) fn done(replied: &Result<Reply<Ended>, EngineError>) -> Option<&Outcome> {
    match replied {
        Ok(Reply::Replay(replay)) => Some(&replay.outcome),
        Ok(Reply::Ran(Ran { value: Ended::Done(outcome), .. })) => Some(outcome),
        _ => None,
    }
}

pub(crate) fn dead(reason: impl Into<String>) -> (Settlement, Fate) {
    (Settlement::DeadLetter { reason: reason.into() }, Fate::DeadLettered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use onlyonce_core::Fence;

    const RULINGS: Rulings = Rulings {
        attempts_max: 3,
        backoff: Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(10) },
        on_mismatch: OnMismatch::DeadLetter,
    };

    fn ran(value: Ended, attempt: u32, recorded: Recorded) -> (Settlement, Fate) {
        RULINGS.settle(Ok(Reply::Ran(Ran { value, fence: Fence::default(), attempt, recorded })), attempt, 1)
    }

    fn after(seconds: u64) -> Settlement {
        Settlement::Retry { after: Duration::from_secs(seconds) }
    }

    #[test]
    fn only_an_outcome_on_record_is_acknowledged() {
        for (recorded, acknowledged) in [
            (Recorded::Completed, true),
            (Recorded::Late, true),
            (Recorded::Unrecorded, false),
            (Recorded::Abandoned, false),
            (Recorded::Released, false),
        ] {
            let (settlement, _) = ran(Ended::Done(Outcome::kept(2, "")), 1, recorded);
            assert_eq!(settlement == Settlement::Ack, acknowledged, "{recorded:?}");
        }
        for conflict in [
            Conflict::InFlight { retry_after: Duration::from_secs(5) },
            Conflict::Fenced,
            Conflict::KeyReused,
            Conflict::OutcomeUnknown { fence: Fence::default(), cut: None },
            Conflict::OutcomeUnknown { fence: Fence::default(), cut: Some(Cut::Panicked) },
        ] {
            assert_ne!(RULINGS.conflict(conflict, 1, 1).0, Settlement::Ack, "{conflict:?}");
        }
    }

    #[test]
    fn a_busy_message_comes_again_soon_then_seldom_and_at_the_end_of_the_lease() {
        let busy = |left, deliveries| {
            RULINGS.conflict(Conflict::InFlight { retry_after: Duration::from_secs(left) }, 0, deliveries)
        };
        for (left, deliveries, seconds) in [(30, 1, 1), (30, 3, 4), (3, 3, 3), (30, 20, 10)] {
            assert_eq!(busy(left, deliveries), (after(seconds), Fate::Busy));
        }
    }

    #[test]
    fn failures_wait_longer_each_time_and_end_among_the_dead_letters() {
        let fail = |attempt| {
            let value = Ended::Retry { why: "no".into(), after: None };
            ran(value, attempt, Recorded::Released)
        };
        assert_eq!(fail(1), (after(1), Fate::Retried));
        assert_eq!(fail(2), (after(2), Fate::Retried));
        assert!(
            matches!(fail(3), (Settlement::DeadLetter { reason }, Fate::DeadLettered) if reason.contains("no"))
        );
        let panicked = Conflict::OutcomeUnknown { fence: Fence::default(), cut: Some(Cut::Panicked) };
        assert!(matches!(RULINGS.conflict(panicked, 3, 1), (_, Fate::DeadLettered)));
        assert_eq!(Backoff::default().after(u32::MAX), Duration::from_mins(5));
    }

    #[test]
    fn a_shutdown_is_nobodys_failure() {
        let cut = Conflict::OutcomeUnknown { fence: Fence::default(), cut: Some(Cut::ShutDown) };
        assert_eq!(RULINGS.conflict(cut, 9, 1), (after(1), Fate::Retried));
    }
}
