//! Processes whose clocks are ten minutes before and after the server's agree: only the server's clock counts.

use std::time::Duration;

use onlyonce_core::Retention;
use onlyonce_testkit::fixture::any_id;
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::peer::{Peer, play, role, time};

const TEST: &str = "skew::clocks_of_processes_make_no_difference";
const SKEW_SECONDS: i64 = 600;
/// Far longer than the clocks differ, so that a lease by another's clock would be over, or last too long.
const LEASE: Duration = Duration::from_mins(30);
/// How long a busy machine may take from one step to the next.
const SLACK: Duration = Duration::from_mins(5);

/// A process whose wall clock is off by so many seconds; its timers run as fast as anyone's.
fn skewed(url: &str, seconds: i64) -> Peer {
    let mut peer = Peer::start(TEST, url, seconds);
    let differs: i64 = peer.ask("time")[0].parse::<i64>().expect("seconds") - time();
    assert!((differs - seconds).abs() < 120, "its clock is off by {differs} s");
    peer
}

fn is_about(millis: &str, wanted: Duration) -> bool {
    let millis = Duration::from_millis(millis.parse().expect("milliseconds"));
    millis <= wanted && millis >= wanted.saturating_sub(SLACK)
}

#[test]
fn clocks_of_processes_make_no_difference() {
    if let Some(url) = role() {
        return run(play(&url));
    }
    let server = RedisServer::start(RedisOptions::default()).expect("a server");
    let mut ahead = skewed(&server.url(), SKEW_SECONDS);
    let mut behind = skewed(&server.url(), -SKEW_SECONDS);
    for (first, second) in [(0, 1), (1, 0)] {
        let peers = [&mut ahead, &mut behind];
        // A lease is as long for the other, and so is what became of it.
        let id = any_id();
        assert_eq!(peers[first].claim(&id, LEASE)[0], "granted");
        let busy = peers[second].claim(&id, LEASE);
        assert!(busy[0] == "busy" && is_about(&busy[1], LEASE), "{busy:?}");
        assert_eq!(peers[first].ask(&format!("complete {id}")), ["Completed"]);
        let replay = peers[second].claim(&id, LEASE);
        let kept = Retention::DEFAULT.get();
        assert!(replay[0] == "replay" && is_about(&replay[2], kept), "{replay:?}");
        assert!(replay[1].parse::<u128>().expect("an age") < SLACK.as_millis(), "{replay:?}");

        // A lease that has passed has passed for both, and fences go on growing.
        let id = any_id();
        let granted = peers[first].claim(&id, Duration::from_millis(200));
        assert_eq!(granted[0], "granted");
        let taken = loop {
            let answer = peers[second].claim(&id, LEASE);
            if answer[0] != "busy" {
                break answer;
            }
        };
        let fence = |answer: &[String]| answer[1].parse::<u64>().expect("a fence");
        assert!(taken[0] == "granted" && fence(&taken) > fence(&granted), "{granted:?} {taken:?}");
        assert_eq!(peers[first].ask(&format!("complete {id}")), ["Fenced"]);
        assert_eq!(peers[second].ask(&format!("complete {id}")), ["Completed"]);
    }
}
