//! A queue in which retries wait: quorum, and passed on at least once, so that the wait costs no message.
//!
//! The server removes a queue that nobody reads a fixed time after it was made, with all that is in it: for quorum queues
//! neither a new declaration nor a new message counts as use. So every week has queues of its own, and a queue outlives its week by
//! more than anything that was put into it has to wait.

use std::time::Duration;

use lapin::types::{AMQPValue, FieldTable};
use onlyonce_core::Timestamp;

use super::convert;

/// How long a queue is published to. Clocks of publishers may differ by as much.
const WEEK: Duration = Duration::from_hours(24 * 7);
/// The longest wait: the server knows no times of 50 days and more, and a queue lives for twice the wait and two weeks.
const RETRY_MAX: Duration = Duration::from_hours(24 * 14);
/// Waits are rounded up to one of these times a power of ten: few queues do for many waits.
const STEPS: [u64; 7] = [10, 15, 20, 30, 40, 60, 80];

/// A queue for one wait.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitingRoom {
    pub(super) name: String,
    queue: String,
    wait: Duration,
}

impl WaitingRoom {
    /// Where a retry of `queue` waits from `now` on.
    pub(super) fn new(queue: &str, wait: Duration, now: Timestamp) -> Self {
        let wait = rounded(wait.min(RETRY_MAX));
        let week = u128::from(now.as_millis()) / WEEK.as_millis();
        let name = format!("{}{}.{week}", convert::retry_prefix(queue), wait.as_millis());
        Self { name, queue: queue.to_owned(), wait }
    }

    /// How it is made. The same for everyone, or the server refuses.
    pub(super) fn arguments(&self) -> FieldTable {
        let mut arguments = FieldTable::default();
        for (name, value) in [
            ("x-queue-type", "quorum"),
            ("x-dead-letter-exchange", ""),
            ("x-dead-letter-routing-key", &self.queue),
            ("x-dead-letter-strategy", "at-least-once"),
            // At least once takes nothing else: no message may make room for another.
            ("x-overflow", "reject-publish"),
        ] {
            arguments.insert(name.into(), AMQPValue::LongString(value.into()));
        }
        for (name, time) in [("x-message-ttl", self.wait), ("x-expires", self.life())] {
            let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
            arguments.insert(name.into(), AMQPValue::LongLongInt(millis));
        }
        arguments
    }

    /// How long the queue is there.
    fn life(&self) -> Duration {
        (self.wait + WEEK) * 2
    }
}

fn rounded(wait: Duration) -> Duration {
    let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
    let mut power = 1;
    loop {
        for step in STEPS {
            // The first powers are smaller than the steps: one millisecond is 10 tenths of one.
            let candidate = (step * power).div_ceil(10);
            if candidate >= millis {
                return Duration::from_millis(candidate);
            }
        }
        power *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    #[test]
    fn waits_are_rounded_up_to_few_steps() {
        for (millis, to) in [
            (0, 1),
            (1, 1),
            (5, 6),
            (9, 10),
            (99, 100),
            (101, 150),
            (300, 300),
            (12_345, 15_000),
            (3_600_000, 4_000_000),
        ] {
            assert_eq!(rounded(Duration::from_millis(millis)), Duration::from_millis(to), "{millis}");
        }
    }

    #[test]
    fn a_queue_outlives_all_that_is_put_into_it() {
        for wait in [Duration::ZERO, Duration::from_secs(1), Duration::from_hours(1), Duration::MAX] {
            let room = WaitingRoom::new("orders", wait, NOW);
            assert!(room.life() > WEEK + room.wait * 2, "{room:?}");
            assert!(
                u32::try_from(room.life().as_millis()).is_ok(),
                "the server takes no longer times: {room:?}"
            );
        }
    }

    #[test]
    fn another_week_has_another_queue() {
        let at = |now| WaitingRoom::new("orders", Duration::from_secs(1), now).name;
        assert_eq!(at(NOW), at(NOW + Duration::from_secs(1)));
        assert_ne!(at(NOW), at(NOW + WEEK));
        assert!(at(NOW).starts_with("orders.retry.1000."));
    }
}
