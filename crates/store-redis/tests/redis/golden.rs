//! The bytes of records as they are in Redis: golden files of every version, written once and read for ever.
//!
//! `ONLYONCE_WRITE_GOLDEN=1` creates the golden files that are missing. No run ever changes one that is there.

#[path = "../../../core/tests/golden/records.rs"]
#[expect(dead_code, reason = "the core's own tests use the rest")]
mod records;

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;

use onlyonce_core::Timestamp;
use onlyonce_core::record::Record;
use onlyonce_core::store::Imported;
use onlyonce_testkit::{Fixture as _, ManualClock, run};
use redis::Commands as _;

use crate::stage::{Alone, Damage, key_of, raw};

/// Before any of the golden records expires.
const NOW: Timestamp = Timestamp::from_millis(1_780_000_000_000);
/// Their times are past what Redis keeps, or they have expired, or their fences are too high to be taken in.
const NOT_KEPT: [&str; 3] = ["smallest_numbers", "largest_numbers", "largest_distances"];

fn records() -> impl Iterator<Item = (&'static str, Record)> {
    records::all().into_iter().filter(|(name, _)| !NOT_KEPT.contains(name))
}

/// Reads the golden file `name`. Creates it with `bytes`, if there are any, when it is missing and that was asked for.
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1", &format!("{name}.bin")].iter().collect();
    if !bytes.is_empty() && std::env::var_os("ONLYONCE_WRITE_GOLDEN").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().expect("a folder")).expect("creating a folder");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => file.write_all(bytes).expect("writing a golden file"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "creating {}", path.display()),
        }
    }
    fs::read(&path)
        .unwrap_or_else(|_| panic!("{} is missing: ONLYONCE_WRITE_GOLDEN=1 makes it", path.display()))
}

#[test]
fn records_are_written_as_they_always_were() {
    run(async {
        let alone = Alone::at(ManualClock::at(NOW), Damage::Head).await;
        let (id, mut connection) = (records::id(), raw(&alone.server.url()));
        for (name, record) in records() {
            let imported = alone.store().import(&[(id, record.clone())]).await.expect("an import");
            assert_eq!(imported, Imported { taken: 1, left: 0 }, "{name}");
            let bytes: Vec<u8> = connection.get(key_of(&id)).expect("a record");
            assert_eq!(bytes, golden(name, &bytes), "{name} is written otherwise");
            assert_eq!(alone.store().lookup(&id).await.expect("a lookup"), Some(record), "{name}");
            connection.del::<_, ()>(key_of(&id)).expect("DEL");
        }
    });
}

#[test]
fn records_that_were_written_once_are_read_for_ever() {
    run(async {
        let alone = Alone::at(ManualClock::at(NOW), Damage::Head).await;
        let (id, mut connection) = (records::id(), raw(&alone.server.url()));
        for (name, record) in records() {
            connection.set::<_, _, ()>(key_of(&id), golden(name, &[])).expect("SET");
            assert_eq!(alone.store().lookup(&id).await.expect("a lookup"), Some(record), "{name}");
            connection.set::<_, _, ()>(key_of(&records::other_id()), golden(name, &[])).expect("SET");
            let error = alone.store().lookup(&records::other_id()).await.expect_err("another's record");
            assert!(!error.is_retryable(), "{name}: {error:?}");
        }
    });
}

#[test]
fn every_flipped_bit_is_an_error() {
    run(async {
        let alone = Alone::at(ManualClock::at(NOW), Damage::Head).await;
        let (id, mut connection) = (records::id(), raw(&alone.server.url()));
        let mut flipped = 0;
        for (name, _) in
            records().filter(|(name, _)| ["sealed_late", "steps", "unknown_recovery"].contains(name))
        {
            let bytes = golden(name, &[]);
            for at in 0..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[at / 8] ^= 1 << (at % 8);
                connection.set::<_, _, ()>(key_of(&id), damaged).expect("SET");
                let answer = alone.store().lookup(&id).await;
                assert!(answer.is_err(), "{name}, bit {at}: {answer:?}");
                flipped += 1;
            }
        }
        println!("{flipped} flipped bits, each an error");
    });
}
