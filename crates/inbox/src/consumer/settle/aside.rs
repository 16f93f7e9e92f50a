//! Those that the source did not take: each waits for its own time, whatever the others do.

use std::collections::BTreeMap;

use onlyonce_core::Timestamp;
use tokio::sync::mpsc;

use super::{FETCH_MAX, Settler, Unsettled};

/// By when they are due, and in the order in which they came.
#[derive(Default)]
struct Waiting {
    by_time: BTreeMap<(Timestamp, u64), Unsettled>,
    came: u64,
}

impl Waiting {
    fn add(&mut self, unsettled: Unsettled, now: Timestamp) {
        self.came += 1;
        self.by_time.insert((now + unsettled.again_in, self.came), unsettled);
    }

    fn next(&self) -> Option<Timestamp> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out those that are due, as many as can be settled together.
    fn due(&mut self, now: Timestamp) -> Vec<Unsettled> {
        let mut due = Vec::new();
        while due.len() < FETCH_MAX && self.next().is_some_and(|at| at <= now) {
            due.extend(self.by_time.pop_first().map(|(_, unsettled)| unsettled));
        }
        due
    }

    /// Nobody is waited for any longer.
    fn hurry(&mut self, now: Timestamp) {
        for ((_, came), unsettled) in std::mem::take(&mut self.by_time) {
            self.by_time.insert((now, came), unsettled);
        }
    }
}

impl Settler {
    /// Returns when nothing more can come and all is settled.
    pub(super) async fn settle_aside(&self, mut put_aside: mpsc::Receiver<Unsettled>) {
        let (mut waiting, mut is_ending) = (Waiting::default(), false);
        loop {
            let next = waiting.next();
            tokio::select! {
                unsettled = put_aside.recv(), if !is_ending => match unsettled {
                    Some(unsettled) => waiting.add(unsettled, self.clock.now()),
                    None => {
                        is_ending = true;
                        waiting.hurry(self.clock.now());
                    }
                },
                () = self.clock.sleep_until(next.unwrap_or_default()), if next.is_some() => {
                    let due = waiting.due(self.clock.now()).into_iter();
                    let due = due.map(|unsettled| (unsettled.settling, unsettled.failures)).collect();
                    for unsettled in self.settle(due).await {
                        waiting.add(unsettled, self.clock.now());
                    }
                }
                else => return,
            }
        }
    }
}
