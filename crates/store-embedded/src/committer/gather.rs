//! When a group is complete: when those who are on their way have come, or do not come after all.
//!
//! Callers that were just answered come back one after the other. Were the first of them given a sync to itself, all
//! others would wait for that one and then for their own. So they are waited for, for as long as their runtime has work
//! to do: the round that woke them says when nobody comes any more. A lone caller expects nobody and waits for nobody.

use std::time::Duration;

use crate::queue::{Job, Queue};

/// How long each of those who may come is waited for: what a small request takes between two commands.
const PATIENCE_EACH: Duration = Duration::from_micros(20);
/// The most patience. Only a runtime that has no moment to spare makes it last so long.
const PATIENCE_MAX: Duration = Duration::from_millis(4);

#[derive(Debug, Default)]
pub(super) struct Gather {
    /// How many may come: those that were answered last, and those that came meanwhile.
    expected: usize,
}

impl Gather {
    /// The next jobs. `None` when the store is closing and nothing is left; an empty list after `idle`.
    pub(super) fn next(&mut self, queue: &Queue, idle: Option<Duration>) -> Option<Vec<Job>> {
        let patience = PATIENCE_EACH.saturating_mul(u32::try_from(self.expected).unwrap_or(u32::MAX));
        queue.take(self.expected, patience.min(PATIENCE_MAX), idle)
    }

    /// Notes that `answered` callers were answered just now.
    pub(super) fn answered(&mut self, queue: &Queue, answered: usize) {
        self.expected = answered + queue.len();
    }
}
