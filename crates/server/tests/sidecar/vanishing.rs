//! Clients that go away at random instants: nothing is lost, nothing is repeated.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_testkit::Soak;
use rand::Rng as _;

use crate::stage::{Stage, post};

/// Disconnects in one round, half of them at once.
const CLIENTS: usize = 100;

/// Rounds in CI: 500 disconnects. `ONLYONCE_SOAK_SECONDS` goes on for longer.
const ROUNDS: u64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn soak_clients_that_vanish_at_random_instants_lose_nothing_and_repeat_nothing() {
    let stage = Arc::new(Stage::new().await);
    let mut soak = Soak::new("vanishing clients", ROUNDS);
    let mut vanished = 0;
    while let Some((seed, mut random)) = soak.next_round() {
        let before = stage.application.effects();
        let mut clients = tokio::task::JoinSet::new();
        for number in 0..CLIENTS {
            let request = post("/pay", &format!("key-{seed}-{number}"), "100");
            let sent =
                if random.random_bool(0.5) { request.len() } else { random.random_range(0..request.len()) };
            let patience = Duration::from_micros(random.random_range(0..3000));
            let stage = Arc::clone(&stage);
            clients.spawn(async move {
                let mut wire = stage.connect().await;
                wire.write(&request.as_bytes()[..sent]).await;
                // Away, with or without the answer: whichever comes first.
                let _ = tokio::time::timeout(patience, wire.answer()).await;
                drop(wire);
                let mut retry = stage.send(&request).await;
                while retry.status == 409 {
                    retry = stage.send(&request).await;
                }
                assert_eq!(retry.status, 200, "seed {seed}, client {number}: {retry:?}");
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
            vanished += 1;
        }
        assert_eq!(stage.application.effects() - before, CLIENTS, "seed {seed}: one effect for each key");
    }
    soak.report(vanished, "clients vanished");
}
