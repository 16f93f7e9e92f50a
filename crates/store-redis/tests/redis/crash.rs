//! The server is killed under load, again and again: nothing that was acknowledged is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use onlyonce_core::record::StateKind;
use onlyonce_core::transition::{ClaimAnswer, CompleteAnswer};
use onlyonce_core::{RecordId, Store};
use onlyonce_testkit::servers::RedisOptions;
use onlyonce_testkit::{Soak, run};
use tokio::sync::mpsc;

use crate::stage::{Live, completion, fresh_claim, patient, token_of, until};

/// What a worker was told.
enum Told {
    Granted(RecordId),
    Completed(RecordId),
}

async fn work(store: Arc<dyn Store>, told: mpsc::UnboundedSender<Told>, acknowledged: Arc<AtomicU64>) {
    loop {
        let claim = fresh_claim();
        let Ok(answer) = store.claim(&claim).await else { continue };
        let token = token_of(&claim, &answer);
        let _ = told.send(Told::Granted(claim.id));
        // Some are left in flight: a grant must not be forgotten either.
        if claim.id.as_bytes()[1].is_multiple_of(4) {
            continue;
        }
        if let Ok(answer) = store.complete(&completion(token)).await {
            assert_eq!(answer, CompleteAnswer::Completed);
            let _ = told.send(Told::Completed(claim.id));
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn soak_killing_the_server_loses_nothing_that_was_acknowledged() {
    run(kill_again_and_again("redis kill -9", 20, RedisOptions::default()));
}

pub(crate) async fn kill_again_and_again(name: &'static str, rounds: u64, server: RedisOptions) {
    let live = Live::new(server, patient()).await;
    let (told, mut heard) = mpsc::unbounded_channel();
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let store = Arc::clone(&live.store) as Arc<dyn Store>;
        workers.spawn(work(store, told.clone(), Arc::clone(&acknowledged)));
    }
    let mut soak = Soak::new(name, rounds);
    let (mut granted, mut completed) = (Vec::new(), Vec::new());
    while soak.next_round().is_some() {
        let enough = acknowledged.load(Ordering::Relaxed) + 40;
        until("there is load", async || acknowledged.load(Ordering::Relaxed) >= enough).await;
        live.server.restart().expect("the server starts again");
    }
    workers.shutdown().await;
    while let Ok(told) = heard.try_recv() {
        match told {
            Told::Granted(id) => granted.push(id),
            Told::Completed(id) => completed.push(id),
        }
    }
    for id in &completed {
        let record = live.store.lookup(id).await.expect("a lookup");
        assert_eq!(record.map(|record| record.kind()), Some(StateKind::Completed), "an outcome was lost");
    }
    for id in &granted {
        assert!(live.store.lookup(id).await.expect("a lookup").is_some(), "a grant was lost");
        let claim = onlyonce_core::transition::Claim { id: *id, ..fresh_claim() };
        let answer = live.store.claim(&claim).await.expect("an answer");
        assert!(!matches!(answer, ClaimAnswer::Granted(_)), "granted twice");
    }
    let (incidents, count) = (live.store.incidents(), (granted.len() + completed.len()) as u64);
    assert_eq!((incidents.emptied, incidents.failed_over, incidents.restarted_unsynced), (0, 0, 0));
    soak.report(count, "acknowledged grants and outcomes, none lost");
}
