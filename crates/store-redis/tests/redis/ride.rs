//! Sweeping rides along with calls that change records: each gets the answer that is its own.

use std::sync::atomic::{AtomicBool, Ordering};

use onlyonce_core::store::SweepBudget;
use onlyonce_core::transition::ClaimAnswer;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use onlyonce_testkit::{Fixture as _, ManualClock, run};

use crate::stage::{Moved, by_another, complete_one};

const EXPIRED: usize = 300;

#[test]
fn who_carries_a_sweep_is_answered_as_ever_and_everything_is_swept() {
    run(async {
        let server = RedisServer::start(RedisOptions::default()).expect("a server");
        let moved = Moved::on(server, ManualClock::default(), None).await;
        let store = moved.store();
        let mut last = complete_one(&*store).await;
        for _ in 1..EXPIRED {
            last = complete_one(&*store).await;
        }
        moved.advance(last.terms.retention.get()).await;
        let is_over = AtomicBool::new(false);
        let load = async || {
            let mut done = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                done.push(complete_one(&*store).await);
            }
            done
        };
        let sweep = async {
            let mut removed = 0;
            loop {
                let swept = store.sweep(SweepBudget::DEFAULT).await.expect("a sweep");
                removed += swept.removed;
                if !swept.more {
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
            removed
        };
        let (first, second, third, removed) = tokio::join!(load(), load(), load(), sweep);
        assert_eq!(removed, EXPIRED);
        let done = [first, second, third].concat();
        assert!(done.len() >= 3, "nobody came meanwhile");
        for claim in &done {
            let again = store.claim(&by_another(claim)).await.expect("an answer");
            assert!(matches!(again, ClaimAnswer::Replay(_)), "{again:?}");
        }
    });
}
