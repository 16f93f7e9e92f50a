//! Three sweepers on one server, each with connections of its own: never two at once, whoever comes and goes.

use std::sync::Arc;
use std::time::Duration;

use onlyonce_core::store::SweepBudget;
use onlyonce_core::sweeper::{Plan, Sweeper};
use onlyonce_core::{Clock as _, Engine, Lease, Store, SystemClock, house};
use onlyonce_store_postgres::PostgresStore;
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};
use onlyonce_testkit::stock_id;
use tokio_util::sync::CancellationToken;

use crate::stage::{Begun, LOOK_EVERY, take_in, until};
use crate::watched::{Log, Note, Watched};

const EXPIRED: u64 = 3000;
const LIVE: u64 = 500;

async fn begin(store: Arc<dyn Store>, sweeper: usize, log: &Arc<Log>) -> Begun {
    let watched = Arc::new(Watched::new(store, sweeper, log));
    let engine = Engine::builder(watched.clone()).build().await.unwrap();
    let plan = Plan {
        every: LOOK_EVERY,
        batch: SweepBudget::new(100).unwrap(),
        pause: Duration::from_millis(1),
        // Longer than a loaded machine stalls: whoever has it keeps it until it is told to stop.
        lease: Lease::new(Duration::from_mins(2)).unwrap(),
        look_again: Some(LOOK_EVERY),
        ..Plan::default()
    };
    let sweeper = Sweeper::new(&engine, plan);
    let (sweeping, stop) = (sweeper.sweeping(), CancellationToken::new());
    let task = tokio::spawn(sweeper.run_until(stop.clone().cancelled_owned()));
    Begun { sweeping, watched, stop, task }
}

/// Each of three sweeps in turn while the others wait; then everything is accounted for.
async fn never_two_at_once(stores: [Arc<dyn Store>; 3], is_unknown: bool) {
    let (log, clock) = (Arc::new(Log::default()), SystemClock::new());
    let store = Arc::clone(&stores[0]);
    take_in(&*store, 0..LIVE, clock.now(), Duration::from_hours(1), false).await;
    let mut sweepers = Vec::new();
    for (number, store) in stores.into_iter().enumerate() {
        sweepers.push(begin(store, number, &log).await);
    }
    for round in 1..=3 {
        let first = round * 10_000;
        take_in(&*store, first..first + EXPIRED, clock.now(), Duration::from_millis(200), is_unknown).await;
        until(async || (house::count_callers(&*store).await.unwrap().records() <= LIVE).then_some(())).await;
        let elected = until(async || sweepers.iter().position(Begun::is_elected)).await;
        let Begun { stop, task, sweeping, .. } = sweepers.swap_remove(elected);
        stop.cancel();
        task.await.unwrap();
        assert_eq!(sweeping.now().failures, 0);
    }
    assert_eq!(log.most_at_once(), 1, "two swept at once");
    let mut holder = None;
    for note in log.notes() {
        match note {
            Note::Granted { sweeper, fence } => {
                assert!(holder.is_none_or(|(_, before)| before < fence), "{note:?} after {holder:?}");
                holder = Some((sweeper, fence));
            }
            Note::Swept { sweeper, touched, budget } => {
                assert_eq!(Some(sweeper), holder.map(|(holder, _)| holder), "swept without the grant");
                assert!(touched <= budget && budget <= 100, "{note:?}");
            }
            Note::Refused { .. } | Note::Renewed { .. } => {}
        }
    }
    for number in 0..LIVE {
        assert!(store.lookup(&stock_id(number)).await.unwrap().is_some(), "live record {number} went");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_sweepers_on_one_redis_never_sweep_at_once() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let connect = async || {
        let options = onlyonce_store_redis::Options {
            sweep_every: Duration::ZERO,
            timeout: Duration::from_secs(30),
            ..onlyonce_store_redis::Options::default()
        };
        let store: Arc<dyn Store> = Arc::new(RedisStore::connect(&server.url(), options).await.unwrap());
        store
    };
    // Completed records go with their keys: only unknown ones are left to the sweeper.
    never_two_at_once([connect().await, connect().await, connect().await], true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_sweepers_on_one_postgres_never_sweep_at_once() {
    let server = PostgresServer::start(&[]).unwrap();
    let options = onlyonce_store_postgres::Options::from_url(&server.url()).unwrap();
    onlyonce_store_postgres::migrate(&options).await.unwrap();
    let connect = async || {
        let store: Arc<dyn Store> = Arc::new(PostgresStore::open(options.clone()).await.unwrap());
        store
    };
    never_two_at_once([connect().await, connect().await, connect().await], false).await;
}
