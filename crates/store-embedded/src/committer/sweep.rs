//! Clean-up: what has lapsed becomes unknown, what has expired is no longer counted, and whole segments go.

use std::sync::{Arc, mpsc};

use onlyonce_core::StoreError;
use onlyonce_core::store::{SweepBudget, Swept};
use onlyonce_core::transition::{Answer, Command, Sweep, SweepAnswer};
use tokio::sync::oneshot;

use super::group::Group;
use super::remove::Chore;
use super::{Committer, Uncommitted};

/// How many lapsed records are written together.
const LAPSED_TOGETHER: usize = 64;
/// How many segments go in one sweep: to unlink a large file keeps the disk as busy as some commits do. On a full disk all of
/// them go, because everybody waits for that.
const SEGMENTS_TOGETHER: usize = 1;

impl Committer {
    /// Sweeps, and answers when what goes is gone.
    pub(super) fn sweep(&mut self, budget: SweepBudget, reply: oneshot::Sender<Result<Swept, StoreError>>) {
        match self.sweep_some(budget) {
            Ok((mut swept, segments)) if segments > 0 => {
                let shared = Arc::clone(&self.shared);
                let tell = move |gone| {
                    swept.dropped += gone;
                    drop(reply.send(shared.check().map(|()| swept)));
                };
                let _ = self.chores.send(Chore::Tell(Box::new(tell)));
            }
            swept => drop(reply.send(swept.map(|(swept, _)| swept))),
        }
    }

    /// What was swept, and how many segments are about to go.
    pub(super) fn sweep_some(&mut self, budget: SweepBudget) -> Result<(Swept, usize), StoreError> {
        self.shared.check()?;
        let now = self.shared.clock.now();
        let mut swept = Swept::default();
        // ORDER: what frees room first, what needs room after it: a full disk must be able to get well.
        let mut going = self.drop_segments();
        if self.shared.is_full() {
            (swept.dropped, going) = (self.wait_for_removal(), 0);
            self.shared.check()?;
        }
        self.look_for_room();
        swept.made_unknown = self.sweep_lapsed(budget.get())?;
        let left = budget.get() - swept.made_unknown;
        swept.removed = self.shared.catalog_mut().forget_expired(now, left);
        if self.copy_forward(left)? {
            going += self.drop_segments();
        }
        let catalog = self.shared.catalog();
        swept.more = catalog.has_expired(now)
            || !catalog.lapsed(now, 1).is_empty()
            || !catalog.droppable(now).is_empty();
        Ok((swept, going))
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
            group.put_from_elsewhere(id, Arc::clone(&stored.record), Some(stored));
        }
        match self.commit(group) {
            Ok(()) => Ok(some),
            // They stay where they are until there is room.
            Err(Uncommitted::Full) => Ok(false),
            Err(failed) => Err(failed.error(&self.shared, "copying records forward")),
        }
    }

    /// Lets segments go in which everything has expired, the oldest first. Answers how many.
    fn drop_segments(&mut self) -> usize {
        let now = self.shared.clock.now();
        for segment in self.shared.catalog_mut().retire_idle(now) {
            let _ = self.to_seal.send(segment);
        }
        let most = if self.shared.is_full() { usize::MAX } else { SEGMENTS_TOGETHER };
        let going = self.shared.catalog_mut().let_go(now, most);
        for id in &going {
            // A remover that is gone leaves the segment to the next start.
            let _ = self.chores.send(Chore::Remove(*id));
        }
        going.len()
    }

    /// Waits until everything is gone that was let go. Answers how many records that were.
    fn wait_for_removal(&self) -> usize {
        let (told, gone) = mpsc::channel();
        let tell = move |records| {
            let _ = told.send(records);
        };
        let _ = self.chores.send(Chore::Tell(Box::new(tell)));
        gone.recv().unwrap_or_default()
    }
}
