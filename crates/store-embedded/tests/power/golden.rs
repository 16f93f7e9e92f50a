//! The bytes of a whole folder, of every version that was ever written.
//!
//! `ONLYONCE_WRITE_GOLDEN=1` creates the files of the current version if there are none. No run ever changes one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::transition::{
    Abandon, Claim, ClaimAnswer, Complete, Erase, RecordStep, Release, Terms, Token,
};
use onlyonce_core::{
    Clock, Lease, Outcome, Record, RecordId, Retention, Secret, Store, StoreErrorKind, Timestamp,
    UnknownPolicy,
};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::{fingerprint, outcome, terms};
use onlyonce_testkit::{ManualClock, run};

use crate::disk::{Image, SimDisk};
use crate::verify::open;
use crate::workload::owner;

/// A machine that pauses has the store write a mark more. So often is it tried without.
const TRIES: usize = 50;

const BEGAN: Timestamp = Timestamp::from_millis(1_780_000_000_000);

fn options() -> Options {
    Options { reserve_bytes: 0, ..Options::default() }
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1"].iter().collect()
}

fn id(number: u8) -> RecordId {
    RecordId::from_bytes(std::array::from_fn(|at| {
        if at == 0 { 1 } else { number.wrapping_mul(41) ^ u8::try_from(at).unwrap() }
    }))
}

async fn granted(store: &EmbeddedStore, number: u8, terms: Terms) -> Token {
    let (id, owner) = (id(number), owner(number.into()));
    let claim = Claim { id, fingerprint: fingerprint(b"body"), owner, terms: Arc::new(terms) };
    let ClaimAnswer::Granted(grant) = store.claim(&claim).await.unwrap() else { panic!("no grant") };
    Token { id, owner, fence: grant.fence }
}

async fn completed(store: &EmbeddedStore, number: u8, terms: Terms, outcome: Outcome) -> Token {
    let token = granted(store, number, terms).await;
    store.complete(&Complete { token, outcome, retention: None }).await.unwrap();
    token
}

/// A store with an entry of every kind: what it holds when it is closed.
fn write() -> (BTreeMap<String, Vec<u8>>, Vec<Option<Record>>, Timestamp) {
    let disk = SimDisk::default();
    let clock = Arc::new(ManualClock::at(BEGAN));
    let usual = || terms(UnknownPolicy::Hold);
    let week = || Terms { retention: Retention::new(Duration::from_hours(7 * 24)).unwrap(), ..usual() };
    let remote = || Terms { remote: true, lease: Lease::new(Duration::from_mins(3)).unwrap(), ..usual() };
    let store = open(&disk, &clock, options()).unwrap();
    run(async {
        store.secret(&Secret::new([7; 32])).await.unwrap();
        completed(&store, 1, usual(), outcome("done")).await;
        clock.advance(Duration::from_millis(1234));
        completed(&store, 2, week(), outcome("kept for a week").with_head("201").unwrap()).await;
        let token = granted(&store, 3, usual()).await;
        store.release(&Release { token, keep_fingerprint: true }).await.unwrap();
        let token = granted(&store, 4, usual()).await;
        store.abandon(&Abandon { token }).await.unwrap();
        let token = granted(&store, 5, remote()).await;
        let name = onlyonce_core::record::StepName::new("charge").unwrap();
        store.record_step(&RecordStep { token, name, value: "ch_1".into() }).await.unwrap();
        completed(&store, 6, usual(), outcome("to be erased")).await;
        store.erase(&Erase { id: id(6) }).await.unwrap();
        granted(&store, 7, usual()).await;
        granted(&store, 8, remote()).await;
    });
    drop(store);
    // What was open is sealed at the next start, whose grants are in a segment of their own.
    clock.advance(Duration::from_secs(1));
    let store = open(&disk, &clock, options()).unwrap();
    run(completed(&store, 9, usual(), outcome("after a restart")));
    drop(store);
    let records = (1..=10).map(|number| lookup(&disk, &clock, number)).collect();
    (disk.image().files, records, clock.now())
}

/// The record as a store finds it that is opened for nothing else: opening counts as a start.
fn lookup(disk: &SimDisk, clock: &Arc<ManualClock>, number: u8) -> Option<Record> {
    let disk = SimDisk::holding(disk.image());
    let store = open(&disk, clock, options()).unwrap();
    run(async { store.lookup(&id(number)).await.unwrap() })
}

#[test]
fn the_folder_of_version_1_is_written_to_the_byte_and_read() {
    let (files, records, now) = write();
    if std::env::var_os("ONLYONCE_WRITE_GOLDEN").is_some() && !folder().exists() {
        fs::create_dir_all(folder()).unwrap();
        for (name, bytes) in &files {
            fs::write(folder().join(name), bytes).unwrap();
        }
    }
    let golden: BTreeMap<String, Vec<u8>> = fs::read_dir(folder())
        .expect("the golden folder; a new one is made with ONLYONCE_WRITE_GOLDEN=1")
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    let same = (0..TRIES).any(|_| write().0 == golden);
    assert!(same, "{:?} are written otherwise than they were", files.keys());
    let disk = SimDisk::holding(Image { files: golden });
    let clock = Arc::new(ManualClock::at(now));
    for (number, record) in (1..).zip(&records) {
        assert_eq!(lookup(&disk, &clock, number), *record, "record {number}");
    }
    assert_eq!(records.iter().filter(|record| record.is_none()).count(), 1, "only the tenth is absent");
}

#[test]
fn segments_without_their_secret_are_refused_and_not_taken_for_empty() {
    let (mut files, _, now) = write();
    files.remove("meta").unwrap();
    let opened = open(&SimDisk::holding(Image { files }), &Arc::new(ManualClock::at(now)), options());
    let error = opened.expect_err("a copy that was not finished was opened");
    assert_eq!(error.kind(), StoreErrorKind::Corrupt, "{error}");
}

#[test]
fn a_folder_of_another_version_is_refused_and_not_taken_for_empty() {
    let (mut files, _, now) = write();
    let segment = files.keys().find(|name| name.ends_with(".segment")).unwrap().clone();
    let bytes = files.remove(&segment).unwrap();
    files.insert(segment.replace("v1-", "v2-"), bytes);
    let opened = open(&SimDisk::holding(Image { files }), &Arc::new(ManualClock::at(now)), options());
    let error = opened.expect_err("a segment that cannot be read was ignored").to_string();
    assert!(error.contains("reading the store's folder"), "{error}");
}
