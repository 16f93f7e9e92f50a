//! The embedded store keeps the contract on a real folder, across restarts and with damage.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onlyonce_core::{RecordId, Store};
use onlyonce_store_embedded::io::RealDisk;
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::{Fixture, ManualClock};
use tempfile::TempDir;

struct Folder {
    // ORDER: fields go in this order, and the store ends its threads when it goes: a sealer that still writes would
    // keep the folder from being removed.
    store: Mutex<Option<Arc<EmbeddedStore>>>,
    dir: TempDir,
    clock: Arc<ManualClock>,
    options: Options,
}

impl Folder {
    fn new(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = Self { store: Mutex::new(None), dir, clock: Arc::new(ManualClock::default()), options };
        folder.open();
        folder
    }

    fn open(&self) {
        let disk = Arc::new(RealDisk::new(self.dir.path()).expect("a folder"));
        let store = EmbeddedStore::open_on(disk, self.clock.clone(), self.options).expect("the store opens");
        *self.store.lock().expect("no test panicked") = Some(Arc::new(store));
    }
}

impl Fixture for Folder {
    fn store(&self) -> Arc<dyn Store> {
        self.store.lock().expect("no test panicked").clone().expect("the store is open")
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn restart(&self) -> bool {
        drop(self.store.lock().expect("no test panicked").take());
        self.open();
        true
    }

    async fn damage(&self, id: &RecordId) -> bool {
        let mut damaged = false;
        for entry in fs::read_dir(self.dir.path()).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_none_or(|extension| extension != "segment") {
                continue;
            }
            let mut bytes = fs::read(&path).expect("a segment");
            // The last entry of the id counts: damage its body.
            let last = bytes.windows(32).rposition(|window| window == id.as_bytes());
            if let Some(at) = last {
                bytes[at + 32 + 20] ^= 1;
                fs::write(&path, bytes).expect("a segment");
                damaged = true;
            }
        }
        damaged
    }
}

mod usual {
    use super::*;
    onlyonce_testkit::store_suite!(std::future::ready(Folder::new(Options {
        reserve_bytes: 4096,
        ..Options::default()
    })));
}

/// Segments so small that every few records begin a new one: nearly everything is read through sealed indexes.
mod small_segments {
    use super::*;
    onlyonce_testkit::store_suite!(std::future::ready(Folder::new(Options {
        reserve_bytes: 4096,
        segment_bytes_max: 4096,
        ..Options::default()
    })));
}

/// The same when all that the disk gets of a caller's bytes is encrypted.
mod encrypted {
    use onlyonce_testkit::Encrypting;

    use super::*;
    onlyonce_testkit::store_suite!(std::future::ready(Encrypting(Folder::new(Options {
        reserve_bytes: 4096,
        ..Options::default()
    }))));
}

/// Erased bodies leave the disk, not only the answers.
mod erasure {
    use onlyonce_core::store::SweepBudget;
    use onlyonce_core::transition::{Erase, RecordStep};
    use onlyonce_testkit::{Scene, run};

    use super::*;

    fn on_disk(folder: &Folder, needle: &[u8]) -> bool {
        let files = fs::read_dir(folder.dir.path()).expect("a folder");
        // The sealer renames its files meanwhile: one that is gone by then holds nothing.
        let texts = files.filter_map(|entry| fs::read(entry.expect("an entry").path()).ok());
        texts.into_iter().any(|bytes| bytes.windows(needle.len()).any(|window| window == needle))
    }

    #[test]
    fn an_erased_body_and_its_steps_are_nowhere_on_the_disk() {
        run(async {
            for segment_bytes_max in [4096, 64 << 20] {
                let folder =
                    Folder::new(Options { segment_bytes_max, reserve_bytes: 0, ..Options::default() });
                let scene = Scene::new(&folder);
                let token = scene.granted().await;
                let name = onlyonce_core::record::StepName::new("charge").expect("a name");
                let step = RecordStep { token, name, value: "card 4111".into() };
                scene.store().record_step(&step).await.expect("a step");
                scene.complete(token, "personal answer").await;
                // Others come after it, so that small segments are sealed by then.
                for _ in 0..40 {
                    Scene::new(&folder).completed("someone else").await;
                }
                folder.store().sweep(SweepBudget::DEFAULT).await.expect("a sweep");
                assert!(on_disk(&folder, b"personal answer") && on_disk(&folder, b"card 4111"));
                folder.store().erase(&Erase { id: scene.id }).await.expect("an erasure");
                assert!(!on_disk(&folder, b"personal answer") && !on_disk(&folder, b"card 4111"));
                folder.restart().await;
                let replayed = scene.lookup().await.expect("the key is still used");
                assert_eq!(replayed.fence, token.fence);
            }
        });
    }
}
