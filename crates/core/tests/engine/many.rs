//! Many requests whose claims travel in one round trip: answered as one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onlyonce_core::{
    Conflict, Ending, Engine, EngineErrorKind, Event, Fence, Fingerprint, Fingerprinted, MemoryStore,
    Observer, Outcome, Policy, Quota, RecordId, Reply, Request, Rules,
};
use onlyonce_testkit::Fault;
use onlyonce_testkit::fault::Operation;

use crate::stage::{Stage, key};

/// Requests for these keys, each with an effect and its number as the outcome.
fn calls(
    stage: &Stage,
    keys: &[&str],
) -> Vec<(Request, impl FnOnce(onlyonce_core::Execution) -> std::future::Ready<Ending<u32>> + Send + use<>)> {
    let call = |(number, name): (u32, &&str)| {
        let request = Request::new(stage.engine.secret(), key(name), stage.asked(b"body"));
        let effects = Arc::clone(&stage.effects);
        let work = move |_| {
            effects.fetch_add(1, Ordering::SeqCst);
            let outcome = Outcome::kept(9, number.to_string());
            std::future::ready(Ending::Complete { value: number, outcome, retention: None })
        };
        (request, work)
    };
    (0..).zip(keys).map(call).collect()
}

async fn replies(stage: &Stage, keys: &[&str]) -> Vec<Reply<u32>> {
    let mut replies = Vec::new();
    for performing in stage.engine.perform_many(calls(stage, keys)).unwrap() {
        replies.push(performing.await.unwrap());
    }
    replies
}

fn ran(reply: &Reply<u32>) -> Option<u32> {
    match reply {
        Reply::Ran(ran) => Some(ran.value),
        _ => None,
    }
}

