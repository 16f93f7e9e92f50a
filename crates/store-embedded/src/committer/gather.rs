//! When a group is complete: when those who are on their way have come, or do not come after all.
//!
//! Callers that were just answered come back one after the other. Were the first of them given a sync to itself, all
//! others would wait for that one and then for their own. So they are waited for, for less than such a sync takes. A lone
//! caller expects nobody and waits for nobody, and where callers do not come back they are not waited for again soon.

use std::time::Duration;

use crate::shared::{Job, Shared};

/// How long the rest of a group is waited for: about as long as a fast disk takes to sync.
const PATIENCE: Duration = Duration::from_micros(150);
/// For how many groups nobody is waited for after a wait in vain.
const DOUBT: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Gather {
    /// How many may come: those that were answered last, and those that came meanwhile.
    expected: usize,
    doubt: u32,
}

impl Gather {
    /// The next jobs. `None` when the store is closing and nothing is left; an empty list after `patience`.
    pub(super) fn next(&mut self, shared: &Shared, patience: Option<Duration>) -> Option<Vec<Job>> {
        let came = shared.wait_for_jobs(patience)?;
        if came == 0 || came >= self.expected || self.doubt > 0 {
            self.doubt = self.doubt.saturating_sub(u32::from(came > 0));
            return Some(shared.take_jobs(0, Duration::ZERO));
        }
        let jobs = shared.take_jobs(self.expected, PATIENCE);
        if jobs.len() < self.expected {
            self.doubt = DOUBT;
        }
        Some(jobs)
    }

    /// Notes that `answered` callers were answered just now.
    pub(super) fn answered(&mut self, shared: &Shared, answered: usize) {
        self.expected = answered + shared.waiting();
    }
}
