//! What follows from what was seen: how an attempt ends, what its caller is told. Pure: no clock, no await, no store.

use std::time::Duration;

use crate::engine::{Conflict, Cut, Ending, Found, Recorded};
use crate::lease::Retention;
use crate::observe::Event;
use crate::outcome::Outcome;
use crate::transition::{CompleteAnswer, Verdict};

/// How the work of an attempt came to an end.
#[derive(Debug)]
pub(crate) enum Stop<R> {
    /// It returned.
    Returned(Ending<R>),
    /// It did not.
    Cut(Cut),
}

/// Which of the three endings the store is told, and what the caller gets.
#[derive(Debug)]
pub(crate) enum Finish<R> {
    Complete { outcome: Outcome, retention: Option<Retention>, value: R },
    Release { keep_fingerprint: bool, value: R },
    Abandon { value: Result<R, Cut> },
}

/// Only work that returned can complete or release. Everything else may have had its effect: abandon, never release.
pub(crate) fn finish<R>(stop: Stop<R>) -> Finish<R> {
    match stop {
        Stop::Returned(Ending::Complete { value, outcome, retention }) => {
            Finish::Complete { outcome, retention, value }
        }
        Stop::Returned(Ending::Release { value, keep_fingerprint }) => {
            Finish::Release { keep_fingerprint, value }
        }
        Stop::Returned(Ending::Abandon { value }) => Finish::Abandon { value: Ok(value) },
        Stop::Cut(cut) => Finish::Abandon { value: Err(cut) },
    }
}

/// What a completion means for the caller, and what happened.
///
/// A lost grant means that someone else may hold the truth: the answer is not presented as the recorded one.
pub(crate) fn completed(answer: CompleteAnswer) -> (Result<Recorded, Conflict>, Event) {
    match answer {
        CompleteAnswer::Completed | CompleteAnswer::Already => (Ok(Recorded::Completed), Event::Completed),
        CompleteAnswer::Late => (Ok(Recorded::Late), Event::Late),
        CompleteAnswer::Alarm => (Err(Conflict::Fenced), Event::Alarm),
        CompleteAnswer::Fenced => (Err(Conflict::Fenced), Event::Fenced),
    }
}

/// What a hook's finding is worth. "Not executed" says nothing while the attempt may still be running.
pub(crate) fn verdict(found: Option<Found>, quiet_in: Duration) -> Verdict {
    match found {
        Some(Found::Executed(outcome)) => Verdict::Executed(outcome),
        Some(Found::NotExecuted) if quiet_in.is_zero() => Verdict::NotExecuted { force: false },
        Some(Found::NotExecuted | Found::Unknown) | None => Verdict::StillUnknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_returned_work_completes_or_releases() {
        for cut in [Cut::Panicked, Cut::OutOfTime, Cut::ShutDown] {
            assert!(
                matches!(finish(Stop::<()>::Cut(cut)), Finish::Abandon { value: Err(why) } if why == cut)
            );
        }
        let release = Ending::Release { value: 1, keep_fingerprint: true };
        assert!(matches!(
            finish(Stop::Returned(release)),
            Finish::Release { keep_fingerprint: true, value: 1 }
        ));
        assert!(matches!(
            finish(Stop::Returned(Ending::Abandon { value: 1 })),
            Finish::Abandon { value: Ok(1) }
        ));
    }

    #[test]
    fn not_executed_counts_only_once_the_attempt_can_no_longer_run() {
        assert_eq!(verdict(Some(Found::NotExecuted), Duration::from_millis(1)), Verdict::StillUnknown);
        assert_eq!(verdict(Some(Found::NotExecuted), Duration::ZERO), Verdict::NotExecuted { force: false });
        assert_eq!(verdict(Some(Found::Unknown), Duration::ZERO), Verdict::StillUnknown);
        assert_eq!(verdict(None, Duration::ZERO), Verdict::StillUnknown, "a failed hook found nothing out");
    }

    #[test]
    fn a_lost_grant_is_never_presented_as_recorded() {
        assert_eq!(completed(CompleteAnswer::Fenced), (Err(Conflict::Fenced), Event::Fenced));
        assert_eq!(completed(CompleteAnswer::Alarm), (Err(Conflict::Fenced), Event::Alarm));
        assert_eq!(completed(CompleteAnswer::Late), (Ok(Recorded::Late), Event::Late));
    }
}
