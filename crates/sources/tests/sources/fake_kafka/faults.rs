//! One failure after the other, between the source and the broker.

use krafka::error::ErrorCode;
use krafka::testing::{ApiKey, Control};
use onlyonce_inbox::{Delivery, Extended, Settled, Settlement, Source, SourceErrorKind};

use super::{Fake, NODE};
use crate::stage::{Stage as _, ack, bodies, fetch, patient, settle, settle_surely};

impl Fake {
    /// Has the next request of a kind answered otherwise.
    fn next(&self, request: ApiKey, control: Control) {
        self.broker.on_once(request, move |_| control.clone());
    }
}

/// The broker did it, and nobody hears.
fn lost_answer() -> Control {
    Control::ApplyThen(Box::new(Control::Disconnect))
}

async fn one(source: &dyn Source) -> Delivery {
    fetch(source, 1).await.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_fails_is_made_again_and_commits_nothing_else() {
    let stage = Fake::new(1).await;
    let source = stage.open(patient()).await;
    let faults = [
        Control::Error(ErrorCode::CoordinatorLoadInProgress),
        Control::Error(ErrorCode::NotCoordinator),
        Control::Error(ErrorCode::RequestTimedOut),
        Control::Disconnect,
        lost_answer(),
    ];
    let mut finished = 0;
    for fault in faults {
        for body in ["first", "second"] {
            stage.publish(&[], body.as_bytes()).await;
        }
        let held = fetch(&*source, 2).await;
        stage.next(ApiKey::OffsetCommit, fault.clone());
        let settled = settle_surely(&*source, held[0].tag, &Settlement::Ack).await;
        assert_eq!(settled.expect("settled"), Settled::Settled, "{fault:?}");
        assert_eq!(stage.committed(0), finished + 1, "{fault:?}: no further than the first unfinished");
        ack(&*source, held[1].tag).await;
        finished += 2;
        assert_eq!(stage.committed(0), finished, "{fault:?}");
    }
    source.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_refused_leaves_the_delivery_ours() {
    let stage = Fake::new(2).await;
    let source = stage.open(patient()).await;
    let mut finished = 0;
    for refusal in [ErrorCode::GroupAuthorizationFailed, ErrorCode::TopicAuthorizationFailed] {
        for partition in [0, 1] {
            stage.publish_to(partition, &[], format!("{partition}").as_bytes()).await;
        }
        let mut held = fetch(&*source, 2).await;
        held.sort_by_key(|delivery| delivery.message.body.clone());
        // Both together, and then the first of them alone.
        stage.broker.on_times(ApiKey::OffsetCommit, 2, move |_| Control::Error(refusal));
        let both = held.iter().map(|delivery| (delivery.tag, Settlement::Ack)).collect();
        let mut results = source.settle(both).await.expect("answered");
        let second = results.remove(1).expect("one's refusal is not another's");
        assert_eq!((second, stage.committed(1)), (Settled::Settled, finished + 1));
        let error = results.remove(0).expect_err("refused");
        assert_eq!((error.kind(), stage.committed(0)), (SourceErrorKind::Refused, finished));
        let extended = source.extend(&[held[0].tag]).await.expect("answered").remove(0).expect("answered");
        assert_eq!(extended, Extended::Extended, "nobody took it away");
        // Somebody gave us the right.
        ack(&*source, held[0].tag).await;
        finished += 1;
        assert_eq!(stage.committed(0), finished);
    }
    source.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_member_held_that_was_thrown_out_is_gone_and_comes_again() {
    for thrown_out in [ErrorCode::IllegalGeneration, ErrorCode::UnknownMemberId] {
        let stage = Fake::new(1).await;
        stage.publish(&[], b"a").await;
        let source = stage.open(patient()).await;
        let held = one(&*source).await;
        stage.next(ApiKey::OffsetCommit, Control::Error(thrown_out));
        let settled = settle_surely(&*source, held.tag, &Settlement::Ack).await;
        assert_eq!(settled.expect("answered"), Settled::Gone, "{thrown_out:?}");
        assert_eq!(stage.committed(0), 0, "nothing is finished in another's place");
        let again = one(&*source).await;
        assert_eq!(&again.message.body[..], b"a");
        ack(&*source, again.tag).await;
        assert_eq!(stage.committed(0), 1);
        source.close().await.expect("closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_acknowledged_only_when_it_is_kept_and_kept_once() {
    let stage = Fake::new(1).await;
    stage.publish(&[], b"broken").await;
    let source = stage.open(patient()).await;
    let held = one(&*source).await;
    let dead = Settlement::DeadLetter { reason: "it is broken".into() };
    stage.broker.on(ApiKey::Produce, |_| Control::Error(ErrorCode::MessageTooLarge));
    let refused = settle(&*source, held.tag, dead.clone()).await.expect_err("too large");
    assert_eq!(refused.kind(), SourceErrorKind::Refused, "{refused:?}");
    assert_eq!((stage.committed(0), stage.dead_letters().await.len()), (0, 0));
    stage.broker.clear_hooks();
    // The producer is idempotent: one whose answer is lost is not kept twice.
    stage.next(ApiKey::Produce, lost_answer());
    let settled = settle_surely(&*source, held.tag, &dead).await;
    assert_eq!(settled.expect("settled"), Settled::Settled);
    assert_eq!((stage.committed(0), stage.dead_letters().await.len()), (1, 1));
    source.close().await.expect("closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_fail_and_a_broker_that_crashes_cost_no_record() {
    let stage = Fake::new(1).await;
    let source = stage.open(patient()).await;
    let faults = [
        // This broker sends an error without records, which librdkafka cannot read: no matter.
        Control::Error(ErrorCode::NotLeaderForPartition),
        Control::CorruptRecords,
        Control::Disconnect,
        lost_answer(),
    ];
    for fault in faults {
        // The first may come by a request that waits already; the second comes by one that failed.
        stage.next(ApiKey::Fetch, fault.clone());
        for body in ["first", "second"] {
            stage.publish(&[], body.as_bytes()).await;
            let held = one(&*source).await;
            assert_eq!(&held.message.body[..], body.as_bytes(), "{fault:?}");
            ack(&*source, held.tag).await;
        }
    }
    stage.publish(&[], b"before").await;
    let held = one(&*source).await;
    stage.broker.crash(NODE);
    stage.broker.restart(NODE);
    stage.publish(&[], b"after").await;
    let settled = settle_surely(&*source, held.tag, &Settlement::Ack).await;
    assert_eq!(settled.expect("answered"), Settled::Settled);
    let after = one(&*source).await;
    assert_eq!(bodies(std::slice::from_ref(&after)), ["after"]);
    ack(&*source, after.tag).await;
    assert_eq!(stage.outstanding(), 0);
    source.close().await.expect("closed");
}
