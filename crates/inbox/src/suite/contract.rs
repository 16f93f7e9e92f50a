//! The clauses of the [`Source`] contract as tests that any source can run; N in `sN_…` is the clause's number.

use std::sync::Arc;
use std::time::Duration;

use super::Fixture;
use crate::message::Message;
use crate::source::{Delivery, Extended, Settled, Settlement, Source, Tag};

fn message(name: &str) -> Message {
    Message::new(name.to_owned())
        .with_header("event-id", format!("id of {name}"))
        .with_header("trace", format!("trace of {name}"))
}

fn name(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.message.body).into_owned()
}

const AGAIN: Settlement = Settlement::Retry { after: Duration::ZERO };

/// Fetches up to `max`, with time passing as the fixture lets it.
async fn fetch<F: Fixture>(fixture: &F, source: &dyn Source, max: usize) -> Vec<Delivery> {
    let fetching = async {
        loop {
            match source.fetch(max).await {
                Ok(fetched) => return fetched,
                // A connection that was cut is made again.
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    };
    tokio::pin!(fetching);
    loop {
        tokio::select! {
            biased;
            fetched = &mut fetching => return fetched,
            () = fixture.idle() => {}
        }
    }
}

async fn next<F: Fixture>(fixture: &F, source: &dyn Source) -> Delivery {
    let mut fetched = fetch(fixture, source, 1).await;
    assert_eq!(fetched.len(), 1, "at most one was asked for, and the source is open");
    fetched.remove(0)
}

async fn settle(source: &dyn Source, tag: Tag, settlement: Settlement) -> Settled {
    let mut results = source.settle(vec![(tag, settlement)]).await.expect("the broker is there");
    assert_eq!(results.len(), 1);
    results.remove(0).expect("the broker is there")
}

/// Everything that comes until `last` does, and with it, acknowledged.
async fn drain<F: Fixture>(fixture: &F, source: &dyn Source, last: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    while !names.iter().any(|name| name == last) {
        for delivery in fetch(fixture, source, 10).await {
            names.push(name(&delivery));
            assert_eq!(settle(source, delivery.tag, Settlement::Ack).await, Settled::Settled);
        }
    }
    names
}

/// Opens a source in a process of its own, fetches one delivery, does `then` with it, and kills the process.
async fn killed_after<F: Fixture>(fixture: &Arc<F>, settlement: Option<Settlement>) -> String {
    let fixture = Arc::clone(fixture);
    let process = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let seen = runtime.block_on(async {
            let source = fixture.open().await;
            let delivery = next(&*fixture, &*source).await;
            if let Some(settlement) = settlement {
                settle(&*source, delivery.tag, settlement).await;
            }
            name(&delivery)
        });
        runtime.shutdown_timeout(Duration::from_secs(30));
        seen
    });
    process.await.expect("a process can be killed")
}

/// Clause 1.
pub async fn s1_fetch_waits_and_keeps_to_its_bound<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    {
        // Nothing is there: it waits. Dropping it loses nothing of what comes.
        let waiting = source.fetch(10);
        tokio::pin!(waiting);
        assert!(futures_poll(&mut waiting).await, "there is nothing to fetch");
    }
    for number in 0..3 {
        fixture.publish(message(&format!("m{number}"))).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let fetched = fetch(&*fixture, &*source, 2).await;
        assert!((1..=2).contains(&fetched.len()), "{} were fetched", fetched.len());
        for delivery in fetched {
            seen.push(name(&delivery));
            settle(&*source, delivery.tag, Settlement::Ack).await;
        }
    }
    seen.sort();
    assert_eq!(seen, ["m0", "m1", "m2"]);
}

