//! Failing handlers, failing stores, failing brokers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::UnknownPolicy;
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{
    ConsumerErrorKind, Handled, Horizon, MemoryBroker, Message, OnMissingId, OnShortRetention, Trouble, Work,
};
use onlyonce_testkit::fault::Operation;
use onlyonce_testkit::{Fault, Faulty};

use crate::stage::{Effects, LEASE, Stage, Started, block_on, policy, quiet};

/// Fails so many times, then has its effect.
fn failing(
    effects: &Effects,
    times: u32,
    how: fn() -> Handled,
) -> impl Fn(Work) -> std::future::Ready<Handled> + use<> {
    let (effects, failures) = (effects.clone(), AtomicU32::new(0));
    move |work| {
        std::future::ready(if failures.fetch_add(1, Ordering::Relaxed) < times {
            how()
        } else {
            effects.add(&work);
            Handled::done()
        })
    }
}

#[test]
fn a_failed_message_is_tried_again_later_and_has_its_effect_once() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        let consumer = stage.start(failing(&stage.effects, 2, || Handled::retry("not now"))).await;
        // After a second, then after two.
        stage.broker.until(|broker| broker.delayed() == 1).await;
        stage.clock.advance(Duration::from_secs(1));
        stage.broker.until(|broker| broker.deliveries() == 2 && broker.delayed() == 1).await;
        stage.clock.advance(Duration::from_secs(1));
        assert_eq!(stage.broker.delayed(), 1, "not yet");
        stage.clock.advance(Duration::from_secs(1));
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.retried, counts.done, stage.effects.of("a")), (2, 1, 1));
    });
}

#[test]
fn a_message_that_always_fails_ends_among_the_dead_letters_and_runs_once_when_it_is_put_back() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        stage.publish("b");
        let effects = stage.effects.clone();
        let is_mended = Arc::new(AtomicU32::new(0));
        let mended = is_mended.clone();
        let consumer = stage
            .start(move |work: Work| {
                let fails = work.message().body == "a" && mended.load(Ordering::Relaxed) == 0;
                std::future::ready(if fails {
                    Handled::retry("it is broken")
                } else {
                    effects.add(&work);
                    Handled::done()
                })
            })
            .await;
        stage.settled_in_time().await;
        let dead = stage.broker.dead_letters();
        assert_eq!(dead.len(), 1, "the other is not held up");
        assert!(dead[0].1.contains("it is broken") && dead[0].1.contains("attempt 3 of 3"), "{}", dead[0].1);
        is_mended.store(1, Ordering::Relaxed);
        stage.broker.redrive();
        stage.settled().await;
        stage.broker.publish(dead[0].0.clone());
        stage.settled().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.duplicates, counts.dead_lettered), (2, 1, 1));
        assert_eq!((stage.effects.of("a"), stage.effects.of("b")), (1, 1));
    });
}

#[test]
fn a_refused_message_goes_to_the_dead_letters_at_once() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        let consumer = stage.start(failing(&stage.effects, 1, || Handled::refused("no such account"))).await;
        stage.settled().await;
        assert_eq!(consumer.stop().await.dead_lettered, 1);
        assert_eq!(stage.broker.dead_letters()[0].1, "no such account");
    });
}

#[test]
fn a_handler_that_panics_is_abandoned_and_parked_after_its_attempts() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        let consumer = stage.start(|_| async { panic!("on purpose") }).await;
        stage.settled_in_time().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.retried, counts.dead_lettered), (2, 1));
        assert!(stage.broker.dead_letters()[0].1.contains("panicked"));
        // Put back, it is still unknown whether it happened: an operator has to say.
        stage.broker.redrive();
        let consumer = stage.start(stage.effects.handler()).await;
        stage.settled().await;
        consumer.stop().await;
        assert_eq!((stage.broker.dead_letters().len(), stage.effects.of("a")), (1, 0));
    });
}

#[test]
fn a_record_that_was_sealed_without_knowing_is_no_reason_to_forget_the_message() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("a");
        let seal = policy().unknown(UnknownPolicy::Seal);
        let builder = stage.builder(|_| async { panic!("on purpose") }).policy(seal);
        let consumer = Started::new(builder.build().await.unwrap());
        stage.settled_in_time().await;
        let counts = consumer.stop().await;
        assert_eq!((counts.duplicates, counts.dead_lettered), (0, 1));
        assert!(stage.broker.dead_letters()[0].1.contains("unknown"));
    });
}

