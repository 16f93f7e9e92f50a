//! Unlinks segments that are over, beside the committer and not in its way: to unlink a large file and to sync the folder
//! takes as long as many commits.
//!
//! A segment stays in the catalog until it is gone for good. Whoever writes a key again meanwhile still sees its old entry,
//! and puts the new one where it counts as newer, whether or not a power cut brings the old one back.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use crate::io::{DiskFile, failed_sync};
use crate::segment::SegmentId;
use crate::shared::Shared;

/// Something for the remover to do.
pub(crate) enum Chore {
    Remove(SegmentId),
    /// To be told how many records went since the last time.
    Tell(Box<dyn FnOnce(usize) + Send>),
}

/// How much of a file is freed at a time, and how long nothing is freed after it. To free a large file at once keeps the disk
/// from syncing for as long as tens of commits take.
const FREED_TOGETHER: u64 = 1 << 20;
const FREED_EVERY: Duration = Duration::from_millis(20);

/// Removes segments as they come.
pub(crate) struct Remover {
    shared: Arc<Shared>,
    chores: Receiver<Chore>,
    /// Those that came while a file was being freed.
    waiting: VecDeque<Chore>,
}

impl Remover {
    pub(crate) fn new(shared: Arc<Shared>, chores: Receiver<Chore>) -> Self {
        Self { shared, chores, waiting: VecDeque::new() }
    }

    /// Works until the committer is gone.
    pub(crate) fn run(mut self) {
        let mut gone = 0;
        while let Some(chore) = self.waiting.pop_front().or_else(|| self.chores.recv().ok()) {
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
    fn remove(&mut self, id: SegmentId) -> io::Result<usize> {
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
        let gone = self.shared.catalog_mut().drop_segment(id);
        let Some((segment, records)) = gone else { return Ok(0) };
        let file = Arc::clone(&segment.file);
        drop(segment);
        self.free(&file);
        Ok(usize::try_from(records).unwrap_or(usize::MAX))
    }

    /// Gives the room of a file that has no name any more back to the disk, a little at a time. What is left goes when the
    /// file is closed.
    fn free(&mut self, file: &Arc<dyn DiskFile>) {
        // Nobody comes to have it any more; whoever still reads it, for a copy, reads it to its end. So does who linked to it.
        if Arc::strong_count(file) > 1 || !file.is_nameless() {
            return;
        }
        let Ok(mut len) = file.len() else { return };
        // On a full disk everybody waits for the room.
        while len > FREED_TOGETHER && !self.shared.is_full() {
            len -= FREED_TOGETHER;
            if file.set_len(len).is_err() {
                return;
            }
            match self.chores.recv_timeout(FREED_EVERY) {
                Ok(chore) => self.waiting.push_back(chore),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
