//! Wakes the task of an attempt, with as few entries at the clock as will do.
//!
//! A claim, the work and the completion each have an end, and nearly all of them are over long before it. To enter each
//! at the clock and take it out again costs more than to be woken once too early: an entry serves all later ends.

use std::future::Future;

use crate::clock::{Clock, Sleep, Timestamp};

/// Waits for points in time, one after the other.
#[derive(Default)]
pub(super) struct Alarm {
    /// The entry at the clock, and when it wakes. It stays for the next wait, if that does not end before it.
    set: Option<(Timestamp, Sleep)>,
}

impl Alarm {
    /// Enters `by` at the clock, unless something is entered: a wait that ends sooner than the one that comes first is then
    /// served by the same entry.
    pub(super) fn set_by(&mut self, by: Timestamp, clock: &dyn Clock) {
        self.set.get_or_insert_with(|| (by, clock.sleep_until(by)));
    }

    /// Resolves at `at`, or at once if that has passed.
    pub(super) async fn until(&mut self, at: Timestamp, clock: &dyn Clock) {
        loop {
            let (wakes_at, sleep) = match &mut self.set {
                Some(set) if set.0 <= at => set,
                other => other.insert((at, clock.sleep_until(at))),
            };
            let wakes_at = *wakes_at;
            sleep.as_mut().await;
            self.set = None;
            if wakes_at == at {
                return;
            }
        }
    }
}

/// How time is spent until a store is given up.
pub(super) trait Waiting {
    /// Resolves at `at`, or at once if that has passed.
    fn until(&mut self, at: Timestamp) -> impl Future<Output = ()> + Send;
}

/// Doing nothing else.
pub(super) struct Idle<'c> {
    alarm: Alarm,
    clock: &'c dyn Clock,
}

impl<'c> Idle<'c> {
    pub(super) fn new(clock: &'c dyn Clock) -> Self {
        Self { alarm: Alarm::default(), clock }
    }
}

impl Waiting for Idle<'_> {
    fn until(&mut self, at: Timestamp) -> impl Future<Output = ()> + Send {
        self.alarm.until(at, self.clock)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;

    /// A clock that is set by hand and notes what was entered.
    #[derive(Debug, Default)]
    struct Noting {
        now: Arc<AtomicU64>,
        entered: Mutex<Vec<u64>>,
    }

    impl Clock for Noting {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.now.load(Ordering::Relaxed))
        }

        fn sleep(&self, duration: Duration) -> Sleep {
            self.sleep_until(self.now() + duration)
        }

        fn sleep_until(&self, at: Timestamp) -> Sleep {
            self.entered.lock().unwrap().push(at.as_millis());
            let now = Arc::clone(&self.now);
            let is_over = move || now.load(Ordering::Relaxed) >= at.as_millis();
            Box::pin(poll_fn(move |_| if is_over() { Poll::Ready(()) } else { Poll::Pending }))
        }
    }

    /// Whether a wait until `at` is over when the clock shows `now`, and what is entered by then.
    fn waits(alarm: &mut Alarm, clock: &Noting, at: u64, now: u64) -> (bool, Vec<u64>) {
        clock.now.store(now, Ordering::Relaxed);
        let waiting = pin!(alarm.until(Timestamp::from_millis(at), clock));
        let is_over = waiting.poll(&mut Context::from_waker(Waker::noop())).is_ready();
        (is_over, clock.entered.lock().unwrap().clone())
    }

    #[test]
    fn later_waits_use_the_entry_of_earlier_ones() {
        let (mut alarm, clock) = (Alarm::default(), Noting::default());
        assert_eq!(waits(&mut alarm, &clock, 10, 0), (false, vec![10]));
        assert_eq!(
            waits(&mut alarm, &clock, 20, 5),
            (false, vec![10]),
            "it is woken too early, and no worse"
        );
        assert_eq!(waits(&mut alarm, &clock, 20, 10), (false, vec![10, 20]));
        assert_eq!(waits(&mut alarm, &clock, 20, 20), (true, vec![10, 20]));
        assert_eq!(waits(&mut alarm, &clock, 15, 20), (true, vec![10, 20, 15]), "long past");
    }

    #[test]
    fn an_entry_that_wakes_early_serves_a_shorter_wait_that_follows() {
        let (mut alarm, clock) = (Alarm::default(), Noting::default());
        alarm.set_by(Timestamp::from_millis(5), &clock);
        alarm.set_by(Timestamp::from_millis(9), &clock);
        assert_eq!(waits(&mut alarm, &clock, 50, 0), (false, vec![5]));
        assert_eq!(waits(&mut alarm, &clock, 6, 1), (false, vec![5]), "a new wait, which ends sooner");
        assert_eq!(waits(&mut alarm, &clock, 50, 5), (false, vec![5, 50]), "too early, and only once");
        assert_eq!(waits(&mut alarm, &clock, 50, 50), (true, vec![5, 50]));
    }

    #[test]
    fn an_earlier_wait_is_not_slept_through() {
        let (mut alarm, clock) = (Alarm::default(), Noting::default());
        assert_eq!(waits(&mut alarm, &clock, 10, 0), (false, vec![10]));
        assert_eq!(waits(&mut alarm, &clock, 5, 1), (false, vec![10, 5]));
        assert_eq!(waits(&mut alarm, &clock, 5, 5), (true, vec![10, 5]));
    }
}
