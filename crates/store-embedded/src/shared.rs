//! What callers and the threads of a store share: the queue of waiting commands, the catalog, and whether all is well.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use std::time::Duration;

use onlyonce_core::store::{Imported, SweepBudget, Swept, Watches};
use onlyonce_core::transition::Command;
use onlyonce_core::{Clock, Record, RecordId, StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::catalog::{Catalog, Stored, Version};
use crate::committer::Reply;
use crate::io::{Disk, is_failed_sync};
use crate::meta::Meta;
use crate::options::Options;

/// The most commands that may wait. One more is refused: a disk that does not keep up must not eat the memory.
const QUEUE_MAX: usize = 65_536;

/// Something for the committer to do.
#[derive(Debug)]
pub(crate) enum Job {
    /// Commands, and the version at which the record of a lone one was seen to be absent.
    Commands(Vec<Command>, Option<Version>, Reply),
    Sweep(SweepBudget, oneshot::Sender<Result<Swept, StoreError>>),
    Import(Vec<(RecordId, Record)>, oneshot::Sender<Result<Imported, StoreError>>),
}

#[derive(Debug, Default)]
struct Queue {
    jobs: Vec<Job>,
    /// How many must wait before the committer is woken; `None` while it is awake. Telling a thread that does not wait
    /// takes a system call all the same.
    wanted: Option<usize>,
    stopping: bool,
}

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) watches: Watches,
    pub(crate) meta: Mutex<Meta>,
    /// Set while the disk has no room: new claims are refused, what is granted is completed from the reserve.
    pub(crate) full: AtomicBool,
    catalog: RwLock<Catalog>,
    /// Held while names are made durable: a failed sync of the folder may tell of someone else's names.
    folder: Mutex<()>,
    /// How many copy the store, or −1 while bodies are overwritten: one would spoil the other.
    copying: AtomicI64,
    queue: Mutex<Queue>,
    more: Condvar,
    /// Why nothing may be written any more.
    poisoned: OnceLock<String>,
}

/// The store is being copied.
pub(crate) struct Copying<'s>(&'s Shared);

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        self.0.copying.fetch_sub(1, Ordering::AcqRel);
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("disk", &self.disk).field("poisoned", &self.poisoned).finish()
    }
}

impl Shared {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: Options,
        meta: Meta,
        catalog: Catalog,
    ) -> Self {
        Self {
            disk,
            clock,
            options,
            watches: Watches::default(),
            meta: Mutex::new(meta),
            full: AtomicBool::new(false),
            catalog: RwLock::new(catalog),
            folder: Mutex::default(),
            copying: AtomicI64::new(0),
            queue: Mutex::default(),
            more: Condvar::new(),
            poisoned: OnceLock::new(),
        }
    }

    pub(crate) fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalog_mut(&self) -> RwLockWriteGuard<'_, Catalog> {
        self.catalog.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is durably stored under `id`. An absence is believed only while nothing is missing. `absent_at` is when it
    /// was last seen to be absent: then only what changed since is looked at.
    pub(crate) fn read(
        &self,
        id: &RecordId,
        absent_at: Option<Version>,
    ) -> Result<Option<Stored>, StoreError> {
        // The disk is read after the catalog was let go: a slow read holds nobody up.
        let lookup = self.catalog().lookup(id, absent_at);
        let stored = lookup.read(id)?;
        if stored.is_none() {
            self.catalog().believe_absence()?;
        }
        Ok(stored)
    }

    /// Hands a job to the committer.
    pub(crate) fn push(&self, job: Job) -> Result<(), StoreError> {
        self.check()?;
        let mut queue = self.queue();
        if queue.stopping {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "reaching a store that is closing"));
        }
        if queue.jobs.len() >= QUEUE_MAX {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "waiting for the disk")
                .because("too many commands wait for the disk"));
        }
        queue.jobs.push(job);
        let waiting = queue.jobs.len();
        let is_enough = queue.wanted.take_if(|wanted| waiting >= *wanted).is_some();
        // Let go first: it would be woken only to wait for us.
        drop(queue);
        if is_enough {
            self.more.notify_one();
        }
        Ok(())
    }

    /// Waits for jobs and answers how many there are. `None` when the store is closing and nothing is left; 0 after
    /// `patience`.
    pub(crate) fn wait_for_jobs(&self, patience: Option<Duration>) -> Option<usize> {
        let mut queue = self.queue();
        while queue.jobs.is_empty() {
            if queue.stopping {
                return None;
            }
            queue.wanted = Some(1);
            queue = match patience {
                None => self.more.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let (queue, waited) =
                        self.more.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() && queue.jobs.is_empty() {
                        return Some(0);
                    }
                    queue
                }
            };
        }
        queue.wanted = None;
        Some(queue.jobs.len())
    }

    /// Waits until `wanted` jobs wait or `patience` is over, and takes those that do.
    pub(crate) fn take_jobs(&self, wanted: usize, patience: Duration) -> Vec<Job> {
        let mut queue = self.queue();
        if queue.jobs.len() < wanted && !queue.stopping {
            queue.wanted = Some(wanted);
            // Once: whoever wakes it early, or late, there is something to do.
            queue = self.more.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner).0;
            queue.wanted = None;
        }
        std::mem::take(&mut queue.jobs)
    }

    /// How many jobs wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue().jobs.len()
    }

    pub(crate) fn stop(&self) {
        self.queue().stopping = true;
        self.more.notify_all();
    }

    /// Changes names and makes that durable. After a sync of the folder has failed nobody else's is believed.
    pub(crate) fn in_folder<T>(&self, change: impl FnOnce(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
        let _held = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reason) = self.poisoned.get() {
            return Err(io::Error::other(reason.clone()));
        }
        let changed = change(&*self.disk);
        if let Err(error) = &changed
            && is_failed_sync(error)
        {
            // ORDER: before anyone else asks: a second sync may succeed and say nothing of what the first one lost.
            self.poison("syncing the folder", error);
        }
        changed
    }

    /// Whether bodies may be overwritten now. Ends with [`Shared::end_erasing`].
    pub(crate) fn begin_erasing(&self) -> bool {
        self.copying.compare_exchange(0, -1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn end_erasing(&self) {
        self.copying.store(0, Ordering::Release);
    }

    /// Waits until nothing is being overwritten, and keeps it so until what is answered is dropped.
    pub(crate) fn begin_copying(&self) -> Copying<'_> {
        loop {
            let copying = self.copying.load(Ordering::Acquire).max(0);
            let more = copying + 1;
            if self.copying.compare_exchange(copying, more, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return Copying(self);
            }
            std::thread::yield_now();
        }
    }

    /// Never again: after a failed sync nobody knows what the disk holds, and asking it again may lie.
    pub(crate) fn poison(&self, doing: &str, error: &io::Error) -> StoreError {
        let reason = format!("{doing} failed ({error}); restart to recover from the log");
        tracing::error!(reason, "the embedded store takes no more commands");
        let reason = self.poisoned.get_or_init(|| reason);
        StoreError::new(StoreErrorKind::Unavailable, "writing to the store")
            .because(reason.clone())
            .with_unknown_outcome()
    }

    /// Refuses if the store was poisoned.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.poisoned.get() {
            None => Ok(()),
            Some(reason) => {
                Err(StoreError::new(StoreErrorKind::Unavailable, "using a store whose disk failed")
                    .because(reason.clone()))
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }
}
