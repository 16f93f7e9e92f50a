//! A full disk: new claims are refused, and the completions of what was granted go into space that was set aside.
//!
//! The store notices by itself when there is room again, and removes what has expired to make some: whether, when and by
//! whom it is swept does not matter to those who are refused.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::{StoreError, StoreErrorKind};

use super::Committer;
use super::round::Waiting;
use crate::io::{Disk, failed_sync};
use crate::queue::Job;
use crate::shared::Shared;

const RESERVE: &str = "reserve";
/// How much of the reserve is written at a time.
const CHUNK: usize = 1 << 20;
/// A disk has room again when this part of the reserve is free beside it. With less, the next few claims would fill it.
const AHEAD_PART: u64 = 8;
/// How long a store that had no room waits before it looks again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Sets space aside by filling a file: it must be on the disk to be given back to it. Fails unless `ahead` bytes more would
/// have found room.
pub(crate) fn set_aside(shared: &Shared, ahead: u64) -> io::Result<()> {
    let size = shared.options.reserve_bytes;
    if shared.disk.names()?.iter().any(|name| name == RESERVE) {
        if shared.disk.open(RESERVE)?.len()? == size {
            return Ok(());
        }
        shared.disk.remove(RESERVE)?;
    }
    if let Err(error) = fill(shared, size, ahead) {
        // Half a reserve would only take room from what it is for.
        shared.disk.remove(RESERVE).map_err(io::Error::other)?;
        return Err(error);
    }
    shared.disk.sync_folder().map_err(failed_sync)
}

/// Gives the space back to the disk.
pub(crate) fn give_back(disk: &dyn Disk) -> bool {
    disk.remove(RESERVE).is_ok()
}

fn fill(shared: &Shared, size: u64, ahead: u64) -> io::Result<()> {
    let file = shared.disk.create(RESERVE)?;
    let (mut at, end) = (0, size + ahead);
    while at < end {
        let len = CHUNK.min(usize::try_from(end - at).unwrap_or(CHUNK));
        file.write_at(at, &vec![0; len])?;
        at += len as u64;
    }
    if ahead > 0 {
        file.set_len(size)?;
    }
    file.sync().map_err(failed_sync)
}

impl Committer {
    /// Refuses the commands of a group that found no room, and gives the reserve back for those that follow.
    ///
    /// All of them, not only the claims: they were decided one on top of the other. Every command may be repeated, and
    /// the engine does repeat completions; they find the reserve.
    pub(super) fn out_of_room(&mut self, waiting: Vec<Waiting>, jobs: &mut VecDeque<Job>) {
        tracing::warn!(waiting = jobs.len(), "the disk is full: new claims are refused");
        self.spend_reserve();
        for waiting in waiting {
            waiting.refuse(|| StoreError::new(StoreErrorKind::Full, "writing to a full disk"));
        }
    }

    /// Gives the reserve back to the disk, if that was not done yet. From now on only what must be written is.
    pub(super) fn spend_reserve(&mut self) {
        if !self.shared.full.swap(true, Ordering::Relaxed) {
            give_back(&*self.shared.disk);
            self.looked_at = Some(self.shared.clock.now());
        }
    }

    /// Looks for room before anybody is refused for want of it, every now and then: drops what has expired, and sees
    /// whether others have freed some.
    pub(super) fn make_room(&mut self) {
        let now = self.shared.clock.now();
        let is_too_early = || self.looked_at.is_some_and(|at| at.until(now) < LOOK_AGAIN_AFTER);
        if !self.is_short_of_room() || is_too_early() {
            return;
        }
        self.looked_at = Some(now);
        if let Err(error) = self.sweep_some(SweepBudget::DEFAULT) {
            tracing::debug!(%error, "no room could be made");
        }
    }

    fn is_short_of_room(&self) -> bool {
        self.shared.is_full()
            || self.shared.catalog().in_flight_memory() > self.shared.options.memory_bytes_max
    }

    /// Tries to set space aside again; if that works, the disk is no longer full.
    pub(super) fn look_for_room(&self) {
        let ahead = self.shared.options.reserve_bytes / AHEAD_PART;
        if self.shared.is_full() && set_aside(&self.shared, ahead).is_ok() {
            self.shared.full.store(false, Ordering::Relaxed);
            tracing::info!("the disk has room again: claims are taken");
        }
    }
}
