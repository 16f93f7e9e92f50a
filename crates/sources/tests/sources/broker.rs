//! What the contract's suite cannot ask of a broker whose time is its own: waits, deaths, counts, and bytes as they are.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{Delivery, Extended, Settled, Settlement, Source, Tag};
use onlyonce_sources::dead_letter;

use crate::stage::{Stage, ack, bodies, fetch, fetched, hasty, patient, settle, wait_until};

/// One test for each, on a stage of its own.
#[macro_export]
macro_rules! broker_tests {
    ($stage:expr) => {
        $crate::broker_tests! { $stage;
            a_message_and_its_dead_letter_are_as_published,
            a_retry_does_not_come_too_early,
            a_delivery_in_progress_stays_ours,
            a_fetch_that_is_dropped_loses_nothing,
            what_a_killed_broker_kept_is_delivered_again,
            the_lag_is_what_waits,
        }
    };
    ($stage:expr; $($test:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let stage = $stage;
            $crate::broker::$test(&stage).await;
        }
    )+};
}

pub(crate) async fn a_message_and_its_dead_letter_are_as_published(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    stage.publish(&[("event-id", "e1"), ("colour", "blue")], b"\x00poison\xff").await;
    let held = fetch(&*source, 1).await.remove(0);
    let headers = &held.message.headers;
    assert_eq!(&held.message.body[..], b"\x00poison\xff");
    assert_eq!((headers.text("event-id"), headers.text("colour")), (Some("e1"), Some("blue")));
    assert!(!held.redelivered);
    let reason = "no such\norder".to_owned();
    let kept = settle(&*source, held.tag, Settlement::DeadLetter { reason }).await.expect("kept");
    assert_eq!(kept, Settled::Settled);
    let mut letters = stage.dead_letters().await;
    assert_eq!(letters.len(), 1);
    let (headers, body) = letters.remove(0);
    assert_eq!(body, b"\x00poison\xff");
    let header =
        |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!((header("event-id"), header("colour")), (Some("e1"), Some("blue")));
    assert_eq!(header(dead_letter::REASON), Some("no such order"));
    assert_eq!(header(dead_letter::GROUP), Some("workers"));
    if let Some(position) = &held.message.position {
        assert_eq!(header(dead_letter::POSITION), Some(position.as_str()));
    }
}

pub(crate) async fn a_retry_does_not_come_too_early<S: Stage>(stage: &S) {
    let source = stage.open(patient()).await;
    stage.publish(&[("event-id", "e1"), ("colour", "blue")], b"slow").await;
    let first = fetch(&*source, 1).await.remove(0);
    let (after, asked) = (Duration::from_millis(300), Instant::now());
    let retried = settle(&*source, first.tag, Settlement::Retry { after }).await.expect("settled");
    assert_eq!(retried, Settled::Settled);
    let second = fetch(&*source, 1).await.remove(0);
    assert!(asked.elapsed() >= after, "after {:?}", asked.elapsed());
    assert_eq!(second.message, first.message, "headers, body and position are the same");
    if S::IN_ORDER {
        return;
    }
    let later = Settlement::Retry { after: Duration::from_hours(1) };
    assert_eq!(settle(&*source, second.tag, later).await.expect("settled"), Settled::Settled);
    stage.publish(&[], b"next").await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["next"], "others are not held up");
}

pub(crate) async fn a_delivery_in_progress_stays_ours(stage: &impl Stage) {
    let max = Duration::from_secs(1);
    let source = stage.open(hasty(max)).await;
    assert_eq!(source.unsettled_max(), Some(max));
    let rounds = async {
        // A round in which this machine stalled proves nothing, and is run again.
        for round in 0.. {
            stage.publish(&[], format!("{round}").as_bytes()).await;
            let held = fetch(&*source, 1).await.remove(0);
            if stays_ours(&*source, &held, max).await {
                break;
            }
            let _ = settle(&*source, held.tag, Settlement::Ack).await;
        }
    };
    in_time("a round without a stall", rounds).await;
    assert!(matches!(
        source.extend(&[Tag::new(u64::MAX)]).await.expect("answered")[..],
        [Ok(Extended::Gone)]
    ));
}

/// Extends a delivery for longer than it could stay unsettled otherwise. False: this machine was too slow.
async fn stays_ours(source: &dyn Source, held: &Delivery, max: Duration) -> bool {
    let begun = Instant::now();
    let mut last = begun;
    while begun.elapsed() < max * 2 {
        // tidy: sleep because work in progress is what is tested
        tokio::time::sleep(max / 10).await;
        let extended = source.extend(&[held.tag]).await.expect("answered").remove(0).expect("extended");
        if last.elapsed() > max / 2 {
            return false;
        }
        assert_eq!(extended, Extended::Extended, "extended {:?} after the last time", last.elapsed());
        last = Instant::now();
    }
    let acknowledged = settle(source, held.tag, Settlement::Ack).await.expect("settled");
    if last.elapsed() > max / 2 {
        return false;
    }
    assert_eq!(acknowledged, Settled::Settled);
    true
}

pub(crate) async fn a_fetch_that_is_dropped_loses_nothing(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    for number in 0..50 {
        let publish = async { stage.publish(&[], format!("{number:02}").as_bytes()).await };
        let (_, ()) =
            tokio::join!(tokio::time::timeout(Duration::from_millis(number % 3), source.fetch(1)), publish);
    }
    // What a fetch answered was not looked at above, and is still not settled.
    source.close().await.expect("closed");
    let other = stage.open(patient()).await;
    assert_eq!(bodies(&fetch(&*other, 50).await).len(), 50);
}

pub(crate) async fn what_a_killed_broker_kept_is_delivered_again(stage: &impl Stage) {
    let source = stage.open(hasty(Duration::from_secs(2))).await;
    for body in ["a", "b"] {
        stage.publish(&[("event-id", body)], body.as_bytes()).await;
    }
    let held = fetch(&*source, 2).await;
    // A fetch that waits while the broker dies may fail, and must not hang for ever.
    let (mut found, ()) = tokio::join!(fetched(&*source, 10), stage.restart());
    stage.publish(&[("event-id", "c")], b"c").await;
    let mut seen = HashSet::new();
    let all = async {
        while seen.len() < 3 {
            for delivery in found {
                if let Ok(Settled::Settled) = settle(&*source, delivery.tag, Settlement::Ack).await {
                    seen.insert(delivery.message.body.clone());
                }
            }
            found = if seen.len() < 3 { fetched(&*source, 10).await } else { Vec::new() };
        }
    };
    in_time("everything", all).await;
    for delivery in held {
        let late = settle(&*source, delivery.tag, Settlement::Ack).await;
        assert!(matches!(late, Ok(Settled::Gone)), "{late:?}");
    }
}

pub(crate) async fn the_lag_is_what_waits(stage: &impl Stage) {
    for number in 0..3 {
        stage.publish(&[], format!("{number}").as_bytes()).await;
    }
    let source = stage.open(patient()).await;
    if let Some(lag) = source.lag().await.expect("answered") {
        assert_eq!(lag, 3);
        let held = fetch(&*source, 3).await;
        for delivery in held {
            ack(&*source, delivery.tag).await;
        }
        wait_until("no lag", Some(0), async || source.lag().await.expect("answered")).await;
    }
}
