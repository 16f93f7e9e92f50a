//! Many uploads at once: what all of them hold together is bounded, what finds no room is told so before a claim, and
//! there is room again when they are gone.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::client::Answer;
use crate::stage::{Stage, post};

/// What all may hold together: four bodies of the largest kind.
const ROOM: u64 = 4000;
const LARGEST: usize = 1000;

async fn stage() -> Stage {
    Stage::with(|flags| {
        flags.proxy.buffered_bytes_max = Some(ROOM);
        flags.proxy.body_pause_max = Some("9m".parse().unwrap());
        flags.defaults.request_bytes_max = Some(LARGEST as u64);
    })
    .await
}

/// The head of an upload of the largest kind.
fn head(key: &str) -> String {
    format!("POST /pay HTTP/1.1\r\nHost: a\r\nIdempotency-Key: {key}\r\nContent-Length: {LARGEST}\r\n\r\n")
}

fn is_overloaded(answer: &Answer) -> bool {
    answer.status == 503 && answer.body.contains("overloaded") && answer.header("retry-after") == Some("1")
}

/// Uploads that have sent all but their last byte, and fill the room.
struct Uploads {
    waiting: JoinSet<Option<Answer>>,
    finish: watch::Sender<bool>,
}

impl Uploads {
    /// Begins twice as many as there is room for, and waits until the other half was refused: then all are decided.
    async fn fill(stage: &Arc<Stage>, name: &str) -> Self {
        let (mut waiting, finish) = (JoinSet::new(), watch::Sender::new(false));
        for number in 0..8 {
            let (stage, mut told) = (Arc::clone(stage), finish.subscribe());
            let begun = format!("{}{}", head(&format!("{name}-{number}")), "x".repeat(LARGEST - 1));
            waiting.spawn(async move {
                let mut wire = stage.connect().await;
                wire.write(begun).await;
                tokio::select! {
                    refused = wire.answer() => return refused,
                    _ = told.wait_for(|told| *told) => {}
                }
                wire.write("x").await;
                wire.answer().await
            });
        }
        for _ in 0..4 {
            let refused = waiting.join_next().await.unwrap().unwrap().unwrap();
            assert!(is_overloaded(&refused), "{refused:?}");
        }
        Self { waiting, finish }
    }

    async fn finish(self) -> Vec<Answer> {
        self.finish.send_replace(true);
        self.waiting.join_all().await.into_iter().map(Option::unwrap).collect()
    }
}

/// Resolves when there is room again.
async fn until_there_is_room(stage: &Stage) {
    let asking = async {
        for number in 0.. {
            let answer = stage.send(post("/pay", &format!("probe-{number}"), "0123456789")).await;
            assert!(answer.status == 200 || is_overloaded(&answer), "{answer:?}");
            if answer.status == 200 {
                break;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_mins(1), asking).await.expect("there is room again");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_uploads_together_hold_no_more_than_there_is_room_for() {
    let stage = Arc::new(stage().await);
    let slow = Uploads::fill(&stage, "slow").await;
    let refused = stage.send(post("/pay", "refused", &"x".repeat(10))).await;
    assert!(is_overloaded(&refused), "{refused:?}");
    assert_eq!(stage.application.effects(), 0, "nothing was started");
    let unkeyed =
        format!("POST /pay HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000));
    assert_eq!(stage.send(unkeyed).await.status, 200, "what has no key is never held");
    // The ones that were first are served, and the key of the refused one is free.
    let served = slow.finish().await;
    assert!(served.len() == 4 && served.iter().all(|answer| answer.status == 200), "{served:?}");
    until_there_is_room(&stage).await;
    let taken = stage.send(post("/pay", "refused", &"x".repeat(LARGEST))).await;
    assert_eq!((taken.status, taken.header("idempotency-replayed")), (200, Some("false")), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_goes_away_makes_room() {
    let stage = Arc::new(stage().await);
    for round in 0..3 {
        let slow = Uploads::fill(&stage, &format!("gone-{round}")).await;
        drop(slow);
        until_there_is_room(&stage).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_takes_room_until_its_answer() {
    let stage = Arc::new(stage().await);
    let mut running = JoinSet::new();
    for number in 0..4 {
        let stage = Arc::clone(&stage);
        let body = "x".repeat(LARGEST);
        running.spawn(async move { stage.send(post("/slow", &format!("run-{number}"), &body)).await });
    }
    stage.application.arrived(4).await;
    let refused = stage.send(post("/pay", "k", "x")).await;
    assert!(is_overloaded(&refused), "{refused:?}");
    stage.application.gate.add_permits(4);
    for answer in running.join_all().await {
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    until_there_is_room(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_slow_uploads_in_small_parts_end_in_an_answer_each_and_leave_nothing_held() {
    let stage = Arc::new(stage().await);
    let mut uploads = JoinSet::new();
    for number in 0..100 {
        let stage = Arc::clone(&stage);
        uploads.spawn(async move {
            let mut wire = stage.connect().await;
            let begun = std::time::Instant::now();
            wire.write(head(&format!("many-{number}"))).await;
            for _ in 0..LARGEST / 50 {
                wire.write("x".repeat(50)).await;
                tokio::task::yield_now().await;
            }
            let answer = wire.answer().await;
            // A refusal lingers for two seconds; whoever is still sending then may miss it.
            assert!(answer.is_some() || begun.elapsed().as_secs() >= 2, "no answer to upload {number}");
            answer
        });
    }
    let answers: Vec<_> = uploads.join_all().await.into_iter().flatten().collect();
    let taken = answers.iter().filter(|answer| answer.status == 200).count();
    assert!(answers.iter().all(|answer| answer.status == 200 || is_overloaded(answer)), "{answers:?}");
    assert!(taken > 0, "some found room");
    assert_eq!(stage.application.effects(), taken);
    until_there_is_room(&stage).await;
}
