//! Commands that meet: in one group, in a full memory, on a full disk, during a copy.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::{Abandon, ClaimAnswer, Complete, Erase, EraseAnswer, Release, Terms, Token};
use onlyonce_core::{Outcome, Secret, Store, StoreErrorKind, UnknownPolicy};
use onlyonce_store_embedded::{EmbeddedStore, Options};
use onlyonce_testkit::fixture::any_id;
use onlyonce_testkit::run;

use crate::disk::{Image, SimDisk};
use crate::stage::{DAY, Stage, claim, completed, done, granted, hold, kept};

const TRIES: usize = 20;

#[test]
fn a_record_completed_and_erased_at_once_can_be_read() {
    let stage = Stage::new();
    let store = stage.open();
    run(async {
        for _ in 0..TRIES {
            let id = any_id();
            let token = granted(&store, &claim(id, 1, hold())).await;
            store.release(&Release { token, keep_fingerprint: true }).await.unwrap();
            let (complete, erase) = (done(granted(&store, &claim(id, 2, hold())).await), Erase { id });
            let (completed, _) = tokio::join!(store.complete(&complete), store.erase(&erase));
            completed.unwrap();
            assert!(store.lookup(&id).await.unwrap().is_some());
        }
    });
}

#[test]
fn a_record_erased_and_completed_late_at_once_can_be_read() {
    let stage = Stage::new();
    let store = stage.open();
    run(async {
        for _ in 0..TRIES {
            let token = granted(&store, &claim(any_id(), 1, kept(DAY * 31))).await;
            store.abandon(&Abandon { token }).await.unwrap();
            let (complete, erase) = (done(token), Erase { id: token.id });
            let (_, completed) = tokio::join!(store.erase(&erase), store.complete(&complete));
            completed.unwrap();
            assert!(store.lookup(&token.id).await.unwrap().is_some());
        }
    });
}

/// Two claims of one new key, both of which saw that it was absent.
#[test]
fn a_key_that_two_callers_saw_absent_is_granted_to_one() {
    let stage = Stage::new();
    let store = Arc::new(stage.open());
    run(async {
        for _ in 0..200 {
            let id = any_id();
            let claims: Vec<_> = (1..=8).map(|number| claim(id, number, hold())).collect();
            // Each looks the key up when it is called; the committer sees them one after the other.
            let asked = claims.iter().map(|claim| store.claim(claim));
            let answers = futures_of(asked).await;
            let granted = answers.iter().filter(|answer| matches!(answer, ClaimAnswer::Granted(_))).count();
            assert_eq!(granted, 1, "{answers:?}");
        }
    });
}

async fn futures_of<F>(asked: impl Iterator<Item = F>) -> Vec<ClaimAnswer>
where
    F: Future<Output = Result<ClaimAnswer, onlyonce_core::StoreError>>,
{
    let mut asked: Vec<_> = asked.map(Box::pin).collect();
    let mut answers: Vec<Option<ClaimAnswer>> = asked.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (asked, answer) in asked.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let std::task::Poll::Ready(done) = asked.as_mut().poll(cx)
            {
                *answer = Some(done.unwrap());
            }
        }
        if answers.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Claims until the store takes no more.
async fn fill(store: &EmbeddedStore, terms: &Terms) -> Vec<Token> {
    let mut tokens = Vec::new();
    loop {
        let claims: Vec<_> = (0..500).map(|_| claim(any_id(), 1, terms.clone())).collect();
        for (claim, answer) in claims.iter().zip(store.claim_many(&claims).await.unwrap()) {
            match answer {
                Ok(ClaimAnswer::Granted(grant)) => {
                    tokens.push(Token { id: claim.id, owner: claim.owner, fence: grant.fence });
                }
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert_eq!(error.kind(), StoreErrorKind::Full);
                    return tokens;
                }
            }
        }
    }
}

#[test]
fn claims_are_taken_again_after_a_burst_has_filled_the_memory() {
    let mut stage = Stage::new();
    stage.options.memory_bytes_max = 1 << 20;
    let store = stage.open();
    run(async {
        for some in fill(&store, &hold()).await.chunks(500) {
            let completes: Vec<_> = some.iter().map(|token| done(*token)).collect();
            assert!(store.complete_many(&completes).await.unwrap().iter().all(Result::is_ok));
        }
        stage.clock.advance(Duration::from_hours(1));
        while store.sweep(SweepBudget::DEFAULT).await.unwrap().more {}
        let answer = store.claim(&claim(any_id(), 1, hold())).await;
        assert!(answer.is_ok(), "nothing is in flight, and claims are refused: {answer:?}");
    });
}