#[test]
fn a_message_that_nothing_names_is_dead_lettered_or_run_as_told() {
    for (on_missing_id, dead, effects) in [(OnMissingId::DeadLetter, 1, 0), (OnMissingId::Run, 0, 2)] {
        block_on(async {
            let stage = Stage::new();
            // A broker without positions.
            let nameless = Message::new("a").at("");
            stage.broker.publish(nameless);
            stage.broker.trouble(Trouble::LoseAck, 1);
            let builder = stage.builder(stage.effects.handler()).on_missing_id(on_missing_id);
            let consumer = Started::new(builder.build().await.unwrap());
            stage.settled().await;
            consumer.stop().await;
            assert_eq!((stage.broker.dead_letters().len(), stage.effects.of("a")), (dead, effects));
        });
    }
}

#[test]
fn nothing_runs_while_the_store_is_away_and_nothing_is_lost() {
    onlyonce_testkit::run(async {
        let stage = Stage::new();
        let faulty = Arc::new(Faulty::new(stage.store.clone()));
        let stage = stage.on(faulty.clone());
        faulty.next_times(3, Operation::Claim, &Fault::Refuse);
        for number in 0..5 {
            stage.publish(&format!("message {number}"));
        }
        let consumer = stage.start(stage.effects.handler()).await;
        stage.broker.until(|broker| broker.delayed() == 5).await;
        assert!(stage.effects.all().is_empty(), "fails closed");
        while faulty.unmet(Operation::Claim) > 0 {
            stage.clock.advance(Duration::from_secs(1));
            quiet().await;
        }
        loop {
            stage.clock.advance(Duration::from_millis(100));
            if stage.broker.unsettled() == 0 {
                break;
            }
            quiet().await;
        }
        let counts = consumer.stop().await;
        assert!(counts.store_failed >= 5, "{counts:?}");
        assert_eq!(counts.done, 5);
        assert!(stage.effects.all().values().all(|times| *times == 1));
    });
}

#[test]
fn lost_replies_of_the_store_cost_no_second_effect() {
    for (operation, fault) in [
        (Operation::Claim, Fault::LoseReply),
        (Operation::Claim, Fault::LoseCommand),
        (Operation::Claim, Fault::Duplicate),
        (Operation::Complete, Fault::LoseReply),
        (Operation::Complete, Fault::LoseCommand),
        (Operation::Complete, Fault::Duplicate),
    ] {
        onlyonce_testkit::run(async {
            let stage = Stage::new();
            let faulty = Arc::new(Faulty::new(stage.store.clone()));
            let stage = stage.on(faulty.clone());
            faulty.next(operation, fault.clone());
            stage.publish("a");
            let consumer = stage.start(stage.effects.handler()).await;
            loop {
                // The engine asks again after 10 ms.
                stage.clock.advance(Duration::from_millis(10));
                if stage.broker.unsettled() == 0 {
                    break;
                }
                quiet().await;
            }
            consumer.stop().await;
            assert_eq!(stage.effects.of("a"), 1, "{operation:?} {fault:?}");
        });
    }
}

#[test]
fn a_broker_that_is_away_for_a_while_is_asked_again() {
    onlyonce_testkit::run(async {
        let stage = Stage::new();
        stage.publish("a");
        stage.broker.trouble(Trouble::RefuseFetch, 3);
        stage.broker.trouble(Trouble::RefuseSettlement, 3);
        stage.broker.trouble(Trouble::LoseAck, 1);
        let consumer = stage.start(stage.effects.handler()).await;
        loop {
            stage.clock.advance(Duration::from_millis(50));
            if stage.broker.unsettled() == 0 {
                break;
            }
            quiet().await;
        }
        let counts = consumer.stop().await;
        assert_eq!((counts.done, counts.duplicates, stage.effects.of("a")), (1, 1, 1));
    });
}

