//! The playbook of `docs/operating.md`, run: each of its commands against real processes and stores that are broken as its
//! page says, and mended again. A command whose output is not what the page says fails.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

#[path = "../proxy/binary.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod binary;
#[path = "../proxy/upstream.rs"]
#[allow(dead_code, reason = "the proxy's own tests use the rest")]
mod upstream;

mod page;
mod stage;

use std::collections::BTreeSet;

use onlyonce_testkit::servers::redis::set_ahead;
use onlyonce_testkit::servers::{PostgresEnd, PostgresServer, RedisSentinel};

use page::{Block, Page};
use stage::{FullDisk, Stage};

#[test]
fn every_block_belongs_to_a_scenario_that_is_played() {
    let page = Page::read();
    let scenarios: BTreeSet<_> = page.blocks.iter().map(|block| block.scenario.as_str()).collect();
    let played = ["clock-jump", "disk-full", "first", "many-unknowns", "redis-fail-over", "store-down"];
    assert!(scenarios.iter().copied().eq(played), "{scenarios:?}");
    for Block { scenario, phase, expected, .. } in &page.blocks {
        assert!(["see", "do", "after"].contains(&phase.as_str()), "{scenario} {phase}");
        assert!(!expected.is_empty(), "{scenario} {phase} expects nothing");
    }
}

#[test]
fn what_the_page_asks_first() {
    let stage = Stage::start("memory:", &[]);
    stage.play("first", "see");
}

#[test]
fn store_down() {
    let server = PostgresServer::start(&[]).unwrap();
    let migrated = binary::onlyonce(&["store", "migrate", "--store", &server.url()]).output().unwrap();
    assert!(migrated.status.success(), "{migrated:?}");
    let stage = Stage::start(&server.url(), &[]);
    server.end(PostgresEnd::Immediate).unwrap();
    stage.play("store-down", "see");
    stage.play("store-down", "do");
    assert_eq!(stage.upstream.effects(), 0, "nothing ran while the store was away");
    server.restart().unwrap();
    stage.play("store-down", "after");
    assert_eq!(stage.upstream.effects(), 1);
}

#[test]
fn disk_full() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::start(&format!("file:{}", folder.path().join("records").display()), &[]);
    assert_eq!(stage.post("/probe", "old-1").0, 200);
    let full = FullDisk::of(stage.process());
    stage.play("disk-full", "see");
    stage.play("disk-full", "do");
    assert_eq!(stage.upstream.effects(), 1, "nothing new ran on a full disk");
    drop(full);
    stage.play("disk-full", "after");
    assert_eq!(stage.upstream.effects(), 2);
}

#[test]
fn many_unknowns() {
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::start(&format!("file:{}", folder.path().join("records").display()), &[]);
    for number in 1..=3 {
        let (status, told) = stage.post(&format!("/drop/{number}"), &format!("lost-{number}"));
        assert_eq!(status, 502, "{told}");
    }
    stage.play("many-unknowns", "see");
    stage.play("many-unknowns", "do");
    stage.play("many-unknowns", "after");
    assert_eq!(stage.upstream.effects(), 3, "nothing was run again");
    // The one that was freed runs.
    assert_eq!(stage.post("/drop/2", "lost-2").0, 502);
    assert_eq!(stage.upstream.effects(), 4);
}

#[test]
fn clock_jump() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("file:{}", folder.path().join("records").display());
    let stage = Stage::start(&store, &[]);
    assert_eq!(stage.post("/probe", "yesterday").0, 200);
    let stage = stage.again(&store, |command| set_ahead(command, 30 * 3600 - 60));
    stage.play("clock-jump", "see");
    // What the page warns of.
    assert_eq!(stage.post("/probe", "yesterday").0, 200);
    assert_eq!(stage.upstream.effects(), 2, "a day is over on that clock: the key is new again");
    let stage = stage.again(&store, |_| {});
    stage.play("clock-jump", "after");
}

#[test]
fn redis_fail_over() {
    let servers = RedisSentinel::start().unwrap();
    let master = servers.nodes()[1].port().to_string();
    let mut stage = Stage::start(&servers.url(), &["--lease", "5s"]);
    stage.set("MASTER", &master);
    assert_eq!(stage.post("/probe", "before-1").0, 200);
    servers.fail_over();
    stage.play("redis-fail-over", "see");
    stage.play("redis-fail-over", "do");
    stage.play("redis-fail-over", "after");
}
