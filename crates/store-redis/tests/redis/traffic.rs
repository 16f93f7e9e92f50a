//! How often the server is asked: two round trips for a fresh key, one for a replay, by its own count.

use onlyonce_core::Store;
use onlyonce_core::transition::ClaimAnswer;
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};

use crate::stage::{Live, by_another, complete_one, patient};

/// How often the server ran scripts, and how often it was asked about itself: each look does both once.
pub(crate) fn counts(server: &RedisServer) -> (i64, i64) {
    let stats = server.ask(&["INFO", "commandstats"]).expect("INFO");
    let calls = |name: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":calls="));
        line.and_then(|line| line.split(',').next()?.parse::<i64>().ok()).unwrap_or_default()
    };
    (calls("cmdstat_evalsha"), calls("cmdstat_info"))
}

#[test]
fn a_fresh_key_takes_two_round_trips_and_a_replay_one() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let before = counts(&live.server);
        let mut done = Vec::new();
        for _ in 0..200 {
            done.push(complete_one(&*live.store).await);
        }
        let between = counts(&live.server);
        let asked = between.0 - before.0;
        let looks = between.1 - before.1;
        assert!((400..=400 + looks).contains(&asked), "{asked} scripts and {looks} looks for 200 fresh keys");
        for claim in &done {
            let replay = live.store.claim(&by_another(claim)).await.expect("an answer");
            assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");
        }
        let after = counts(&live.server);
        let (asked, looks) = (after.0 - between.0, after.1 - between.1);
        assert!((200..=200 + looks).contains(&asked), "{asked} scripts and {looks} looks for 200 replays");
    });
}

#[test]
fn only_what_is_over_has_an_expiry_and_it_outlives_the_record() {
    run(async {
        let live = Live::new(RedisOptions::default(), patient()).await;
        let mut connection = crate::stage::raw(&live.server.url());
        let mut left = |id: &onlyonce_core::RecordId| -> i64 {
            redis::cmd("PTTL").arg(crate::stage::key_of(id)).query(&mut connection).expect("PTTL")
        };
        let running = crate::stage::fresh_claim();
        let token = crate::stage::token_of(&running, &live.store.claim(&running).await.expect("a grant"));
        assert_eq!(left(&running.id), -1, "in flight");
        live.store.abandon(&onlyonce_core::transition::Abandon { token }).await.expect("abandoned");
        assert_eq!(left(&running.id), -1, "unknown");
        let released = crate::stage::fresh_claim();
        let token = crate::stage::token_of(&released, &live.store.claim(&released).await.expect("a grant"));
        let release = onlyonce_core::transition::Release { token, keep_fingerprint: true };
        live.store.release(&release).await.expect("released");
        assert!(left(&released.id) > 0, "released");
        live.store.claim(&by_another(&released)).await.expect("a grant");
        assert_eq!(left(&released.id), -1, "in flight again");
        let done = complete_one(&*live.store).await;
        let retention = i64::try_from(done.terms.retention.get().as_millis()).expect("milliseconds");
        assert!(left(&done.id) > retention, "completed: {} of {retention}", left(&done.id));
    });
}
