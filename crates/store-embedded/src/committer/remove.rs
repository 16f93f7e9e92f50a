//! Unlinks segments that are over, beside the committer and not in its way: to unlink a large file and to sync the folder
//! takes as long as many commits.
//!
//! A segment stays in the catalog until it is gone for good. Whoever writes a key again meanwhile still sees its old entry,
//! and puts the new one where it counts as newer, whether or not a power cut brings the old one back.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
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
    chores: Chores,
}

impl Remover {
    pub(crate) fn new(shared: Arc<Shared>, chores: Receiver<Chore>) -> Self {
        Self { shared, chores: Chores::new(chores) }
    }

    /// Works until the committer is gone.
    pub(crate) fn run(mut self) {
        let mut gone = 0;
        while let Some(chore) = self.chores.next() {
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
        free(&file, || self.shared.is_full(), || self.chores.pause(FREED_EVERY));
        Ok(usize::try_from(records).unwrap_or(usize::MAX))
    }
}

/// Gives the room of a file that has no name any more back to the disk, a little at a time, for as long as there is a `pause`
/// after each. What is left goes when the file is closed.
fn free(file: &Arc<dyn DiskFile>, is_full: impl Fn() -> bool, mut pause: impl FnMut() -> bool) {
    // Nobody comes to have it any more; whoever still reads it, for a copy, reads it to its end. So does who linked to it.
    if Arc::strong_count(file) > 1 || !file.is_nameless() {
        return;
    }
    let Ok(mut len) = file.len() else { return };
    // On a full disk everybody waits for the room.
    while len > FREED_TOGETHER && !is_full() {
        len -= FREED_TOGETHER;
        if file.set_len(len).is_err() || !pause() {
            return;
        }
    }
}

/// Chores in the order in which they came.
struct Chores {
    coming: Receiver<Chore>,
    /// Those that came while a file was being freed.
    waiting: VecDeque<Chore>,
    /// Nothing ever comes by it: whoever waits for that pauses.
    never: (Sender<Infallible>, Receiver<Infallible>),
}

impl Chores {
    fn new(coming: Receiver<Chore>) -> Self {
        Self { coming, waiting: VecDeque::new(), never: mpsc::channel() }
    }

    /// Waits for one. `None` when nobody has any more.
    fn next(&mut self) -> Option<Chore> {
        self.waiting.pop_front().or_else(|| self.coming.recv().ok())
    }

    /// Pauses for all of `pause`, whoever comes meanwhile. False when nobody has chores any more.
    fn pause(&mut self, pause: Duration) -> bool {
        let _ = self.never.1.recv_timeout(pause);
        loop {
            match self.coming.try_recv() {
                Ok(chore) => self.waiting.push_back(chore),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;
    use crate::io::{Disk as _, RealDisk};

    /// A file that is freed in three parts, in a folder of its own.
    fn file() -> (tempfile::TempDir, RealDisk, Arc<dyn DiskFile>) {
        let folder = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(folder.path()).unwrap();
        let file = disk.create("segment").unwrap();
        file.set_len(3 * FREED_TOGETHER + 1).unwrap();
        (folder, disk, file)
    }

    #[test]
    fn a_file_without_a_name_is_freed_in_parts_with_a_pause_after_each() {
        let (_folder, disk, file) = file();
        disk.remove("segment").unwrap();
        let mut lens = Vec::new();
        free(
            &file,
            || false,
            || {
                lens.push(file.len().unwrap());
                true
            },
        );
        assert_eq!(lens, [2 * FREED_TOGETHER + 1, FREED_TOGETHER + 1, 1]);
    }

    #[test]
    fn a_file_that_somebody_linked_to_or_reads_stays_as_it_is() {
        let (folder, disk, file) = file();
        let backup = folder.path().join("backup");
        fs::hard_link(folder.path().join("segment"), &backup).unwrap();
        disk.remove("segment").unwrap();
        free(&file, || false, || true);
        assert_eq!(fs::metadata(&backup).unwrap().len(), 3 * FREED_TOGETHER + 1);
        fs::remove_file(backup).unwrap();
        let reader = Arc::clone(&file);
        free(&file, || false, || true);
        assert_eq!(reader.len().unwrap(), 3 * FREED_TOGETHER + 1);
        drop(reader);
        free(&file, || true, || true);
        assert_eq!(
            file.len().unwrap(),
            3 * FREED_TOGETHER + 1,
            "on a full disk it goes at once, when it is closed"
        );
        free(&file, || false, || false);
        assert_eq!(file.len().unwrap(), 2 * FREED_TOGETHER + 1, "and when the store closes, too");
    }

    #[test]
    fn a_chore_that_comes_does_not_shorten_the_pause() {
        const PAUSE: Duration = Duration::from_millis(20);
        let (sender, coming) = mpsc::channel();
        let mut chores = Chores::new(coming);
        let (tell, told) = mpsc::channel();
        for number in 0..3 {
            let tell = tell.clone();
            let chore = Chore::Tell(Box::new(move |_| tell.send(number).unwrap()));
            assert!(sender.send(chore).is_ok());
        }
        let began = Instant::now();
        assert!(chores.pause(PAUSE));
        assert!(began.elapsed() >= PAUSE);
        drop(sender);
        for _ in 0..3 {
            let Some(Chore::Tell(tell)) = chores.next() else { panic!("one of the three") };
            tell(0);
        }
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!chores.pause(PAUSE) && chores.next().is_none(), "the store closes");
    }
}
