//! Clean-up: what has lapsed becomes unknown, what has expired is no longer counted, and whole segments go.

use std::io;

use onlyonce_core::StoreError;
use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::transition::{Answer, Command, Sweep, SweepAnswer};

use super::Committer;
use super::group::Group;

impl Committer {
    pub(super) fn sweep(&mut self, budget: SweepBudget) -> Result<Swept, StoreError> {
        self.shared.check()?;
        self.look_for_room();
        let mut swept = Swept { made_unknown: self.sweep_lapsed(budget.get())?, ..Swept::default() };
        let now = self.shared.clock.now();
        let left = budget.get() - swept.made_unknown;
        swept.removed = self.shared.catalog_mut().forget_expired(now, left);
        self.copy_forward(left)?;
        let dropped = self.drop_segments();
        swept.dropped = dropped.map_err(|error| self.shared.poison("dropping expired segments", &error))?;
        let catalog = self.shared.catalog();
        swept.more = catalog.has_expired(now) || !catalog.lapsed(now, 1).is_empty();
        Ok(swept)
    }

    fn sweep_lapsed(&mut self, most: usize) -> Result<usize, StoreError> {
        let lapsed = self.shared.catalog().lapsed(self.shared.clock.now(), most);
        let mut group = Group::default();
        let mut made_unknown = 0;
        for id in lapsed {
            let answer = self.decide(&mut group, &Command::Sweep(Sweep { id }), None)?;
            made_unknown += usize::from(answer == Answer::Sweep(SweepAnswer::MadeUnknown));
        }
        self.commit(group).map_err(|failed| failed.error(&self.shared, "sweeping"))?;
        Ok(made_unknown)
    }

    /// Writes what is in flight again that alone keeps a segment: a long run must not pin the short-lived.
    fn copy_forward(&mut self, most: usize) -> Result<(), StoreError> {
        let pinning = self.shared.catalog().pinning(self.shared.clock.now(), most);
        let mut group = Group::default();
        for (id, stored) in pinning {
            group.put_from_elsewhere(id, stored.record.clone(), Some(stored));
        }
        self.commit(group).map_err(|failed| failed.error(&self.shared, "copying records forward"))
    }

    /// Unlinks segments in which everything has expired, the oldest first.
    fn drop_segments(&mut self) -> io::Result<usize> {
        let now = self.shared.clock.now();
        for segment in self.shared.catalog_mut().retire_idle(now) {
            let _ = self.to_seal.send(segment);
        }
        let mut dropped = 0;
        let droppable = self.shared.catalog().droppable(now);
        for id in droppable {
            let Some((segment, records)) = self.shared.catalog_mut().drop_segment(id) else { continue };
            dropped += usize::try_from(records).unwrap_or(usize::MAX);
            self.shared.disk.remove(&segment.name())?;
            match self.shared.disk.remove(&segment.index_name()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            // ORDER: an older segment is gone for good before a newer one goes, or its entries would come back.
            self.shared.disk.sync_folder()?;
        }
        Ok(dropped)
    }
}
