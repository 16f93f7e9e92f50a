//! The source contract, clause by clause. Nothing here knows which broker it runs on.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use onlyonce_inbox::{Delivery, Extended, Settled, Settlement, Source, Tag};
use onlyonce_sources::dead_letter;

use crate::stage::{Stage, ack, bodies, fetch, fetched, hasty, patient, settle, wait_for_outstanding};

/// One test for each clause, each on a stage of its own.
#[macro_export]
macro_rules! clauses {
    ($stage:expr) => {
        $crate::clauses! { $stage;
            s1_what_is_published_is_delivered_as_it_is,
            s3_what_a_dead_consumer_held_is_delivered_to_another,
            s4_what_is_acknowledged_is_not_delivered_again,
            s5_a_retry_comes_again_as_it_was_and_not_too_early,
            s6_a_dead_letter_is_kept_with_its_reason,
            s7_a_batch_is_answered_item_by_item,
            s8_a_delivery_that_was_taken_over_is_gone,
            s9_a_delivery_in_progress_stays_ours,
            s12_closing_gives_back_what_is_not_settled,
            a_fetch_that_is_dropped_loses_nothing,
            what_a_killed_broker_kept_is_delivered_again,
            the_lag_is_what_waits,
        }
    };
    ($stage:expr; $($clause:ident),+ $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $clause() {
            let stage = $stage;
            $crate::clauses::$clause(&stage).await;
        }
    )+};
}

pub(crate) async fn s1_what_is_published_is_delivered_as_it_is(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    let (waiting, ()) = tokio::join!(fetch(&*source, 1), async {
        stage.publish(&[("event-id", "e1"), ("colour", "blue")], b"\x00\xff{}").await;
    });
    let message = &waiting[0].message;
    assert_eq!(&message.body[..], b"\x00\xff{}");
    assert_eq!(
        (message.headers.text("event-id"), message.headers.text("colour")),
        (Some("e1"), Some("blue"))
    );
    assert!(!waiting[0].redelivered);
    for number in 0..5 {
        stage.publish(&[], format!("m{number}").as_bytes()).await;
    }
    let mut found = Vec::new();
    while found.len() < 5 {
        found.extend(fetched(&*source, 2).await);
    }
    assert_eq!(bodies(&found), ["m0", "m1", "m2", "m3", "m4"]);
    let tags: HashSet<Tag> = found.iter().chain(&waiting).map(|delivery| delivery.tag).collect();
    assert_eq!(tags.len(), 6, "every delivery has a tag of its own");
    let positions: HashSet<_> =
        found.iter().filter_map(|delivery| delivery.message.position.clone()).collect();
    assert!(positions.is_empty() || positions.len() == 5, "every message has a position of its own");
}

pub(crate) async fn s3_what_a_dead_consumer_held_is_delivered_to_another(stage: &impl Stage) {
    for body in ["a", "b", "c"] {
        stage.publish(&[("event-id", body)], body.as_bytes()).await;
    }
    let dead = stage.open(hasty(Duration::from_millis(300))).await;
    let held = fetch(&*dead, 3).await;
    // Acknowledged out of order: the others must not go with it.
    let middle = held.iter().find(|delivery| &delivery.message.body[..] == b"b").expect("b");
    ack(&*dead, middle.tag).await;
    drop(dead);
    let heir = stage.open(hasty(Duration::from_millis(300))).await;
    // Slow as this machine may be, what is not settled in time comes again: nothing else may.
    let mut seen = HashSet::new();
    while seen.len() < 2 {
        for delivery in fetched(&*heir, 10).await {
            assert_ne!(&delivery.message.body[..], b"b", "acknowledged is acknowledged");
            assert!(delivery.redelivered);
            if settle(&*heir, delivery.tag, Settlement::Ack).await.expect("settled") == Settled::Settled {
                seen.insert(delivery.message.body.clone());
            }
        }
    }
    heir.close().await.expect("closed");
    wait_for_outstanding(stage, 0).await;
}

pub(crate) async fn s4_what_is_acknowledged_is_not_delivered_again(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    for number in 0..20 {
        stage.publish(&[], format!("{number}").as_bytes()).await;
    }
    let held = fetch(&*source, 20).await;
    let all: Vec<_> = held.iter().map(|delivery| (delivery.tag, Settlement::Ack)).collect();
    let results = source.settle(all.clone()).await.expect("settled");
    assert!(results.iter().all(|result| matches!(result, Ok(Settled::Settled))), "{results:?}");
    let again = source.settle(all).await.expect("settled");
    assert!(again.iter().all(|result| matches!(result, Ok(Settled::Gone))), "{again:?}");
    source.close().await.expect("closed");
    wait_for_outstanding(stage, 0).await;
    stage.publish(&[], b"last").await;
    let other = stage.open(hasty(Duration::from_millis(200))).await;
    assert_eq!(bodies(&fetch(&*other, 1).await), ["last"]);
}

pub(crate) async fn s5_a_retry_comes_again_as_it_was_and_not_too_early<S: Stage>(stage: &S) {
    let source = stage.open(patient()).await;
    stage.publish(&[("event-id", "e1"), ("colour", "blue")], b"slow").await;
    let first = fetch(&*source, 1).await.remove(0);
    let (after, asked) = (Duration::from_millis(300), Instant::now());
    let retried = settle(&*source, first.tag, Settlement::Retry { after }).await.expect("settled");
    assert_eq!(retried, Settled::Settled);
    assert_eq!(settle(&*source, first.tag, Settlement::Ack).await.expect("settled"), Settled::Gone);
    let second = fetch(&*source, 1).await.remove(0);
    assert!(asked.elapsed() >= after, "after {:?}", asked.elapsed());
    assert_eq!(second.message, first.message, "headers, body and position are the same");
    assert_ne!(second.tag, first.tag);
    // At once, and then far in the future: others are not held up.
    let now = Settlement::Retry { after: Duration::ZERO };
    assert_eq!(settle(&*source, second.tag, now).await.expect("settled"), Settled::Settled);
    let third = fetch(&*source, 1).await.remove(0);
    assert_eq!(third.message.body, first.message.body);
    if S::IN_ORDER {
        return;
    }
    let later = Settlement::Retry { after: Duration::from_hours(1) };
    assert_eq!(settle(&*source, third.tag, later).await.expect("settled"), Settled::Settled);
    stage.publish(&[], b"next").await;
    assert_eq!(bodies(&fetch(&*source, 1).await), ["next"]);
}

