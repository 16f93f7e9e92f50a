//! Who sweeps among processes: one of them, another when it is killed, and `onlyonce sweep` when none does.

use std::net::SocketAddr;
use std::process::Output;
use std::thread;
use std::time::Duration;

use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::admin::{figure, get, start_with};
use crate::binary::{Proxy, onlyonce};
use crate::shared::migrate;
use crate::upstream::Upstream;

const LOOK_EVERY: Duration = Duration::from_millis(50);

type Started = (Proxy, SocketAddr);

fn start(upstream: &Upstream, store: &str, lease: &str) -> Started {
    let environment = [("ONLYONCE_SWEEP_LEASE", lease), ("ONLYONCE_SWEEP_EVERY", "100ms")];
    start_with(upstream, &["--store", store], &environment)
}

/// The one among `started` that says it sweeps, and under which fence.
fn elected(started: &[Started]) -> (usize, f64) {
    loop {
        for (at, (_, admin)) in started.iter().enumerate() {
            let (_, text) = get(*admin, "/metrics");
            if figure(&text, "onlyonce_sweep_elected") == Some(1.0) {
                return (at, figure(&text, "onlyonce_sweep_fence").unwrap());
            }
        }
        // tidy: sleep because a sweeper is elected by time alone
        thread::sleep(LOOK_EVERY);
    }
}

/// Each that sweeps is killed; the last one is left.
fn the_next_takes_over(store: &str) {
    let upstream = Upstream::start();
    let mut started: Vec<_> = (0..3).map(|_| start(&upstream, store, "2s")).collect();
    let mut fences = Vec::new();
    while !started.is_empty() {
        let (at, fence) = elected(&started);
        fences.push(fence);
        let (proxy, _) = started.swap_remove(at);
        proxy.signal("-KILL");
        drop(proxy);
    }
    assert!(fences.is_sorted_by(|before, after| before < after), "{fences:?}");
}

#[test]
fn a_killed_sweeper_is_replaced_on_redis() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    the_next_takes_over(&server.url());
}

#[test]
fn a_killed_sweeper_is_replaced_on_postgres() {
    let server = PostgresServer::start(&[]).unwrap();
    assert!(migrate(&server.url()).status.success());
    the_next_takes_over(&server.url());
}

fn sweep(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = onlyonce(&[&["sweep"], args].concat()).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_sweep_from_cron_leaves_the_store_to_the_process_that_sweeps_it() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let url = server.url();
    let upstream = Upstream::start();
    // A lease that no stall of this machine outlasts.
    let started = [start(&upstream, &url, "10m")];
    let (_, fence) = elected(&started);
    let (code, stdout, stderr) = sweep(&["--store", &url]);
    assert_eq!((code, stdout.as_str()), (Some(75), ""), "{stderr}");
    assert!(stderr.contains(&format!("under fence {fence} since 20")), "{stderr}");
    let (code, stdout, _) = sweep(&["--store", &url, "--json", "--wait", "100ms"]);
    assert_eq!(code, Some(75), "{stdout}");
    assert!(stdout.contains("\"swept\":false") && stdout.contains(&format!("\"fence\":{fence}")), "{stdout}");

    let [(proxy, _)] = started;
    proxy.signal("-TERM");
    let (status, _, stderr) = proxy.ended();
    assert!(status.success() && stderr.contains("this process sweeps the store"), "{stderr}");
    let (code, stdout, stderr) = sweep(&["--store", &url, "--json"]);
    assert_eq!(code, Some(0), "given up at the end, and free: {stderr}");
    assert!(stdout.contains("\"swept\":true") && stdout.contains("\"more\":false"), "{stdout}");
    let (code, stdout, _) = sweep(&["--store", &url, "--once"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "0 removed, 0 made unknown; nothing is left\n"));
}

#[test]
fn a_sweep_of_what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = format!("file:{}/nothing", folder.path().display());
    for (args, code, reason) in [
        (&["--store", "memory:"][..], 2, "memory: is inside a process"),
        (&["--store", nothing.as_str()], 66, "there is no store in it"),
        (&["--store", "mysql://h"], 65, "names no store"),
        (&["--store", "redis://127.0.0.1:1"], 69, ""),
        (&["--store", nothing.as_str(), "--batch", "many"], 2, "invalid value"),
    ] {
        let (ended, _, stderr) = sweep(args);
        assert_eq!(ended, Some(code), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
    }
    assert!(!folder.path().join("nothing").exists());
}
