//! Unlinks segments that are over, beside the committer and not in its way: to unlink a large file and to sync the folder
//! takes as long as many commits.
//!
//! A segment stays in the catalog until it is gone for good. Whoever writes a key again meanwhile still sees its old entry,
//! and puts the new one where it counts as newer, whether or not a power cut brings the old one back.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use crate::io::failed_sync;
use crate::segment::SegmentId;
use crate::shared::Shared;

/// Something for the remover to do.
pub(crate) enum Chore {
    Remove(SegmentId),
    /// To be told how many records went since the last time.
    Tell(Box<dyn FnOnce(usize) + Send>),
}

/// Removes segments as they come.
pub(crate) struct Remover {
    shared: Arc<Shared>,
    chores: Receiver<Chore>,
}

impl Remover {
    pub(crate) fn new(shared: Arc<Shared>, chores: Receiver<Chore>) -> Self {
        Self { shared, chores }
    }

    /// Works until the committer is gone.
    pub(crate) fn run(self) {
        let mut gone = 0;
        while let Ok(chore) = self.chores.recv() {
            match chore {
                // ORDER: an older segment is gone for good before a newer one goes, or its entries would come back.
                Chore::Remove(id) => match self.remove(id) {
                    Ok(records) => gone += records,
                    Err(error) => drop(self.shared.poison("dropping expired segments", &error)),
                },
                Chore::Tell(tell) => tell(std::mem::take(&mut gone)),
            }
        }
    }

    /// Answers how many records went with it.
    fn remove(&self, id: SegmentId) -> io::Result<usize> {
        if self.shared.check().is_err() {
            // Nobody knows what the disk holds: nothing is taken from it.
            return Ok(0);
        }
        let names =
            self.shared.catalog().segments.get(&id).map(|segment| (segment.name(), segment.index_name()));
        let Some((name, index_name)) = names else { return Ok(0) };
        // Others may begin a segment meanwhile, and wait for no more than the sync.
        self.shared.disk.remove(&name)?;
        match self.shared.disk.remove(&index_name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.shared.in_folder(|disk| disk.sync_folder().map_err(failed_sync))?;
        // Its file is closed, and its blocks are freed, when nobody waits for the catalog.
        let gone = self.shared.catalog_mut().drop_segment(id);
        Ok(gone.map_or(0, |(_, records)| usize::try_from(records).unwrap_or(usize::MAX)))
    }
}
