//! Two tiers: a fast check in Redis, the truth in `PostgreSQL`. Losing the first costs a round trip and nothing else.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::{Store, SystemClock, Tiered};
use onlyonce_inbox::suite::in_time;
use onlyonce_inbox::{Consumer, Handled, MemoryBroker, Work};
use onlyonce_store_postgres::{Options, PostgresStore};
use onlyonce_store_redis::RedisTier;
use onlyonce_testkit::servers::{RedisOptions, RedisServer};
use tokio::sync::oneshot;

use crate::stage::{EFFECT, Stage, block_on, message};

struct Tiers {
    stage: Stage,
    redis: RedisServer,
    tiered: Arc<Tiered>,
    broker: MemoryBroker,
}

impl Tiers {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let options = RedisOptions::without_persistence();
        let starting = tokio::task::spawn_blocking(|| RedisServer::start(options).expect("a private server"));
        let redis = starting.await.unwrap();
        let authority = PostgresStore::open(Options::from_url(&stage.server.url()).unwrap()).await.unwrap();
        // A loaded machine takes its time, and what comes late is not what is tested here.
        let look_within = Duration::from_secs(10);
        let patient = onlyonce_store_redis::Options { look_within, ..Default::default() };
        let tier = RedisTier::connect(&redis.url(), &patient).await.unwrap();
        let clock = Arc::new(SystemClock::new());
        let tiered = Arc::new(Tiered::new(Arc::new(authority), Arc::new(tier), clock));
        Self { stage, redis, tiered, broker: MemoryBroker::default() }
    }

    /// Publishes a message once more and waits until it is settled: how many claims the tier has answered for it.
    async fn deliver(&self, name: &str) -> u64 {
        let before = self.tiered.figures().answered;
        self.broker.publish(message(name));
        in_time("settling", self.broker.until(|broker| broker.unsettled() == 0)).await;
        self.tiered.figures().answered - before
    }

    /// Delivers it until the tier answers, which is told on a task of its own.
    async fn until_the_tier_answers(&self, name: &str) {
        in_time("the tier to learn", async { while self.deliver(name).await == 0 {} }).await;
    }
}

#[test]
fn duplicates_are_answered_by_redis_and_what_redis_lost_by_postgres_which_tells_redis_again() {
    block_on(async {
        let tiers = Tiers::new().await;
        let client = Arc::new(tiers.stage.client().await);
        let handler = move |work: Work| {
            let client = client.clone();
            async move {
                let name = String::from_utf8(work.message().body.to_vec()).unwrap();
                client.execute(EFFECT, &[&name]).await.unwrap();
                Handled::done()
            }
        };
        let store: Arc<dyn Store> = tiers.tiered.clone();
        let consumer = Consumer::builder("billing", Arc::new(tiers.broker.source()), store, handler);
        let consumer = consumer.build().await.unwrap();
        let (counts, (stop, stopped)) = (consumer.counts(), oneshot::channel::<()>());
        let running = tokio::spawn(consumer.run(async { drop(stopped.await) }));

        // New: nobody but the authority may say so.
        assert_eq!(tiers.deliver("a").await, 0);
        assert_eq!(counts.now().done, 1);
        // Learnt from the completion.
        tiers.until_the_tier_answers("a").await;
        let asked = tiers.tiered.figures().asked;
        assert_eq!(
            (tiers.deliver("a").await, tiers.tiered.figures().asked),
            (1, asked),
            "the fast path alone"
        );

        // Redis loses everything: the slow path knows, and the fast one learns it back.
        tiers.redis.flush();
        assert_eq!(tiers.deliver("a").await, 0, "the authority answers");
        tiers.until_the_tier_answers("a").await;

        // Redis is away: one is new and one is not, and both are told apart.
        tiers.redis.kill();
        assert_eq!((tiers.deliver("a").await, tiers.deliver("b").await), (0, 0));
        assert_eq!(tiers.deliver("b").await, 0);

        drop(stop);
        running.await.unwrap().unwrap();
        let tally = counts.now();
        assert_eq!((tally.done, tally.retried, tally.dead_lettered), (2, 0, 0));
        assert_eq!(tally.duplicates, tally.fetched - 2);
        assert_eq!((tiers.stage.effects("a").await, tiers.stage.effects("b").await), (1, 1));
    });
}
