//! How sweeping goes, for whoever looks: figures, the dashboard, tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::growth::Growth;
use crate::clock::Timestamp;
use crate::record::Fence;
use crate::store::{Stats, Swept};

/// What an operator is told while the record of who sweeps cannot be read.
pub(super) const SPARE_OFFICE: &str = "the record of who sweeps (onlyonce/sweep) is damaged or of a newer version: the spare \
     (onlyonce/sweep-spare) is used, and processes that can read the first may sweep beside this one";

/// How sweeping goes in this process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SweepState {
    /// Whether this process is the one that sweeps the store.
    pub elected: bool,
    /// The fence of the grant under which it does, or last did.
    pub fence: Option<Fence>,
    /// When a batch last succeeded here.
    pub last_success: Option<Timestamp>,
    /// Batches and elections that failed.
    pub failures: u64,
    /// Batches that succeeded.
    pub batches: u64,
    /// Expired records that were removed, one by one or with a whole file or table.
    pub removed_total: u64,
    /// Records whose lease had passed and that were made unknown.
    pub made_unknown_total: u64,
    /// How fast the last pass that removed anything was, its pauses included.
    pub rows_per_second: f64,
    /// How long the record that has been expired longest has been waiting, as counted last.
    pub oldest_expired: Option<Duration>,
    /// What an operator should know: bounds of the store that are near or reached, and what else is odd.
    pub warnings: Vec<String>,
}

/// Tells how sweeping goes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sweeping {
    state: Arc<Mutex<SweepState>>,
    growth: Arc<Growth>,
}

impl Sweeping {
    pub(super) fn new(growth: Arc<Growth>) -> Self {
        Self { state: Arc::default(), growth }
    }

    /// How it goes now.
    pub fn now(&self) -> SweepState {
        let mut state = self.state().clone();
        state.warnings.extend(self.growth.warnings());
        state
    }

    pub(super) fn is_elected(&self) -> bool {
        self.state().elected
    }

    pub(super) fn note_elected(&self, fence: Option<Fence>) {
        let mut state = self.state();
        state.elected = fence.is_some();
        state.fence = fence.or(state.fence);
    }

    /// Whether this process sweeps because the record of who does cannot be read.
    pub(super) fn note_spare(&self, is_spare: bool) {
        self.state().warnings = if is_spare { vec![SPARE_OFFICE.to_owned()] } else { Vec::new() };
    }

    /// Notes a batch, of a pass that removed `rows` in `time` so far.
    pub(super) fn note_swept(
        &self,
        swept: &Swept,
        rows: usize,
        time: Duration,
        now: Timestamp,
    ) -> SweepState {
        let mut state = self.state();
        state.batches += 1;
        state.last_success = Some(now);
        state.removed_total += (swept.removed + swept.dropped) as u64;
        state.made_unknown_total += swept.made_unknown as u64;
        if rows > 0 {
            // A pass of less than a clock's tick took a tick.
            let seconds = time.max(Duration::from_millis(1)).as_secs_f64();
            state.rows_per_second = f64::from(u32::try_from(rows).unwrap_or(u32::MAX)) / seconds;
        }
        state.clone()
    }

    pub(super) fn note_failed(&self) {
        self.state().failures += 1;
    }

    pub(super) fn note_counted(&self, stats: &Stats) {
        self.state().oldest_expired = stats.oldest_expired;
    }

    fn state(&self) -> MutexGuard<'_, SweepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
