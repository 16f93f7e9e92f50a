//! Quiet hours, and the pace within them, on a clock moved by hand.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::Timestamp;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::sweeper::Plan;
use onlyonce_core::sweeper::growth::{Bounds, Growth};

use crate::stage::Stage;
use crate::watched::Note;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// 21:50 UTC.
fn evening() -> Timestamp {
    Timestamp::from_millis(((20_000 * 24 + 21) * 60 + 50) * 60_000)
}

fn at_night() -> Plan {
    Plan { quiet: Some("22:00-06:00".parse().unwrap()), every: 10 * SECOND, ..Plan::default() }
}

#[tokio::test]
async fn nothing_is_swept_outside_of_quiet_hours_and_all_of_it_within() {
    let stage = Stage::at(evening());
    stage.records(100, SECOND).await;
    let first = stage.begin(1, at_night(), None).await;
    stage.advance(9 * MINUTE).await;
    assert!(first.is_elected(), "who may sweep later is elected now");
    assert_eq!((stage.left().await, stage.log.count(|note| matches!(note, Note::Swept { .. }))), (100, 0));
    stage.advance(2 * MINUTE).await;
    assert_eq!(stage.left().await, 0, "it is past ten");
    assert_eq!(first.sweeping.now().removed_total, 100);
}

#[tokio::test]
async fn a_store_that_is_nearly_full_is_swept_at_any_hour() {
    let stage = Stage::at(evening());
    stage.records(100, SECOND).await;
    let growth = Arc::new(Growth::new(Bounds { records_max: Some(125), bytes_max: None }));
    let _first = stage.begin(1, at_night(), Some(growth)).await;
    stage.advance(5 * MINUTE).await;
    assert_eq!(stage.left().await, 0);
}

#[tokio::test]
async fn batches_are_bounded_and_paused() {
    let stage = Stage::new();
    stage.records(1000, SECOND).await;
    let batch = SweepBudget::new(50).unwrap();
    let plan = Plan { batch, pause: SECOND, every: SECOND, ..Plan::default() };
    let first = stage.begin(1, plan, None).await;
    stage.advance(12 * SECOND).await;
    let left = stage.left().await;
    assert!((300..1000).contains(&left), "{left}: about one batch of fifty a second");
    stage.advance(30 * SECOND).await;
    assert_eq!(stage.left().await, 0);
    for note in stage.log.notes() {
        if let Note::Swept { touched, budget, .. } = note {
            assert!(touched <= budget && budget <= 50, "{note:?}");
        }
    }
    let state = first.sweeping.now();
    assert_eq!((state.removed_total, state.failures), (1000, 0));
    assert!((20.0..80.0).contains(&state.rows_per_second), "{state:?}");
    assert!(state.last_success.is_some());
}