#[test]
fn an_erased_record_keeps_its_tombstone_where_filters_were_given_up() {
    let mut stage = Stage::new();
    stage.options.memory_bytes_max = 1 << 20;
    let store = stage.open();
    run(async {
        let erased = completed(&store, kept(DAY)).await;
        let other = granted(&store, &claim(any_id(), 1, kept(DAY * 7))).await;
        fill(&store, &kept(Duration::from_secs(30))).await;
        // Crowded: the segment of the longer class is closed, sealed, and loses its filter.
        store.complete(&done(other)).await.unwrap();
        let is_sealed = || {
            stage.disk.image().files.keys().any(|name| name.contains("-5-") && name.contains("segment.index"))
        };
        while !is_sealed() {
            std::thread::yield_now();
        }
        assert_eq!(store.erase(&Erase { id: erased }).await.unwrap(), EraseAnswer::Erased);
        drop(store);
        let answer = stage.open().claim(&claim(erased, 99, kept(DAY))).await;
        assert!(matches!(answer, Ok(ClaimAnswer::Replay(_))), "{answer:?}");
    });
}

#[test]
fn a_full_disk_gets_room_by_sweeping_also_while_runs_have_lapsed() {
    let mut stage = Stage::new();
    stage.options = Options { reserve_bytes: 32 << 10, segment_bytes_max: 4096, ..Options::default() };
    let store = stage.open();
    stage.disk.limit(Some(90 << 10));
    run(async {
        let short = || kept(Duration::from_secs(30));
        for _ in 0..100 {
            completed(&store, short()).await;
        }
        stage.clock.advance(Duration::from_secs(20));
        let mut granted = Vec::new();
        loop {
            let claim = claim(any_id(), 1, short());
            match store.claim(&claim).await {
                Ok(ClaimAnswer::Granted(grant)) => {
                    granted.push(Token { id: claim.id, owner: claim.owner, fence: grant.fence });
                }
                _ => break,
            }
        }
        // Completions take what is left, the reserve included.
        for token in granted {
            let outcome = Outcome::kept(7, vec![7; 900]);
            let complete = Complete { token, outcome, retention: None };
            if store.complete(&complete).await.is_err() && store.complete(&complete).await.is_err() {
                break;
            }
        }
        stage.clock.advance(Duration::from_hours(1));
        for _ in 0..20 {
            // On a full disk a sweep may do only a part, and says so.
            let _ = store.sweep(SweepBudget::DEFAULT).await;
            stage.clock.advance(Duration::from_mins(10));
        }
        let answer = store.claim(&claim(any_id(), 1, short())).await;
        assert!(answer.is_ok(), "all has expired, and the disk is still full: {answer:?}");
    });
}

#[test]
fn filling_ahead_takes_no_room_from_the_same_group() {
    let mut stage = Stage::new();
    stage.options.reserve_bytes = 0;
    let store = stage.open();
    // Two segments, each with a mark and a grant.
    stage.disk.limit(Some(stage.disk.image().bytes() + 2 * (9 + 349)));
    let claims = [claim(any_id(), 1, kept(Duration::from_secs(30))), claim(any_id(), 2, kept(DAY))];
    let answers = run(async { store.claim_many(&claims).await.unwrap() });
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn an_outcome_that_could_not_be_read_back_is_refused() {
    let stage = Stage::new();
    let store = stage.open();
    run(async {
        let token = granted(&store, &claim(any_id(), 1, hold())).await;
        let outcome = Outcome::kept(7, vec![7; 66 << 20]);
        let refused = store.complete(&Complete { token, outcome, retention: None }).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Misuse);
        store.complete(&done(token)).await.unwrap();
        drop(store);
        assert!(stage.open().claim(&claim(any_id(), 1, hold())).await.is_ok());
    });
}

#[test]
fn a_copy_is_not_spoilt_by_an_erasure() {
    let stage = Stage::new();
    let store = stage.open();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let ids = run(async {
        store.secret(&Secret::new([7; 32])).await.unwrap();
        [completed(&store, kept(Duration::from_secs(30))).await, completed(&store, kept(DAY)).await]
    });
    let mut refused = 0;
    store
        .backup(&copy, |_, _| {
            let erase = run(store.erase(&Erase { id: ids[1] }));
            refused += usize::from(erase.is_err_and(|error| error.kind() == StoreErrorKind::Unavailable));
        })
        .unwrap();
    assert!(refused > 0, "nothing was erased meanwhile");
    assert_eq!(run(store.erase(&Erase { id: ids[1] })).unwrap(), EraseAnswer::Erased);
    let files = std::fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap());
    let files =
        files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()));
    let disk = SimDisk::holding(Image { files: files.collect() });
    let copied = Stage { disk, ..stage };
    let opened = copied.open();
    run(async {
        let rerun = Terms { unknown: UnknownPolicy::Rerun, ..kept(DAY) };
        let answer = opened.claim(&claim(ids[1], 77, rerun)).await;
        assert!(matches!(answer, Ok(ClaimAnswer::Replay(_))), "{answer:?}");
    });
}