pub(crate) async fn s6_a_dead_letter_is_kept_with_its_reason(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    stage.publish(&[("event-id", "e1"), ("colour", "blue")], b"\x00poison\xff").await;
    let held = fetch(&*source, 1).await.remove(0);
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
    source.close().await.expect("closed");
    wait_for_outstanding(stage, 0).await;
}

pub(crate) async fn s7_a_batch_is_answered_item_by_item(stage: &impl Stage) {
    let source = stage.open(patient()).await;
    for body in ["a", "b", "c"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let held = fetch(&*source, 3).await;
    let at = |body: &[u8]| held.iter().find(|delivery| &delivery.message.body[..] == body).expect("held").tag;
    let (a, b, c) = (at(b"a"), at(b"b"), at(b"c"));
    let results = source
        .settle(vec![
            (a, Settlement::Ack),
            (Tag::new(u64::MAX), Settlement::Ack),
            (b, Settlement::Retry { after: Duration::ZERO }),
            (a, Settlement::Ack),
            (c, Settlement::DeadLetter { reason: "c".into() }),
        ])
        .await
        .expect("settled");
    let results: Vec<_> = results.into_iter().map(|result| result.expect("settled")).collect();
    let (done, gone) = (Settled::Settled, Settled::Gone);
    assert_eq!(results, [done, gone, done, gone, done]);
    assert!(source.settle(Vec::new()).await.expect("nothing is something").is_empty());
    let again = fetch(&*source, 1).await.remove(0);
    assert_eq!(&again.message.body[..], b"b");
    ack(&*source, again.tag).await;
    source.close().await.expect("closed");
    wait_for_outstanding(stage, 0).await;
}

pub(crate) async fn s8_a_delivery_that_was_taken_over_is_gone(stage: &impl Stage) {
    stage.publish(&[], b"a").await;
    let slow = stage.open(hasty(Duration::from_millis(300))).await;
    let first = fetch(&*slow, 1).await.remove(0);
    let quick = stage.open(hasty(Duration::from_millis(300))).await;
    // Whoever gets it now: it is another delivery.
    let second = tokio::select! {
        found = fetch(&*slow, 1) => found,
        found = fetch(&*quick, 1) => found,
    };
    assert_eq!(bodies(&second), ["a"]);
    assert!(second[0].redelivered);
    // tidy: sleep because a consumer that comes too late is what is tested
    tokio::time::sleep(Duration::from_millis(300)).await;
    for how in [
        Settlement::Ack,
        Settlement::Retry { after: Duration::ZERO },
        Settlement::DeadLetter { reason: "late".into() },
    ] {
        assert_eq!(settle(&*slow, first.tag, how).await.expect("answered"), Settled::Gone);
    }
    assert!(stage.dead_letters().await.is_empty());
    slow.close().await.expect("closed");
    quick.close().await.expect("closed");
    wait_for_outstanding(stage, 1).await;
}

pub(crate) async fn s9_a_delivery_in_progress_stays_ours(stage: &impl Stage) {
    let max = Duration::from_secs(1);
    let source = stage.open(hasty(max)).await;
    assert_eq!(source.unsettled_max(), Some(max));
    // A round in which this machine stalled proves nothing, and is run again.
    for round in 0.. {
        stage.publish(&[], format!("{round}").as_bytes()).await;
        let held = fetch(&*source, 1).await.remove(0);
        if stays_ours(&*source, &held, max).await {
            ack(&*source, held.tag).await;
            break;
        }
        let _ = settle(&*source, held.tag, Settlement::Ack).await;
    }
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
    true
}

pub(crate) async fn s12_closing_gives_back_what_is_not_settled(stage: &impl Stage) {
    for body in ["a", "b", "c"] {
        stage.publish(&[], body.as_bytes()).await;
    }
    let source = stage.open(patient()).await;
    let held = fetch(&*source, 2).await;
    ack(&*source, held[0].tag).await;
    let (waiting, closed) = tokio::join!(
        async {
            loop {
                let more = source.fetch(5).await.expect("a fetch that waits is answered");
                if more.is_empty() {
                    break;
                }
            }
        },
        source.close(),
    );
    let () = waiting;
    closed.expect("closed");
    source.close().await.expect("closing twice is closing once");
    assert!(source.fetch(1).await.expect("closed").is_empty());
    assert_eq!(settle(&*source, held[1].tag, Settlement::Ack).await.expect("answered"), Settled::Gone);
    let other = stage.open(patient()).await;
    assert_eq!(fetch(&*other, 2).await.len(), 2, "at once, also when it could have been held for minutes");
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
    while seen.len() < 3 {
        for delivery in found {
            if let Ok(Settled::Settled) = settle(&*source, delivery.tag, Settlement::Ack).await {
                seen.insert(delivery.message.body.clone());
            }
        }
        found = if seen.len() < 3 { fetched(&*source, 10).await } else { Vec::new() };
    }
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
        while source.lag().await.expect("answered") != Some(0) {
            tokio::task::yield_now().await;
        }
    }
}
