//! Hosts whose clocks are wrong by ten minutes, in either direction: nothing depends on them.
//!
//! The test runs itself again as two processes, one whose clock is ahead and one whose clock is behind.

use std::time::{Duration, SystemTime};

use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer, Token};
use onlyonce_core::{Lease, Store as _, Terms, UnknownPolicy};

use crate::process::{Process, say};
use crate::stage::{block_on, claim_under, client, complete_of, open, outcome_of, server};

const SKEWED: &str = "ONLYONCE_TEST_SKEWED";
/// Where Debian keeps the library that shows a process another time, below the folder of the architecture.
const LIBRARIES: &str = "/usr/lib";
/// How wrong each clock is, in milliseconds.
const SKEW: i64 = 600_000;
/// More than any step of the test takes, and far less than the clocks differ.
const SLACK: i64 = 240_000;

fn terms(lease: Duration) -> Terms {
    let lease = Lease::new(lease).expect("a lease");
    Terms {
        lease,
        run_max: Duration::from_hours(1),
        unknown: UnknownPolicy::Rerun,
        attempts_max: 100,
        ..Terms::default()
    }
}

/// What time it is for this process, in milliseconds.
fn wall_clock() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a date");
    i64::try_from(since.as_millis()).expect("a date")
}

/// Does what it is told. Not a test of its own: does nothing unless it was started as a process with another clock.
#[test]
fn skewed() {
    let Ok(url) = std::env::var(SKEWED) else { return };
    block_on(async {
        let store = open(&url).await;
        let mut granted = std::collections::HashMap::new();
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let mut words = line.split(' ').map(str::parse::<u64>);
            let [Some(Ok(what)), Some(Ok(key)), Some(Ok(lease_ms))] =
                [words.next(), words.next(), words.next()]
            else {
                panic!("{line}");
            };
            let said = match what {
                0 => format!("clock {}", wall_clock()),
                1 => {
                    let claim = claim_under(key, terms(Duration::from_millis(lease_ms)));
                    match store.claim(&claim).await.expect("an answer") {
                        ClaimAnswer::Granted(grant) => {
                            let token = Token { id: claim.id, owner: claim.owner, fence: grant.fence };
                            granted.insert(key, token);
                            "granted".to_owned()
                        }
                        ClaimAnswer::Busy(busy) => format!("busy {}", busy.left.as_millis()),
                        ClaimAnswer::Replay(replay) => {
                            assert_eq!(replay.outcome, outcome_of(key));
                            format!("replay {} {}", replay.age.as_millis(), replay.left.as_millis())
                        }
                        other => format!("{other:?}"),
                    }
                }
                _ => {
                    let completed = store.complete(&complete_of(key, granted[&key])).await;
                    assert_eq!(completed.expect("an answer"), CompleteAnswer::Completed);
                    "completed".to_owned()
                }
            };
            say(&said);
        }
    });
}

/// The library.
fn faketime() -> String {
    let folders = std::fs::read_dir(LIBRARIES).expect("folders").filter_map(|entry| Some(entry.ok()?.path()));
    let found = folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|path| path.exists());
    found.expect("libfaketime (Debian: faketime)").display().to_string()
}

struct Host(Process);

impl Host {
    fn start(url: &str, library: &str, skew: &str) -> Self {
        Self(Process::start(
            "clocks::skewed",
            // Only what time it is is wrong: it passes as fast as everywhere.
            &[
                (SKEWED, url),
                ("LD_PRELOAD", library),
                ("FAKETIME", skew),
                ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
                ("DONT_FAKE_MONOTONIC", "1"),
            ],
        ))
    }

    /// How far its clock is from ours, in milliseconds.
    fn skew(&mut self) -> i64 {
        let [at] = self.numbers("0 0 0", "clock");
        at - wall_clock()
    }

    fn does(&mut self, what: &str, said: &str) {
        self.0.tell(what);
        self.0.hear(said);
    }

    fn numbers<const N: usize>(&mut self, what: &str, said: &str) -> [i64; N] {
        self.0.tell(what);
        let line = self.0.hear(said);
        let numbers: Vec<i64> = line.split(' ').skip(1).map(|word| word.parse().expect("a number")).collect();
        numbers.try_into().expect("so many numbers")
    }
}

#[test]
fn clocks_that_are_wrong_by_ten_minutes_make_no_difference() {
    let (server, library) = (server(&[]), faketime());
    let (mut ahead, mut behind) =
        (Host::start(&server.url(), &library, "+10m"), Host::start(&server.url(), &library, "-10m"));
    assert!((ahead.skew() - SKEW).abs() < SLACK && (behind.skew() + SKEW).abs() < SLACK, "no clock is wrong");

    let lease = SLACK;
    let (mut first, mut second) = (&mut ahead, &mut behind);
    for key in [1, 2] {
        // A lease of four minutes is not over for whoever's clock is twenty minutes on, and not longer for the other.
        first.does(&format!("1 {key} {lease}"), "granted");
        let [left] = second.numbers(&format!("1 {key} {lease}"), "busy");
        assert!(left > 0 && left <= lease, "{left} ms are left of a lease of {lease} ms");
        // What is completed was completed just now, and is kept for a day, for both.
        first.does(&format!("2 {key} 0"), "completed");
        for host in [&mut *first, &mut *second] {
            let [age, left] = host.numbers(&format!("1 {key} {lease}"), "replay");
            let day = 24 * 60 * 60 * 1000;
            assert!(age < lease && left <= day && left > day - lease, "{age} ms old, kept for {left} ms");
        }
        // A lease that is over by the server's clock is over, however early or late it is elsewhere.
        let lapsed = key + 10;
        first.does(&format!("1 {lapsed} 1"), "granted");
        loop {
            second.0.tell(&format!("1 {lapsed} {lease}"));
            if second.0.hear("").starts_with("granted") {
                break;
            }
        }
        std::mem::swap(&mut first, &mut second);
    }
    // What is stored is in the server's time.
    block_on(async {
        let apart = "SELECT max(abs(created_at - extract(epoch FROM clock_timestamp()) * 1000))::bigint, count(*) \
            FROM onlyonce.records";
        let row = client(&server).await.query_one(apart, &[]).await.expect("an answer");
        assert!(row.get::<_, i64>(0) < SLACK, "{} ms from the server's clock", row.get::<_, i64>(0));
        assert_eq!(row.get::<_, i64>(1), 4);
    });
}
