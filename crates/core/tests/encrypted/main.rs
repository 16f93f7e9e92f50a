//! A store behind encryption keeps the contract, and what was not encrypted for this place under a known key is damage.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

mod damage;
mod keys;

use std::sync::Arc;

use bytes::Bytes;
use onlyonce_core::record::{State, StepName, codec};
use onlyonce_core::transition::{Actor, RecordStep, Resolve, Verdict};
use onlyonce_core::{
    Encrypted, KeyId, Keyring, MemoryLimits, MemoryStore, Outcome, Recent, Record, RecordId, Store,
    StoreError, Tiered,
};
use onlyonce_testkit::fixture::{HOLD_FOR, LEASE};
use onlyonce_testkit::{Clocked, Encrypting, ManualClock, Scene, run};

/// Keys by name, each of one repeated byte. The first is written with.
fn ring(keys: &[(&str, u8)]) -> Keyring {
    Keyring::new(keys.iter().map(|(name, byte)| (KeyId::new(name).unwrap(), [*byte; 32]))).unwrap()
}

/// A memory store behind encryption, and the same store as a thief sees it.
struct Pair {
    clear: Clocked,
    stolen: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
}

impl Pair {
    fn new(keys: Keyring) -> Self {
        Self::at(Arc::new(ManualClock::default()), keys)
    }

    fn at(clock: Arc<ManualClock>, keys: Keyring) -> Self {
        let stolen = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        Self { clear: Self::seen(&clock, &stolen, keys), stolen, clock }
    }

    fn seen(clock: &Arc<ManualClock>, stolen: &Arc<MemoryStore>, keys: Keyring) -> Clocked {
        Clocked::new(Arc::new(Encrypted::new(stolen.clone(), keys)), clock.clone())
    }

    /// The same records with other keys.
    fn with(&self, keys: Keyring) -> Clocked {
        Self::seen(&self.clock, &self.stolen, keys)
    }

    async fn raw(&self, id: &RecordId) -> Record {
        self.stolen.lookup(id).await.unwrap().expect("a record")
    }

    /// A store into which somebody wrote `records` past the encryption.
    async fn forged(&self, keys: Keyring, records: &[(RecordId, Record)]) -> Self {
        let forged = Self::at(self.clock.clone(), keys);
        assert_eq!(forged.stolen.import(records).await.unwrap().taken, records.len());
        forged
    }
}

/// The bytes in the body of a completed record.
fn body_of(record: &Record) -> &Bytes {
    let State::Completed(completed) = &record.state else { panic!("completed, not {record:?}") };
    completed.outcome.body().bytes().expect("a body")
}

/// What an error says of its reason.
fn cause(error: &StoreError) -> String {
    std::error::Error::source(error).expect("a cause").to_string()
}

/// A scene of `id` in another store.
fn scene_of(fixture: &Clocked, id: RecordId) -> Scene<'_, Clocked> {
    let mut scene = Scene::new(fixture);
    scene.id = id;
    scene
}

mod over_memory {
    use super::*;

    onlyonce_testkit::store_suite!(async {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        Encrypting(Clocked::new(store, clock))
    });
}

const TIER_BYTES_MAX: usize = 1 << 20;

fn behind_recent(store: Arc<dyn Store>, clock: &Arc<ManualClock>) -> Arc<Tiered> {
    let tier = Arc::new(Recent::new(clock.clone(), TIER_BYTES_MAX));
    Arc::new(Tiered::new(store, tier, clock.clone()))
}

/// The tier holds what is encrypted: where others can look into it.
mod over_a_tier {
    use super::*;

    onlyonce_testkit::store_suite!(async {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        Encrypting(Clocked::new(behind_recent(store, &clock), clock))
    });
}

/// The tier holds what is in the clear: in this process's own memory.
mod behind_a_tier {
    use super::*;

    onlyonce_testkit::store_suite!(async {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone(), MemoryLimits::default()));
        let encrypted = Arc::new(Encrypted::new(store, ring(&[("suite", 3)])));
        Clocked::new(behind_recent(encrypted, &clock), clock)
    });
}

#[test]
fn nothing_that_a_caller_wrote_is_in_the_store() {
    run(async {
        let pair = Pair::new(ring(&[("k1", 1)]));
        // A sealed record that was completed late, and one that an operator resolved.
        let late = Scene::new(&pair.clear);
        let token = late.granted().await;
        late.advance(LEASE + HOLD_FOR).await;
        late.expect_replay("sealed").await;
        late.complete(token, "secret of a late owner").await;
        let resolved = Scene::new(&pair.clear);
        let token = resolved.granted().await;
        resolved.advance(LEASE).await;
        let verdict = Verdict::Executed(Outcome::kept(7, "secret of an operator"));
        let resolve = Resolve { id: resolved.id, fence: token.fence, verdict, actor: Actor::Hook };
        resolved.store().resolve(&resolve).await.unwrap();

        let scene = Scene::new(&pair.clear);
        let token = scene.granted().await;
        let name = StepName::new("charge").unwrap();
        let step = RecordStep { token, name, value: "secret of a step".into() };
        scene.store().record_step(&step).await.unwrap();
        scene.complete(token, "secret answer").await;

        for id in [scene.id, late.id, resolved.id] {
            let bytes = codec::encode(&id, &pair.raw(&id).await);
            for needle in ["secret", "sealed"] {
                let found = bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
                assert!(!found, "{needle:?} is stored as it was written");
            }
        }
        // And it can fail: the name of a step, which stays, is found.
        let bytes = codec::encode(&scene.id, &pair.raw(&scene.id).await);
        assert!(bytes.windows(6).any(|window| window == b"charge"));
        let shown = late.lookup().await.unwrap();
        let State::Completed(completed) = shown.state else { panic!("completed") };
        assert_eq!(completed.late.unwrap().body().bytes().unwrap(), "secret of a late owner");
    });
}

#[test]
fn what_was_written_once_is_read_for_ever() {
    run(async {
        let pair = Pair::new(ring(&[("2026-11", 0x2a)]));
        let id = RecordId::from_bytes([0x11; 32]);
        let scene = scene_of(&pair.clear, id);
        let token = scene.completed("golden").await;
        let stored = body_of(&pair.raw(&id).await).clone();
        // The fence is the store's to choose, so the bytes are those of this store's first grant.
        let shown = (token.fence.get(), onlyonce_core::hex::encode(&stored));
        assert_eq!(shown, (1_790_000_000_000_000, GOLDEN.to_owned()));
    });
}

/// Checked against another implementation of BLAKE3 and AES-256-GCM-SIV.
const GOLDEN: &str = "ee4f450107323032362d31316460919c8381ca163a064163074933c2079b3c709807";