/// Whether a future is not ready yet.
async fn futures_poll<T>(future: &mut std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

/// Clauses 2, 5 and 10.
pub async fn s5_a_retried_message_comes_again_as_it_was<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    let first = next(&*fixture, &*source).await;
    assert_eq!(settle(&*source, first.tag, AGAIN).await, Settled::Settled);
    let again = next(&*fixture, &*source).await;
    assert_ne!(again.tag, first.tag, "a tag is never used again");
    assert_eq!(again.message.body, first.message.body);
    for header in ["event-id", "trace"] {
        assert_eq!(again.message.headers.get(header), first.message.headers.get(header));
        assert!(again.message.headers.get(header).is_some());
    }
    assert_eq!(again.message.position, first.message.position);
    settle(&*source, again.tag, Settlement::Ack).await;
}

/// Clause 3.
pub async fn s3_what_a_killed_process_had_comes_again<F: Fixture>(fixture: Arc<F>) {
    fixture.publish(message("a")).await;
    assert_eq!(killed_after(&fixture, None).await, "a");
    let source = fixture.open().await;
    assert_eq!(drain(&*fixture, &*source, "a").await, ["a"]);
}

/// Clause 4.
pub async fn s4_what_is_acknowledged_does_not_come_again<F: Fixture>(fixture: Arc<F>) {
    fixture.publish(message("a")).await;
    assert_eq!(killed_after(&fixture, Some(Settlement::Ack)).await, "a");
    fixture.publish(message("b")).await;
    let source = fixture.open().await;
    assert_eq!(drain(&*fixture, &*source, "b").await, ["b"]);
}

/// Clause 4: what is settled out of order leaves the earlier ones unsettled.
pub async fn s4_a_later_acknowledgement_does_not_take_an_earlier_message_along<F: Fixture>(fixture: Arc<F>) {
    fixture.publish(message("a")).await;
    fixture.publish(message("b")).await;
    let source = fixture.open().await;
    let first = next(&*fixture, &*source).await;
    let second = next(&*fixture, &*source).await;
    settle(&*source, second.tag, Settlement::Ack).await;
    source.close().await.expect("the broker is there");
    drop(source);
    let source = fixture.open().await;
    let unsettled = name(&first);
    assert!(drain(&*fixture, &*source, &unsettled).await.contains(&unsettled));
}

/// Clause 6.
pub async fn s6_a_dead_letter_is_kept_and_does_not_come_again<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    let delivery = next(&*fixture, &*source).await;
    let dead = Settlement::DeadLetter { reason: "it is broken".into() };
    assert_eq!(settle(&*source, delivery.tag, dead).await, Settled::Settled);
    let letters = fixture.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].body, "a");
    assert_eq!(letters[0].headers.get("event-id"), delivery.message.headers.get("event-id"));
    fixture.publish(message("b")).await;
    assert_eq!(drain(&*fixture, &*source, "b").await, ["b"]);
}

/// Clause 7: every way of settling in one batch, and an item that is there twice.
pub async fn s7_a_batch_is_answered_item_by_item<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    let mut tags = Vec::new();
    for body in ["a", "b", "c"] {
        fixture.publish(message(body)).await;
        tags.push(next(&*fixture, &*source).await.tag);
    }
    let batch = vec![
        (tags[0], Settlement::Ack),
        (Tag::new(u64::MAX), Settlement::Ack),
        (tags[1], AGAIN),
        (tags[0], Settlement::Ack),
        (tags[2], Settlement::DeadLetter { reason: "it is broken".into() }),
    ];
    let results = source.settle(batch).await.expect("the broker is there");
    let results: Vec<_> = results.into_iter().map(|result| result.expect("the broker is there")).collect();
    let (done, gone) = (Settled::Settled, Settled::Gone);
    assert_eq!(results, [done, gone, done, gone, done]);
    assert!(source.settle(Vec::new()).await.expect("nothing is something").is_empty());
    assert_eq!(drain(&*fixture, &*source, "b").await, ["b"]);
    assert_eq!(fixture.dead_letters().await.len(), 1);
}

