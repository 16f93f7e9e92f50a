//! Callers who hang up at any instant: nothing is lost, nothing is repeated.

use std::collections::HashMap;
use std::sync::Arc;

use onlyonce_core::{Engine, MemoryStore};
use onlyonce_http::{OnceLayer, Rules};
use onlyonce_testkit::Soak;
use onlyonce_testkit::http::{Ask, Door, HttpFixture, Served, Setup, Stage};
use rand::Rng;
use tokio::sync::Notify;
use tower_layer::Layer;

use crate::stage::{self, answer, ask};

struct Plain;

impl HttpFixture for Plain {
    async fn open(&self, setup: Setup) -> Door {
        let engine = Engine::builder(Arc::new(MemoryStore::default())).build().await.unwrap();
        let layer = OnceLayer::new(engine, setup.rules).unwrap();
        let served = Served::new(layer.layer(setup.application)).await;
        Door { address: served.address(), store: None, keep: Box::new(served) }
    }
}

/// Hangs up after so many turns of other tasks: too short a time for any timer.
async fn is_cut_off<T>(call: impl Future<Output = T>, turns: u32) -> bool {
    let turns = async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = turns => true,
        _ = call => false,
    }
}

/// Hangs up when the work has begun, which no instant chosen by chance makes certain.
async fn is_cut_off_at_work(stage: &Stage, ask: Ask) -> bool {
    let begun = stage.effects() + 1;
    stage.application.hold();
    let is_cut_off = tokio::select! {
        () = stage.application.ran(begun) => true,
        _ = stage.call(ask) => false,
    };
    stage.application.go_on();
    is_cut_off
}

/// 300 by default; `ONLYONCE_SOAK_SECONDS` makes it longer.
#[test]
fn disconnects_at_random_instants_lose_and_repeat_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let rules = Rules { wait: Some("2m".parse().unwrap()), ..Rules::default() };
        let stage = Stage::new(&Plain, rules).await;
        let mut soak = Soak::new("disconnects", 300);
        let (mut rounds, mut cut, mut outlived) = (0, 0, 0);
        while let Some((seed, mut rng)) = soak.next_round() {
            rounds += 1;
            let ask = || Ask::post("/payments").key(format!("k{seed}")).body(vec![b'x'; 2000]);
            let is_cut_off = match seed % 10 {
                0 => is_cut_off_at_work(&stage, ask()).await,
                _ => is_cut_off(stage.call(ask()), rng.random_range(0..1000)).await,
            };
            let answer = stage.call(ask()).await;
            assert_eq!(answer.status, 201, "seed {seed}: {answer:?}");
            cut += u64::from(is_cut_off);
            outlived += u64::from(is_cut_off && answer.is_replay());
            assert_eq!(stage.call(ask()).await.effect(), answer.effect(), "seed {seed}");
        }
        let mut effects = HashMap::<_, u32>::new();
        for seen in stage.application.seen() {
            *effects.entry(seen.headers["idempotency-key"].clone()).or_default() += 1;
        }
        assert_eq!(effects.len(), rounds, "every key ran");
        assert!(effects.values().all(|count| *count == 1), "and none of them twice");
        let at_work = rounds as u64 / 10;
        assert!(outlived >= at_work, "some hung up after the work had begun: {outlived} of {at_work}");
        soak.report(outlived, &format!("of {cut} callers who hung up were outlived by their work"));
    });
}

#[test]
fn a_body_takes_room_until_its_answer_also_when_its_caller_has_hung_up() {
    onlyonce_testkit::run(async {
        let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (beginning, opening) = (begun.clone(), gate.clone());
        let waits = move |_| {
            let (beginning, opening) = (beginning.clone(), opening.clone());
            async move {
                beginning.notify_one();
                opening.notified().await;
                Ok(answer(201))
            }
        };
        // As large as one body.
        let stage =
            stage::Stage::built(waits, |builder| builder.buffered_bytes_max(4).extensions(false)).await;
        tokio::select! {
            () = begun.notified() => {}
            got = stage.call(ask("gone")) => panic!("nobody let it answer: {got:?}"),
        }
        assert_eq!(stage.call(ask("next")).await.problem(), "overloaded");
        gate.notify_one();
        loop {
            let again = stage.call(ask("gone")).await;
            if again.status == 201 {
                break;
            }
            assert!(["overloaded", "in-flight"].contains(&&*again.problem()), "{again:?}");
            tokio::task::yield_now().await;
        }
        gate.notify_one();
        assert_eq!((stage.call(ask("next")).await.status, stage.effects()), (201, 2));
    });
}
