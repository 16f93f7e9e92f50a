//! An embedded store in a folder of its own, on a clock that the suite moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{RecordId, Store};
use onlyonce_store_embedded::io::RealDisk;
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::{Fixture, ManualClock};
use tempfile::TempDir;

pub(crate) struct Folder {
    // ORDER: the store ends its threads when it goes, before the folder does.
    store: Mutex<Option<Arc<EmbeddedStore>>>,
    folder: TempDir,
    clock: Arc<ManualClock>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::default()));
        let opened = Self { store: Mutex::new(None), folder, clock };
        opened.open();
        opened
    }

    fn open(&self) {
        let disk = Arc::new(RealDisk::new(self.folder.path()).unwrap());
        let options = Options { reserve_bytes: 4096, ..Options::default() };
        let store = EmbeddedStore::open_on(disk, self.clock.clone(), options).unwrap();
        *self.store.lock().unwrap() = Some(Arc::new(store));
    }
}

impl Fixture for Folder {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().unwrap().clone().unwrap()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        drop(self.store.lock().unwrap().take());
        self.open();
        true
    }

    /// Where its bytes are is known to the store's own tests.
    async fn damage(&self, _: &RecordId) -> bool {
        false
    }
}