/// A handler that failed once, on a broker that has nowhere to let its message wait: it waits here.
async fn held_back() -> (Stage, Started) {
    let stage = Stage::new();
    stage.publish("a");
    stage.broker.trouble(Trouble::RefuseDelay, 1);
    let consumer = stage.start(failing(&stage.effects, 1, || Handled::retry("not now"))).await;
    let waiting = stage.clock.slept_on_for_exactly(Duration::from_secs(1));
    in_time("being held back", waiting).await;
    (stage, consumer)
}

#[test]
fn a_retry_that_the_broker_refuses_is_held_back_and_then_given_back() {
    block_on(async {
        let (stage, consumer) = held_back().await;
        assert_eq!((stage.broker.out(), stage.broker.deliveries()), (1, 1), "it stays ours");
        assert_eq!(consumer.counts.now().refused, 1, "it is reported");
        stage.clock.advance(Duration::from_secs(1));
        in_time("settling", stage.settled()).await;
        let counts = consumer.stop().await;
        assert_eq!((counts.retried, counts.done, counts.gone, stage.effects.of("a")), (1, 1, 0, 1));
        assert_eq!(stage.broker.deliveries(), 2);
    });
}

#[test]
fn what_is_held_back_is_given_back_at_a_shutdown() {
    block_on(async {
        let (stage, consumer) = held_back().await;
        let counts = in_time("stopping", consumer.stop()).await;
        assert_eq!((counts.settled, counts.gone, stage.broker.unsettled()), (1, 0, 1));
    });
}

#[test]
fn a_settlement_that_fails_holds_up_no_other() {
    block_on(async {
        let stage = Stage::new();
        stage.publish("bad");
        // Time stands still: whoever waits for it waits for ever.
        stage.broker.trouble(Trouble::RefuseDeadLetter, 3);
        let effects = stage.effects.clone();
        let consumer = stage
            .start(move |work: Work| {
                std::future::ready(if work.message().body == "bad" {
                    Handled::refused("no such account")
                } else {
                    effects.add(&work);
                    Handled::done()
                })
            })
            .await;
        stage.clock.slept_on_for_exactly(Duration::from_millis(50)).await;
        for number in 0..100 {
            stage.publish(&format!("message {number}"));
        }
        in_time("settling", stage.broker.until(|broker| broker.unsettled() == 1)).await;
        assert_eq!(stage.effects.all().len(), 100);
        for pause in [50, 100, 200] {
            stage.clock.slept_on_for_exactly(Duration::from_millis(pause)).await;
            stage.clock.advance(Duration::from_millis(pause));
        }
        in_time("settling", stage.settled()).await;
        consumer.stop().await;
        assert_eq!(stage.broker.dead_letters().len(), 1);
    });
}

#[test]
fn records_must_outlive_the_sources_deliveries() {
    block_on(async {
        let mut stage = Stage::new();
        let year = Horizon::Within(Duration::from_hours(365 * 24));
        stage.broker = MemoryBroker::with(stage.clock.clone(), None, year);
        let refused = stage.builder(stage.effects.handler()).build().await.unwrap_err();
        assert_eq!(refused.kind(), ConsumerErrorKind::ShortRetention);
        let text = std::error::Error::source(&refused).unwrap().to_string();
        assert!(text.contains("records are kept for"), "{text}");
        let warned = stage.builder(stage.effects.handler()).on_short_retention(OnShortRetention::Warn);
        assert!(warned.build().await.is_ok());
        stage.broker = MemoryBroker::with(stage.clock.clone(), None, Horizon::Within(LEASE));
        assert!(stage.builder(stage.effects.handler()).build().await.is_ok());
    });
}

#[test]
fn what_cannot_work_is_refused_before_it_starts() {
    block_on(async {
        let stage = Stage::new();
        let builder = || stage.builder(stage.effects.handler());
        for builder in [
            builder().concurrency(0),
            builder().concurrency(100_000),
            builder().batch_max(0),
            builder().batch_max(1001),
            builder().backoff(onlyonce_inbox::Backoff { first: LEASE, longest: Duration::ZERO }),
        ] {
            assert_eq!(builder.build().await.unwrap_err().kind(), ConsumerErrorKind::Misuse);
        }
    });
}
