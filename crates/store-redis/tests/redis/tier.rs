//! Redis as the cache tier: what it answers, and that nothing it loses or garbles is missed.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::tier::{Known, Look, Tier as _};
use onlyonce_core::transition::{Claim, ClaimAnswer, Erase, Renew};
use onlyonce_core::{Lease, MemoryStore, RecordId, Store, StoreErrorKind, SystemClock, Tiered};
use onlyonce_store_redis::{Options, RedisTier};
use onlyonce_testkit::run;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use redis::Commands as _;

use crate::stage::{Home, by_another, complete_one, fresh_claim, raw, token_of, until};

/// Two processes over one authority and one tier.
struct Stage {
    // ORDER: what is connected goes before the runtime of its connections, and both before the server.
    here: Process,
    there: Process,
    _home: Home,
    server: RedisServer,
}

struct Process {
    store: Arc<Tiered>,
    tier: RedisTier,
}

impl Stage {
    /// With more patience than a busy machine needs.
    async fn new() -> Self {
        Self::with(patient()).await
    }

    async fn with(options: Options) -> Self {
        let server = as_a_tier();
        let home = Home::new();
        let authority: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let here = process(&home, &server, &authority, &options).await;
        let there = process(&home, &server, &authority, &options).await;
        Self { here, there, _home: home, server }
    }

    /// Claims and completes a new record here, and waits until the tier has it.
    async fn completed(&self) -> Claim {
        let claim = complete_one(&*self.here.store).await;
        until("the tier has it", async || {
            // A busy machine may have been too slow to tell it the first time; who reads it tells it again.
            replay(&self.here, &claim).await;
            self.known(&claim.id).await.is_some()
        })
        .await;
        claim
    }

    async fn until_known(&self, id: &RecordId) {
        until("the tier has it", async || self.known(id).await.is_some()).await;
    }

    async fn known(&self, id: &RecordId) -> Option<Known> {
        match self.there.tier.get(id) {
            Look::Seen(known) => known,
            Look::Coming(known) => known.await,
        }
    }
}

/// As a cache is set up: it may evict, and it keeps nothing.
fn as_a_tier() -> RedisServer {
    let options = RedisOptions::without_persistence().with("maxmemory-policy", "allkeys-lru");
    RedisServer::start(options).expect("a server")
}

fn patient() -> Options {
    Options { look_within: Duration::from_secs(30), ..Options::default() }
}

async fn process(
    home: &Home,
    server: &RedisServer,
    authority: &Arc<dyn Store>,
    options: &Options,
) -> Process {
    let (url, options) = (server.url(), options.clone());
    let tier = home.run(async move { RedisTier::connect(&url, &options).await }).await;
    let tier = tier.expect("a tier");
    let clock = Arc::new(SystemClock::new());
    Process { store: Arc::new(Tiered::new(Arc::clone(authority), Arc::new(tier.clone()), clock)), tier }
}

fn key_of(id: &RecordId) -> Vec<u8> {
    [b"onlyonce:tier:", &id.as_bytes()[..]].concat()
}

async fn replay(process: &Process, claim: &Claim) -> onlyonce_core::transition::Replay {
    match process.store.claim(&by_another(claim)).await.expect("an answer") {
        ClaimAnswer::Replay(replay) => replay,
        other => panic!("expected a replay, got {other:?}"),
    }
}

#[test]
fn a_completion_is_replayed_elsewhere_without_the_authority() {
    run(async {
        let stage = Stage::new().await;
        let claim = stage.completed().await;
        let before = stage.there.store.figures();
        let replay = replay(&stage.there, &claim).await;
        let retention = claim.terms.retention.get();
        assert_eq!(stage.there.store.figures().asked, before.asked);
        assert!(replay.age + replay.left <= retention, "never believed longer than it is kept");
        let expiry: i64 = raw(&stage.server.url()).pttl(key_of(&claim.id)).expect("an expiry");
        assert!(expiry > 0, "nothing stays for ever");
    });
}

#[test]
fn a_flush_costs_a_way_to_the_authority_and_no_more() {
    run(async {
        let stage = Stage::new().await;
        let claim = stage.completed().await;
        stage.server.flush();
        replay(&stage.there, &claim).await;
        stage.until_known(&claim.id).await;
        let before = stage.here.store.figures();
        replay(&stage.here, &claim).await;
        assert_eq!(stage.here.store.figures().asked, before.asked, "filled again by who read it");
    });
}

