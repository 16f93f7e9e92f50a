//! Stores that are damaged, that hang or that cannot be counted: sweeping goes on, ends, and refuses nobody for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onlyonce_core::sweeper::growth::{Bounds, Growth};
use onlyonce_core::sweeper::{Ended, Plan, Sweeper};
use onlyonce_core::{Engine, RecordId, house};

use crate::stage::{Begun, Stage};
use crate::watched::Watched;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

fn damage(stage: &Stage, ids: &[RecordId]) {
    stage.log.trouble.unreadable.lock().unwrap().extend(ids);
}

fn mend(stage: &Stage) {
    stage.log.trouble.unreadable.lock().unwrap().clear();
}

async fn two(stage: &Stage) -> [Begun; 2] {
    [stage.begin(1, Plan::default(), None).await, stage.begin(2, Plan::default(), None).await]
}

fn elected(sweepers: &[Begun]) -> Vec<usize> {
    (0..sweepers.len()).filter(|at| sweepers[*at].is_elected()).collect()
}

#[tokio::test]
async fn one_sweeps_where_the_record_of_who_does_is_damaged_and_one_when_it_is_mended() {
    let stage = Stage::new();
    let sweepers = two(&stage).await;
    stage.advance(5 * SECOND).await;
    assert_eq!(elected(&sweepers).len(), 1);
    damage(&stage, &[house::SWEEP]);
    stage.records(100, SECOND).await;
    stage.advance(2 * MINUTE).await;
    let holder = elected(&sweepers);
    assert_eq!((holder.len(), stage.left().await), (1, 0), "somebody sweeps");
    let warnings = sweepers[holder[0]].sweeping.now().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("onlyonce/sweep"), "{warnings:?}");

    mend(&stage);
    stage.advance(5 * MINUTE).await;
    assert_eq!(elected(&sweepers), holder, "whoever sweeps goes on, and nobody beside it");
    let [first, second] = sweepers;
    let (gone, other) = if holder == [0] { (first, second) } else { (second, first) };
    gone.stop.cancel();
    gone.task.await.unwrap();
    stage.advance(MINUTE).await;
    assert!(other.is_elected() && other.sweeping.now().warnings.is_empty(), "{:?}", other.sweeping.now());
    assert_eq!(stage.log.most_at_once(), 1);
}

#[tokio::test]
async fn a_store_without_a_readable_office_is_swept_all_the_same_and_it_is_told() {
    let stage = Stage::new();
    damage(&stage, &[house::SWEEP, house::SWEEP_SPARE]);
    stage.records(1000, SECOND).await;
    let first = stage.begin(1, Plan::default(), None).await;
    stage.advance(MINUTE).await;
    mend(&stage);
    assert_eq!(stage.left().await, 0);
    assert!(!first.is_elected() && first.sweeping.now().failures > 0, "{:?}", first.sweeping.now());
}

#[tokio::test]
async fn a_single_sweep_needs_no_readable_office() {
    let stage = Stage::new();
    stage.records(50, SECOND).await;
    stage.advance(2 * SECOND).await;
    damage(&stage, &[house::SWEEP, house::SWEEP_SPARE]);
    let watched = Arc::new(Watched::new(Arc::clone(&stage.store), 1, &stage.log));
    let engine = Engine::builder(watched).clock(stage.clock.clone()).build().await.unwrap();
    let sweeper = Sweeper::new(&engine, Plan::default());
    let ended = sweeper.sweep_once(None, |_| std::ops::ControlFlow::Continue(())).await.unwrap();
    assert!(matches!(ended, Ended::Swept(swept) if swept.removed == 50), "{ended:?}");
}

#[tokio::test]
async fn a_damaged_office_does_not_stop_the_count() {
    let stage = Stage::new();
    damage(&stage, &[house::SWEEP]);
    stage.records(90, 3600 * SECOND).await;
    let growth = Arc::new(Growth::new(Bounds { records_max: Some(100), bytes_max: None }));
    let _first = stage.begin(1, Plan::default(), Some(growth.clone())).await;
    stage.advance(MINUTE).await;
    assert!(growth.warnings()[0].contains(" of 100 records"), "{growth:?}");
}

#[tokio::test]
async fn a_count_that_cannot_be_had_refuses_nobody_for_ever() {
    let stage = Stage::new();
    stage.records(90, 3600 * SECOND).await;
    let growth = Arc::new(Growth::new(Bounds { records_max: Some(100), bytes_max: None }));
    let first = stage.begin(1, Plan::default(), Some(growth.clone())).await;
    stage.advance(SECOND).await;
    stage.log.trouble.counts_nothing.store(true, Ordering::SeqCst);
    (0..10).for_each(|_| growth.granted());
    stage.advance(3 * MINUTE).await;
    assert!(growth.is_full(), "the last count is still believed");
    stage.advance(3 * MINUTE).await;
    assert!(!growth.is_full());
    let warnings = first.sweeping.now().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("not been counted"), "{warnings:?}");
    stage.log.trouble.counts_nothing.store(false, Ordering::SeqCst);
    stage.advance(MINUTE).await;
    let warnings = first.sweeping.now().warnings;
    assert!(warnings[0].contains("90 of 100 records"), "{warnings:?}");
}

#[tokio::test]
async fn a_sweeper_whose_store_hangs_ends_within_seconds() {
    let stage = Stage::new();
    let first = stage.begin(1, Plan::default(), None).await;
    stage.advance(5 * SECOND).await;
    assert!(first.is_elected());
    stage.log.trouble.hangs.store(true, Ordering::SeqCst);
    stage.advance(5 * SECOND).await;
    first.stop.cancel();
    stage.advance(4 * SECOND).await;
    assert!(!first.task.is_finished(), "the batch under way may end");
    stage.advance(2 * SECOND).await;
    assert!(first.task.is_finished());
    assert!(stage.store.lookup(&house::SWEEP).await.unwrap().is_some(), "its grant is left to its lease");
}
