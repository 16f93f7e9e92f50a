//! What callers and the threads of a store share: the queue of waiting commands, the catalog, and whether all is well.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use onlyonce_core::store::Watches;
use onlyonce_core::{Clock, RecordId, StoreError, StoreErrorKind};

use crate::catalog::{Catalog, Stored, Version};
use crate::io::{Disk, is_failed_sync};
use crate::meta::Meta;
use crate::options::Options;
use crate::queue::{Job, Queue};

pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
    pub(crate) watches: Watches,
    pub(crate) queue: Arc<Queue>,
    pub(crate) meta: Mutex<Meta>,
    /// Set while the disk has no room: new claims are refused, what is granted is completed from the reserve.
    pub(crate) full: AtomicBool,
    catalog: RwLock<Catalog>,
    /// Held while names are made durable: a failed sync of the folder may tell of someone else's names.
    folder: Mutex<()>,
    /// How many copy the store, or −1 while bodies are overwritten: one would spoil the other.
    copying: AtomicI64,
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
            queue: Arc::default(),
            meta: Mutex::new(meta),
            full: AtomicBool::new(false),
            catalog: RwLock::new(catalog),
            folder: Mutex::default(),
            copying: AtomicI64::new(0),
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
        self.queue.push(job)
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