/// Clause 8: what somebody else has now, or the same source once more, is not settled by what it was before.
pub async fn s8_a_delivery_that_was_taken_away_is_gone<F: Fixture>(fixture: Arc<F>) {
    fixture.publish(message("a")).await;
    let slow = fixture.open().await;
    let first = next(&*fixture, &*slow).await;
    fixture.take_away().await;
    let quick = fixture.open().await;
    // Whoever gets it now: it is another delivery.
    let second = tokio::select! {
        delivery = next(&*fixture, &*slow) => delivery,
        delivery = next(&*fixture, &*quick) => delivery,
    };
    assert_eq!(name(&second), "a");
    for how in [Settlement::Ack, AGAIN, Settlement::DeadLetter { reason: "it is late".into() }] {
        assert_eq!(settle(&*slow, first.tag, how).await, Settled::Gone);
    }
    let extended = slow.extend(&[first.tag]).await.expect("the broker is there").remove(0);
    assert_eq!(extended.expect("the broker is there"), Extended::Gone);
    assert_eq!(fixture.dead_letters().await.len(), 0, "nothing was settled in another's place");
    slow.close().await.expect("the broker is there");
    quick.close().await.expect("the broker is there");
    let source = fixture.open().await;
    assert_eq!(drain(&*fixture, &*source, "a").await, ["a"]);
}

/// Clauses 7 and 8.
pub async fn s8_a_settled_delivery_is_gone<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    fixture.publish(message("b")).await;
    let first = next(&*fixture, &*source).await;
    let second = next(&*fixture, &*source).await;
    settle(&*source, first.tag, Settlement::Ack).await;
    let both = vec![(first.tag, Settlement::Ack), (second.tag, Settlement::Ack)];
    let results: Vec<_> = source.settle(both).await.expect("the broker is there");
    let results: Vec<_> = results.into_iter().map(|result| result.expect("the broker is there")).collect();
    assert_eq!(results, [Settled::Gone, Settled::Settled], "one result for each, in order");
    assert_eq!(settle(&*source, Tag::new(u64::MAX), Settlement::Ack).await, Settled::Gone, "never given out");
}

/// Clauses 7 and 9.
pub async fn s9_a_delivery_in_progress_can_be_extended<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    let delivery = next(&*fixture, &*source).await;
    let tags = [delivery.tag, Tag::new(u64::MAX)];
    let results = source.extend(&tags).await.expect("the broker is there");
    let results: Vec<_> = results.into_iter().map(|result| result.expect("the broker is there")).collect();
    assert_eq!(results, [Extended::Extended, Extended::Gone]);
    settle(&*source, delivery.tag, Settlement::Ack).await;
    let gone = source.extend(&[delivery.tag]).await.expect("the broker is there").remove(0);
    assert_eq!(gone.expect("the broker is there"), Extended::Gone);
}

/// Clause 10.
pub async fn s10_two_messages_never_share_a_position<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    fixture.publish(message("a")).await;
    let (one, two) = (next(&*fixture, &*source).await, next(&*fixture, &*source).await);
    assert!(one.message.position.is_none() || one.message.position != two.message.position);
    for delivery in [one, two] {
        settle(&*source, delivery.tag, Settlement::Ack).await;
    }
}

/// Clause 12.
pub async fn s12_a_closed_source_fetches_nothing_and_gives_back<F: Fixture>(fixture: Arc<F>) {
    let source = fixture.open().await;
    fixture.publish(message("a")).await;
    let held = next(&*fixture, &*source).await;
    let (waiting, closed) = tokio::join!(source.fetch(1), source.close());
    assert!(waiting.expect("one that waits is answered").is_empty());
    closed.expect("the broker is there");
    source.close().await.expect("closing twice is closing once");
    assert_eq!(settle(&*source, held.tag, Settlement::Ack).await, Settled::Gone);
    assert!(source.fetch(1).await.expect("a closed source answers").is_empty());
    drop(source);
    let source = fixture.open().await;
    assert_eq!(drain(&*fixture, &*source, "a").await, ["a"]);
}