#[test]
fn an_erased_body_cannot_come_back() {
    run(async {
        let stage = Stage::new().await;
        let claim = stage.completed().await;
        let read_before = stage.known(&claim.id).await.expect("known");
        stage.there.store.erase(&Erase { id: claim.id }).await.expect("erased");
        // Whoever read it before the erasure puts it only now. The next put goes the same way, so when that one is
        // there, this one was refused.
        stage.here.tier.put(&claim.id, read_before);
        let next = fresh_claim();
        let token = token_of(&next, &stage.here.store.claim(&next).await.expect("a claim"));
        let renew = Renew { token, lease: Lease::DEFAULT };
        stage.here.store.renew(&renew).await.expect("renewed");
        stage.until_known(&next.id).await;
        assert!(replay(&stage.here, &claim).await.outcome.is_erased());
        assert!(replay(&stage.there, &claim).await.outcome.is_erased());
        let kept: Vec<u8> = raw(&stage.server.url()).get(key_of(&claim.id)).expect("a key");
        assert_eq!(kept, [0], "nothing may be put here for a while");
    });
}

#[test]
fn an_erasure_that_the_tier_did_not_hear_of_is_an_error() {
    run(async {
        let stage = Stage::new().await;
        let claim = stage.completed().await;
        stage.server.kill();
        let error = stage.here.store.erase(&Erase { id: claim.id }).await.expect_err("the tier is away");
        assert!(error.is_retryable() && error.kind() == StoreErrorKind::Unavailable, "{error:?}");
    });
}

/// Whoever asked the authority fills the tier again.
async fn replay_from_the_authority(stage: &Stage, claim: &Claim) {
    let before = stage.there.store.figures();
    replay(&stage.there, claim).await;
    assert_eq!(stage.there.store.figures().asked, before.asked + 1);
    stage.until_known(&claim.id).await;
}

#[test]
fn what_cannot_be_read_is_asked_of_the_authority() {
    run(async {
        let stage = Stage::new().await;
        let claim = stage.completed().await;
        let other = stage.completed().await;
        let mut connection = raw(&stage.server.url());
        let mut bytes: Vec<u8> = connection.get(key_of(&claim.id)).expect("bytes");
        let whole = bytes.clone();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        // Damaged, of a version to come, empty, and under another's key.
        for garbage in [&bytes[..], &[9, 1, 2], b"", &whole[..9]] {
            connection.set_ex::<_, _, ()>(key_of(&claim.id), garbage, 60).expect("set");
            replay_from_the_authority(&stage, &claim).await;
        }
        connection.set_ex::<_, _, ()>(key_of(&other.id), &whole, 60).expect("set");
        replay_from_the_authority(&stage, &other).await;
        connection.set::<_, _, ()>(key_of(&claim.id), &whole).expect("set");
        replay_from_the_authority(&stage, &claim).await;
        connection.rpush::<_, _, ()>("a list", 1).expect("push");
        connection.rename::<_, _, ()>("a list", key_of(&other.id)).expect("rename");
        let before = stage.there.store.figures();
        replay(&stage.there, &other).await;
        assert_eq!(stage.there.store.figures().asked, before.asked + 1);
        assert!(!stage.there.tier.is_away(), "one key that cannot be read is one key");
    });
}

#[test]
fn a_tier_that_is_away_holds_nobody_up_and_comes_back() {
    run(async {
        let stage = Stage::with(Options::default()).await;
        let claim = stage.completed().await;
        stage.server.pause();
        // The first to notice waits a moment; then nobody does.
        replay(&stage.there, &claim).await;
        assert!(stage.there.tier.is_away());
        let looks = (0..200).filter(|_| matches!(stage.there.tier.get(&claim.id), Look::Seen(None)));
        assert!(looks.count() > 0, "nobody is sent to a tier that rests");
        stage.server.resume();
        until("the tier is back", async || {
            replay(&stage.there, &claim).await;
            !stage.there.tier.is_away()
        })
        .await;
        assert!(stage.there.tier.failures() > 0);
        stage.server.kill();
        complete_one(&*stage.here.store).await;
        stage.server.restart().expect("the server starts again");
        until("the tier is back", async || {
            replay(&stage.there, &claim).await;
            !stage.there.tier.is_away() && stage.known(&claim.id).await.is_some()
        })
        .await;
    });
}

#[test]
fn a_server_that_is_not_there_only_warns_and_a_wrong_url_is_refused() {
    run(async {
        let home = Home::new();
        let nobody = home
            .run(async { RedisTier::connect("redis://127.0.0.1:9", &Options::default()).await })
            .await
            .expect("only warns");
        assert!(nobody.is_away());
        for wrong in ["redis-cluster://127.0.0.1:1", "redis-sentinel://a/b", "http://a", "redis://"] {
            let refused =
                home.run(async move { RedisTier::connect(wrong, &Options::default()).await.err() }).await;
            assert_eq!(refused.expect(wrong).kind(), StoreErrorKind::Misuse, "{wrong}");
        }
    });
}
