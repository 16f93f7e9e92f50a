//! Processes killed at random instants: the broker, consumers, both at once, and one that is only stopped for longer than
//! its lease. Effects are rows in `PostgreSQL`, written in one transaction with their marks: none is lost, none is twice.
//!
//! The broker is tansu, in a process of its own, where there is one (`cargo xtask soak`); else krafka's fake broker, whose
//! connections break. The consumers are this very program, run again, which the broker knows by librdkafka; the producer is
//! krafka's.

use std::future::Future;
use std::os::unix::process::parent_id;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use krafka::admin::{CreateTopicsOptions, NewTopic};
use krafka::producer::Producer;
use krafka::testing::FakeBroker;
use krafka::{Kafka, Record};
use onlyonce_core::{Lease, SystemClock};
use onlyonce_inbox::consumer::message_policy;
use onlyonce_inbox::suite::{Database, Effect as _, Stops, connect};
use onlyonce_inbox::{Backoff, Consumer, OnShortRetention, Source};
use onlyonce_sources::{Options, open};
use onlyonce_testkit::Soak;
use onlyonce_testkit::servers::{PostgresServer, Process, TansuServer};
use rand::Rng as _;
use rand::rngs::SmallRng;

use crate::kafka::outstanding;
use crate::suites::postgres;

const SOURCE: &str = "ONLYONCE_TEST_SOURCE";
const DATABASE: &str = "ONLYONCE_TEST_DATABASE";
const PARTITIONS: i32 = 3;
/// After how long without a sign of life a member is dropped.
const SESSION_SECONDS: u64 = 6;
/// How many messages a round publishes, while somebody is killed.
const EACH: u64 = 30;
const LEASE: Duration = Duration::from_secs(3);
/// How long after the beginning of a round somebody is killed, and how long it stays away.
const KILLED_WITHIN_MS: u64 = 1000;
const AWAY_MS_MAX: u64 = 500;
/// How long a round may take on the most loaded machine.
const TAKES_MAX: Duration = Duration::from_mins(5);

enum Broker {
    Tansu(TansuServer),
    Fake(FakeBroker),
}

impl Broker {
    async fn start() -> Self {
        match TansuServer::program() {
            Some(program) => Self::Tansu(TansuServer::start(program).expect("a broker")),
            None => Self::Fake(FakeBroker::start().await.expect("a broker")),
        }
    }

    fn servers(&self) -> String {
        match self {
            Self::Tansu(server) => server.address(),
            Self::Fake(broker) => broker.bootstrap_servers(),
        }
    }

    /// How many members its groups can have: the fake broker's ends with the second.
    fn members(&self) -> usize {
        if matches!(self, Self::Tansu(_)) { 2 } else { 1 }
    }

    fn name(&self) -> &'static str {
        if matches!(self, Self::Tansu(_)) { "tansu" } else { "krafka's fake broker" }
    }

    fn kill(&self) {
        match self {
            Self::Tansu(server) => server.kill(),
            Self::Fake(broker) => broker.crash(0),
        }
    }

    fn restart(&self) {
        match self {
            Self::Tansu(server) => server.restart().expect("it starts again"),
            Self::Fake(broker) => broker.restart(0),
        }
    }
}

