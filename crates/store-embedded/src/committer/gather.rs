//! When a group is complete: as soon as those who are on their way have come.
//!
//! Callers that were just answered come back one after the other. Were the first of them given a sync to itself, all
//! others would wait for that one and then for their own. So the processor is offered to them while they come. There is no
//! timer: a lone caller expects nobody and waits for nobody, and where callers do not come back nobody waits for them.

use std::time::Duration;

use crate::shared::{Job, Shared};

/// How often the processor is offered in vain before the group goes on without the rest.
const QUIET_MAX: u32 = 256;
/// For how many groups nobody is waited for after that.
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
        let mut came = shared.wait_for_jobs(patience)?;
        if came > 0 && came < self.expected {
            if self.doubt > 0 {
                self.doubt -= 1;
            } else {
                came = self.wait_for_the_rest(shared, came);
                self.doubt = if came < self.expected { DOUBT } else { 0 };
            }
        }
        Some(shared.take_jobs())
    }

    /// Notes that `answered` callers were answered just now.
    pub(super) fn answered(&mut self, shared: &Shared, answered: usize) {
        self.expected = answered + shared.waiting();
    }

    fn wait_for_the_rest(&self, shared: &Shared, mut came: usize) -> usize {
        let mut quiet = 0;
        while came < self.expected && quiet < QUIET_MAX {
            std::thread::yield_now();
            let waiting = shared.waiting();
            quiet = if waiting > came { 0 } else { quiet + 1 };
            came = waiting;
        }
        came
    }
}