#[tokio::test]
async fn each_runs_once_and_is_replayed_after() {
    let stage = Stage::new(Policy::default()).await;
    let first = replies(&stage, &["a", "b", "c"]).await;
    assert_eq!(first.iter().map(ran).collect::<Vec<_>>(), [Some(0), Some(1), Some(2)]);
    let again = replies(&stage, &["c", "a", "d"]).await;
    assert!(matches!(&again[0], Reply::Replay(replay) if replay.outcome == Outcome::kept(9, "2")));
    assert!(matches!(&again[1], Reply::Replay(replay) if replay.outcome == Outcome::kept(9, "0")));
    assert_eq!(ran(&again[2]), Some(2));
    assert_eq!(stage.effects.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn of_two_with_the_same_key_the_second_is_busy_or_waits_as_the_policy_says() {
    let stage = Stage::new(Policy::default()).await;
    let told = replies(&stage, &["a", "a"]).await;
    assert_eq!(ran(&told[0]), Some(0));
    assert!(matches!(told[1], Reply::Conflict(Conflict::InFlight { .. })), "{:?}", told[1]);
    let stage = Stage::new(Policy::default().wait(Duration::from_secs(5))).await;
    let told = replies(&stage, &["a", "a"]).await;
    assert!(matches!(&told[1], Reply::Replay(_)), "{:?}", told[1]);
    assert_eq!(stage.effects.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_again_and_a_refusal_starts_nothing() {
    for (fault, effects) in [(Fault::LoseReply, 2), (Fault::LoseCommand, 2), (Fault::Refuse, 0)] {
        let stage = Stage::new(Policy::default()).await;
        stage.store.next(Operation::Claim, fault.clone());
        let mut performing = stage.engine.perform_many(calls(&stage, &["a", "b"])).unwrap();
        let second = performing.pop().unwrap();
        let both = tokio::spawn(async move { (performing.pop().unwrap().await, second.await) });
        while !both.is_finished() {
            // The engine asks again after 10 ms.
            stage.clock.advance(Duration::from_millis(10));
            tokio::task::yield_now().await;
        }
        let (first, second) = both.await.unwrap();
        for reply in [first, second] {
            match reply {
                Ok(reply) => assert!(ran(&reply).is_some() && effects > 0, "{fault:?}"),
                Err(error) => assert!(matches!(error.kind(), EngineErrorKind::Store(_)) && effects == 0),
            }
        }
        assert_eq!(stage.effects.load(Ordering::SeqCst), effects, "{fault:?}");
    }
}

/// Made by rules that changed since: it can still be compared by the old ones.
struct Versioned(Fingerprint, Fingerprint);

impl Fingerprinted for Versioned {
    fn fingerprint(&self) -> Fingerprint {
        self.0.clone()
    }

    fn fingerprint_by(&self, rules: &Rules) -> Option<Fingerprint> {
        (self.1.rules() == rules).then(|| self.1.clone())
    }
}

#[tokio::test]
async fn an_older_record_is_compared_by_its_own_rules() {
    let stage = Stage::new(Policy::default()).await;
    let by = |rules: Rules| Fingerprint::builder(stage.engine.secret(), rules).field("body", b"x").finish();
    let (old, new) = (by(Rules::standard()), by(Rules::new("new").unwrap()));
    let runs = Arc::new(AtomicU32::new(0));
    for request in [
        Request::new(stage.engine.secret(), key("a"), old.clone()),
        Request::new(stage.engine.secret(), key("a"), Versioned(new, old)),
    ] {
        let counted = Arc::clone(&runs);
        let work = move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ending::Complete { value: (), outcome: Outcome::kept(9, ""), retention: None })
        };
        let performing = stage.engine.perform_many(vec![(request, work)]).unwrap().remove(0);
        assert!(!matches!(performing.await.unwrap(), Reply::Conflict(_)));
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_is_looked_up_beyond_a_limit_holds_nobody_else_up() {
    let stage = Stage::new(Policy::default().quota(Quota { records_max: Some(1), ..Quota::default() })).await;
    let found = Arc::new(tokio::sync::Notify::new());
    stage.store.next(Operation::Other, Fault::Delay(Arc::clone(&found)));
    let [first, second] = stage.engine.perform_many(calls(&stage, &["a", "b"])).unwrap().try_into().unwrap();
    assert_eq!(ran(&first.await.unwrap()), Some(0));
    found.notify_one();
    let second = second.await.unwrap();
    assert!(matches!(second, Reply::Conflict(Conflict::OverQuota { .. })), "{second:?}");
}

#[tokio::test]
async fn quotas_and_the_bound_of_a_batch_are_kept() {
    let quota = Quota { records_max: Some(2), ..Quota::default() };
    let stage = Stage::new(Policy::default().quota(quota)).await;
    let told = replies(&stage, &["a", "b", "c"]).await;
    assert!(matches!(told[2], Reply::Conflict(Conflict::OverQuota { .. })), "{:?}", told[2]);
    let too_many = vec!["a"; 1001];
    let refused = stage.engine.perform_many(calls(&stage, &too_many)).unwrap_err();
    assert_eq!(refused.kind(), EngineErrorKind::Misuse);
}

/// An observer with a defect: it cannot bear to hear of one record.
#[derive(Debug)]
struct Touchy(RecordId);

impl Observer for Touchy {
    fn event(&self, id: &RecordId, _: Fence, _: Event) {
        assert!(*id != self.0, "the observer cannot bear it");
    }
}

#[tokio::test]
async fn an_observer_that_panics_stops_no_work() {
    let mut stage = Stage::new(Policy::default()).await;
    let touchy = Touchy(key("b").record_id(stage.engine.secret()));
    // Under the secret that the id was made by.
    let store = Arc::new(MemoryStore::default());
    let secret = stage.engine.secret().clone();
    stage.engine = Engine::builder(store).secret(secret).observer(Arc::new(touchy)).build().await.unwrap();
    let mut told = Vec::new();
    for performing in stage.engine.perform_many(calls(&stage, &["a", "b", "c"])).unwrap() {
        told.push(performing.await.ok().as_ref().and_then(ran));
    }
    assert_eq!(told, [Some(0), Some(1), Some(2)]);
    assert_eq!(stage.effects.load(Ordering::SeqCst), 3);
}