/// Consumes until it is killed. Not a test of its own: does nothing unless it was started as a worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker() {
    let (Ok(source), Ok(database)) = (std::env::var(SOURCE), std::env::var(DATABASE)) else { return };
    let parent = parent_id();
    let database = Database::at(&database, Arc::new(SystemClock::new()));
    let effect = database.effect().await;
    let handler = move |work| {
        let effect = effect.clone();
        async move { effect.handle(work, Stops::default()).await }
    };
    let policy = message_policy().attempts_max(1000).lease(Lease::new(LEASE).expect("a lease"));
    let backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };
    let consumer = Consumer::builder("soak", opened(&source).await.into(), database.store().await, handler)
        .policy(policy)
        .backoff(backoff)
        .on_short_retention(OnShortRetention::Warn)
        .build()
        .await
        .expect("a consumer");
    // On a line of its own: the test's name is on this one.
    eprintln!("\nconsuming");
    let orphaned = async move {
        while parent_id() == parent {
            // tidy: sleep because nobody tells when a parent ends
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    consumer.run(orphaned).await.expect("the source goes on");
}

/// The source, as soon as the broker is there.
async fn opened(url: &str) -> Box<dyn Source> {
    loop {
        match open(url, &Options::for_group("workers")).await {
            Ok(source) => return source,
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
}

/// What is killed, and counted.
struct Scene {
    broker: Broker,
    postgres: PostgresServer,
    consumers: Vec<Process>,
    producer: Arc<Producer>,
    killed: Killed,
}

#[derive(Default)]
struct Killed {
    brokers: u64,
    consumers: u64,
    stopped: u64,
}

impl Scene {
    async fn new() -> Self {
        let (broker, postgres) = (Broker::start().await, postgres().await);
        Database::new(&postgres.url(), Arc::new(SystemClock::new())).await;
        let kafka = Kafka::builder(broker.servers()).connect().await.expect("a client");
        let topics = [("orders", PARTITIONS), ("orders.dead-letter", 1)];
        let topics = topics.map(|(name, partitions)| NewTopic::new(name, partitions, 1).expect("a topic"));
        kafka.admin().create_topics(topics, CreateTopicsOptions::default()).await.expect("topics");
        let producer = Arc::new(kafka.producer().build().await.expect("a producer"));
        let mut scene = Self { broker, postgres, consumers: Vec::new(), producer, killed: Killed::default() };
        for _ in 0..scene.broker.members() {
            let consumer = scene.consumer().await;
            scene.consumers.push(consumer);
        }
        scene
    }

    /// One more process.
    async fn consumer(&self) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "kafka_soak::worker", "--nocapture"])
            .env(
                SOURCE,
                format!("kafka://{}/orders?session_seconds={SESSION_SECONDS}", self.broker.servers()),
            )
            .env(DATABASE, self.postgres.url());
        let starting =
            tokio::task::spawn_blocking(|| Process::start(command, |line| line.starts_with("consuming")));
        starting.await.expect("started").expect("a consumer")
    }

    /// Publishes this round's messages, while somebody is killed.
    async fn round(&mut self, seed: u64, mut chance: SmallRng) {
        let producer = Arc::clone(&self.producer);
        let publishing = tokio::spawn(async move {
            for number in 0..EACH {
                let name = format!("{seed}-{number}");
                let record = || Record::new("orders", name.clone()).header("event-id", name.clone());
                // A broker that was killed may have kept it all the same: then it is there twice.
                while producer.send(record()).await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
        pause(chance.random_range(0..KILLED_WITHIN_MS)).await;
        self.strike(&mut chance).await;
        self.within("publishing", publishing).await.expect("published");
    }

    async fn strike(&mut self, chance: &mut SmallRng) {
        let (victim, away) =
            (chance.random_range(0..self.consumers.len()), chance.random_range(0..AWAY_MS_MAX));
        let (kills_broker, kills_consumer) = match chance.random_range(0..7) {
            0..3 => (true, false),
            3..5 => (false, true),
            5 => (true, true),
            _ => {
                self.consumers[victim].pause();
                pause(u64::try_from(LEASE.as_millis()).expect("short") + away).await;
                self.consumers[victim].resume();
                self.killed.stopped += 1;
                return;
            }
        };
        if kills_broker {
            self.broker.kill();
            self.killed.brokers += 1;
        }
        if kills_consumer {
            self.consumers[victim].kill();
            self.killed.consumers += 1;
        }
        pause(away).await;
        if kills_broker {
            self.broker.restart();
        }
        if kills_consumer {
            if matches!(self.broker, Broker::Tansu(_)) {
                // It drops a member that fell silent, and what that one had goes to somebody only when the next one joins.
                pause(2 * 1000 * SESSION_SECONDS).await;
            }
            self.consumers[victim] = self.consumer().await;
        }
    }

    /// How many effects there are, and of how many messages.
    async fn effects(&self) -> (u64, u64) {
        let counting = "SELECT count(*), count(DISTINCT name) FROM effects";
        let client = connect(&self.postgres.url()).await;
        let counted = client.query_one(counting, &[]).await.expect("counts");
        let count = |at| u64::try_from(counted.get::<_, i64>(at)).expect("a count");
        (count(0), count(1))
    }

    /// Waits until everything that was published is finished.
    async fn finish(&self, published: u64) {
        let finished = async {
            while self.effects().await.1 < published || outstanding(&self.broker.servers()) > 0 {
                pause(200).await;
            }
        };
        self.within("finishing", finished).await;
    }

    /// Does `what`, and panics when it hangs, with what the consumers said last.
    async fn within<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let done = tokio::time::timeout(TAKES_MAX, work).await;
        let said = || self.consumers.iter().map(Process::last_lines).collect::<Vec<_>>();
        assert!(done.is_ok(), "{what} hangs: {:#?}", said());
        done.expect("it is done")
    }
}

async fn pause(milliseconds: u64) {
    // tidy: sleep because the instant of a kill is what is random, and processes tell nobody how far they are
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn brokers_and_consumers_killed_at_random_lose_nothing_and_repeat_nothing_soak() {
    let mut soak = Soak::new("kafka", 6);
    let mut scene = Scene::new().await;
    let mut published = 0;
    while let Some((seed, chance)) = soak.next_round() {
        scene.round(seed, chance).await;
        published += EACH;
    }
    scene.finish(published).await;
    let Killed { brokers, consumers, stopped } = scene.killed;
    scene.consumers.clear();
    let (effects, messages) = scene.effects().await;
    soak.report(
        published,
        &format!(
            "messages through {}: {} lost, {} effects too many; killed: {brokers} times the broker, {consumers} consumers; \
             {stopped} stopped past their lease",
            scene.broker.name(),
            published - messages,
            effects - messages
        ),
    );
    assert_eq!((messages, effects), (published, published), "each has its effect once");
}
