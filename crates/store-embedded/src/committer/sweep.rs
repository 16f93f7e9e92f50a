//! Clean-up: what has lapsed becomes unknown, what has expired is no longer counted, and whole segments go.

use std::io;

use onlyonce_core::StoreError;
use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::transition::{Answer, Command, Sweep, SweepAnswer};

use super::group::Group;
use super::{Committer, Uncommitted};
use crate::io::failed_sync;

/// How many lapsed records are written together.
const LAPSED_TOGETHER: usize = 64;
/// How many segments go in one sweep: to unlink a large file takes as long as some commits, and those wait for it. On a
/// full disk all of them go, because everybody waits for that.
const SEGMENTS_TOGETHER: usize = 1;

impl Committer {
    pub(super) fn sweep(&mut self, budget: SweepBudget) -> Result<Swept, StoreError> {
        self.shared.check()?;
        let now = self.shared.clock.now();
        // ORDER: what frees room first, what needs room after it: a full disk must be able to get well.
        let mut swept = Swept { dropped: self.drop_segments()?, ..Swept::default() };
        self.look_for_room();
        swept.made_unknown = self.sweep_lapsed(budget.get())?;
        let left = budget.get() - swept.made_unknown;
        swept.removed = self.shared.catalog_mut().forget_expired(now, left);
        if self.copy_forward(left)? {
            swept.dropped += self.drop_segments()?;
        }
        let catalog = self.shared.catalog();
        swept.more = catalog.has_expired(now)
            || !catalog.lapsed(now, 1).is_empty()
            || !catalog.droppable(now).is_empty();
        Ok(swept)
    }

    /// Makes up to `most` of what has lapsed unknown, and fewer together where there is no room for many.
    fn sweep_lapsed(&mut self, most: usize) -> Result<usize, StoreError> {
        let lapsed = self.shared.catalog().lapsed(self.shared.clock.now(), most);
        let (mut left, mut together, mut made_unknown) = (&lapsed[..], LAPSED_TOGETHER, 0);
        while !left.is_empty() {
            let (some, rest) = left.split_at(together.min(left.len()));
            let (mut group, mut made) = (Group::default(), 0);
            for id in some {
                let answer = self.decide(&mut group, &Command::Sweep(Sweep { id: *id }), None)?;
                made += usize::from(answer == Answer::Sweep(SweepAnswer::MadeUnknown));
            }
            match self.commit(group) {
                Ok(()) => (left, made_unknown) = (rest, made_unknown + made),
                Err(Uncommitted::Full) if some.len() > 1 => together = some.len() / 2,
                // What could be done was done; the rest is tried again when there is room.
                Err(Uncommitted::Full) if made_unknown > 0 => break,
                Err(failed) => {
                    self.spend_reserve();
                    return Err(failed.error(&self.shared, "sweeping"));
                }
            }
        }
        Ok(made_unknown)
    }

    /// Writes what is in flight again that alone keeps a segment: a long run must not pin the short-lived.
    ///
    /// Answers whether there was any.
    fn copy_forward(&mut self, most: usize) -> Result<bool, StoreError> {
        let pinning = self.shared.catalog().pinning(self.shared.clock.now(), most);
        let some = !pinning.is_empty();
        let mut group = Group::default();
        for (id, stored) in pinning {
            group.put_from_elsewhere(id, stored.record.clone(), Some(stored));
        }
        match self.commit(group) {
            Ok(()) => Ok(some),
            // They stay where they are until there is room.
            Err(Uncommitted::Full) => Ok(false),
            Err(failed) => Err(failed.error(&self.shared, "copying records forward")),
        }
    }

    /// Unlinks segments in which everything has expired, the oldest first.
    fn drop_segments(&mut self) -> Result<usize, StoreError> {
        let dropped = self.drop_expired();
        dropped.map_err(|error| self.shared.poison("dropping expired segments", &error))
    }

    fn drop_expired(&mut self) -> io::Result<usize> {
        let now = self.shared.clock.now();
        for segment in self.shared.catalog_mut().retire_idle(now) {
            let _ = self.to_seal.send(segment);
        }
        let mut dropped = 0;
        let most = if self.shared.is_full() { usize::MAX } else { SEGMENTS_TOGETHER };
        let droppable = self.shared.catalog().droppable(now);
        for id in droppable.into_iter().take(most) {
            let Some((segment, records)) = self.shared.catalog_mut().drop_segment(id) else { continue };
            dropped += usize::try_from(records).unwrap_or(usize::MAX);
            // ORDER: an older segment is gone for good before a newer one goes, or its entries would come back.
            self.shared.in_folder(|disk| {
                disk.remove(&segment.name())?;
                match disk.remove(&segment.index_name()) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                disk.sync_folder().map_err(failed_sync)
            })?;
        }
        Ok(dropped)
    }
}
