//! The file journal: one key for each operation whatever happens to the process or to the end of the file, and an error
//! for every other damage.
#![expect(clippy::unwrap_used, reason = "a failed check panics")]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use onlyonce_client::{FileJournal, Journal, JournalErrorKind, JournalLimits, MemoryJournal};
use onlyonce_core::Key;
use onlyonce_testkit::{ManualClock, run};

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("calls.journal");
    (folder, path)
}

fn limits(operations_max: usize) -> JournalLimits {
    JournalLimits { operations_max, keep_for: Duration::from_hours(1) }
}

#[test]
fn c1_an_operation_keeps_its_key_until_it_is_forgotten() {
    run(async {
        let (_folder, path) = folder();
        let memory = MemoryJournal::default();
        let file = FileJournal::open(&path).unwrap();
        for journal in [&memory as &dyn Journal, &file] {
            assert_eq!(journal.key("order-7", key("first")).await.unwrap(), key("first"));
            assert_eq!(journal.key("order-7", key("second")).await.unwrap(), key("first"));
            assert_eq!(journal.key("order-8", key("third")).await.unwrap(), key("third"));
            journal.forget("order-7").await.unwrap();
            journal.forget("never begun").await.unwrap();
            assert_eq!(journal.key("order-7", key("fourth")).await.unwrap(), key("fourth"));
        }
        drop(file);
        let file = FileJournal::open(&path).unwrap();
        assert_eq!(file.key("order-7", key("x")).await.unwrap(), key("fourth"));
        assert_eq!(file.key("order-8", key("x")).await.unwrap(), key("third"));
    });
}

#[test]
fn c2_the_torn_end_of_a_write_is_dropped_and_what_was_answered_stays() {
    run(async {
        let (_folder, path) = folder();
        let whole = {
            let journal = FileJournal::open(&path).unwrap();
            journal.key("a", key("1")).await.unwrap();
            fs::read(&path).unwrap()
        };
        let more = {
            let journal = FileJournal::open(&path).unwrap();
            journal.key("b", key("2")).await.unwrap();
            fs::read(&path).unwrap()
        };
        for end in whole.len()..more.len() {
            fs::write(&path, &more[..end]).unwrap();
            let journal = FileJournal::open(&path).unwrap();
            assert_eq!(journal.operations(), 1, "cut off at {end}");
            assert_eq!(journal.key("a", key("x")).await.unwrap(), key("1"));
            assert_eq!(journal.key("b", key("3")).await.unwrap(), key("3"), "it was never answered");
            drop(journal);
            assert_eq!(FileJournal::open(&path).unwrap().operations(), 2);
        }
        // Pages that never reached the disk read as zeroes.
        let mut zeroes = whole.clone();
        zeroes.extend([0; 40]);
        zeroes.push(b'\n');
        fs::write(&path, zeroes).unwrap();
        assert_eq!(FileJournal::open(&path).unwrap().operations(), 1);
        // A journal that was cut off while it began.
        for end in 0..10 {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(FileJournal::open(&path).unwrap().operations(), 0);
        }
    });
}

#[test]
fn c2_a_changed_byte_is_an_error_and_never_a_new_key() {
    run(async {
        let (_folder, path) = folder();
        let journal = FileJournal::open(&path).unwrap();
        for number in 0..3 {
            journal.key(&format!("order-{number}"), key("k")).await.unwrap();
        }
        drop(journal);
        let whole = fs::read(&path).unwrap();
        // The last byte is the end of the last line: without it the line was cut off.
        for at in 0..whole.len() - 1 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            let error = FileJournal::open(&path).unwrap_err();
            assert_eq!(error.kind(), JournalErrorKind::Damaged, "byte {at}");
        }
    });
}

#[test]
fn c3_a_full_journal_refuses_and_what_is_too_old_makes_room() {
    run(async {
        let (_folder, path) = folder();
        let clock = Arc::new(ManualClock::default());
        let memory = MemoryJournal::new(limits(2), clock.clone());
        let file = FileJournal::open_with(&path, limits(2), clock.clone()).unwrap();
        for journal in [&memory as &dyn Journal, &file] {
            journal.key("a", key("1")).await.unwrap();
            journal.key("b", key("2")).await.unwrap();
            let full = journal.key("c", key("3")).await.unwrap_err();
            assert_eq!(full.kind(), JournalErrorKind::Full);
            assert_eq!(journal.key("a", key("x")).await.unwrap(), key("1"), "it goes on with what it has");
        }
        clock.advance(Duration::from_hours(1));
        for journal in [&memory as &dyn Journal, &file] {
            assert_eq!(journal.key("c", key("3")).await.unwrap(), key("3"));
            assert_eq!(journal.key("a", key("4")).await.unwrap(), key("4"), "its time is over");
        }
    });
}

#[test]
fn the_file_does_not_grow_with_operations_that_are_over() {
    run(async {
        let (_folder, path) = folder();
        let journal = FileJournal::open(&path).unwrap();
        journal.key("stays", key("kept")).await.unwrap();
        let mut longest = 0;
        for number in 0..1500 {
            let operation = format!("order-{number}");
            journal.key(&operation, key("k")).await.unwrap();
            journal.forget(&operation).await.unwrap();
            longest = longest.max(fs::metadata(&path).unwrap().len());
        }
        assert!(longest < 100_000, "{longest} bytes");
        drop(journal);
        let journal = FileJournal::open(&path).unwrap();
        assert_eq!(journal.operations(), 1);
        assert_eq!(journal.key("stays", key("x")).await.unwrap(), key("kept"));
    });
}

#[test]
fn a_file_belongs_to_one_journal_at_a_time() {
    let (_folder, path) = folder();
    let journal = FileJournal::open(&path).unwrap();
    assert_eq!(FileJournal::open(&path).unwrap_err().kind(), JournalErrorKind::InUse);
    drop(journal);
    FileJournal::open(&path).unwrap();
    assert_eq!(FileJournal::open("no/such/folder/j").unwrap_err().kind(), JournalErrorKind::Failed);
}

/// The process that the next test kills: it writes down keys and says so. Does nothing unless it is asked to.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(path) = std::env::var_os("ONLYONCE_TEST_JOURNAL") else { return };
    run(async {
        let journal = FileJournal::open(Path::new(&path)).unwrap();
        for number in 0.. {
            journal.key(&format!("order-{number}"), key(&format!("key-{number}"))).await.unwrap();
            let mut stdout = std::io::stdout();
            writeln!(stdout, "\nwritten {number}").unwrap();
            stdout.flush().unwrap();
        }
    });
}

#[test]
fn c2_what_was_answered_survives_a_kill() {
    let (_folder, path) = folder();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
        .env("ONLYONCE_TEST_JOURNAL", &path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut last = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        if let Some(number) = line.strip_prefix("written ") {
            last = Some(number.parse::<usize>().unwrap());
            if last >= Some(200) {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    let last = last.unwrap_or_else(|| panic!("the child wrote nothing"));
    run(async {
        let journal = FileJournal::open(&path).unwrap();
        for number in 0..=last {
            let kept = journal.key(&format!("order-{number}"), key("lost")).await.unwrap();
            assert_eq!(kept, key(&format!("key-{number}")));
        }
    });
}
