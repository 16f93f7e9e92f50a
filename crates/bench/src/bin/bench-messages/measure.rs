//! One measurement: everything is published, then consumed one way, then every effect is looked at.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onlyonce_bench::figures::as_float;
use onlyonce_bench::measured::{Measured, micros_each};
use onlyonce_bench::usage::{Usage, Used};
use onlyonce_bench::{facts, machine};
use onlyonce_core::Store;
use onlyonce_inbox::Marks;
use onlyonce_store_embedded::EmbeddedStore;
use onlyonce_store_redis::RedisStore;
use onlyonce_testkit::servers::{PostgresServer, RedisOptions, RedisServer};

use crate::Result;
use crate::broker::Broker;
use crate::effects::{Counted, Had, TABLE};
use crate::load::Load;
use crate::pair::{Pair, Way};
use crate::timed::{Stage, Timed};
use crate::{naive, ours};

/// More than any sound measurement takes: past it something hangs.
const TAKES_MAX: Duration = Duration::from_mins(5);
/// As `PostgreSQL` is shipped.
const SETTINGS: [&str; 1] = ["shared_buffers=128MB"];

/// What was measured of one way.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) pair: Pair,
    pub(crate) way: Way,
    /// From 0.
    pub(crate) round: u32,
    pub(crate) measured: Measured,
}

impl AsRef<Measured> for Measurement {
    fn as_ref(&self) -> &Measured {
        &self.measured
    }
}

/// Where the marks are kept.
pub(crate) enum Place {
    Postgres(PostgresServer),
    Redis(RedisServer),
    Folder,
}

impl Place {
    pub(crate) fn start(pair: Pair) -> Result<Self> {
        Ok(match pair {
            Pair::KafkaPostgres => Self::Postgres(PostgresServer::start(&SETTINGS)?),
            Pair::NatsRedis => Self::Redis(RedisServer::start(RedisOptions::default())?),
            Pair::StreamsEmbedded => Self::Folder,
        })
    }

    pub(crate) fn facts(&self) -> Result<String> {
        match self {
            Self::Postgres(server) => facts::postgres(&server.url()),
            Self::Redis(server) => Ok(format!("Store: {}", facts::redis(server)?)),
            Self::Folder => Ok("The embedded store syncs every answer".to_owned()),
        }
    }

    /// Where a server keeps its files.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Postgres(server) => Some(server.folder()),
            Self::Redis(server) => Some(server.folder()),
            Self::Folder => None,
        }
    }

    /// Every process of ours.
    fn processes(&self) -> Vec<u32> {
        let mut processes = machine::own_children();
        if let Self::Postgres(server) = self {
            processes.extend(server.id().filter(|id| !processes.contains(id)));
        }
        processes
    }
}

/// Publishes, consumes and checks.
pub(crate) async fn measure(
    (broker, place): (&Broker, &Place),
    (way, topic): (Way, &'static str),
    load: Load,
    bounds: (usize, usize),
    folder: &Path,
) -> Result<Measured> {
    broker.fill(topic, load).await?;
    let timed = Arc::new(Timed::new(broker.open(topic).await?, load.messages));
    let effects = Counted::default();
    let watched = async {
        timed.reached(Stage::Delivering).await;
        let before = Used::now(place.processes());
        timed.reached(Stage::Over).await;
        // Before anything is closed: a server forgets what its ended processes used.
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Used::now(place.processes())?.since(before?))
    };
    let mut usage = None;
    let over = async {
        usage = tokio::time::timeout(TAKES_MAX, watched).await.ok();
    };
    let source = Arc::clone(&timed);
    match (place, way) {
        (Place::Postgres(server), _) => {
            let mut client = ours::connect(&server.url()).await?;
            let tables = Marks::new("public")?.migration();
            client
                .batch_execute(&format!("DROP TABLE IF EXISTS processed_events, effects; {tables}; {TABLE}"))
                .await?;
            match way {
                Way::Ours => ours::batches(source, server.url(), bounds, over).await?,
                Way::Naive => naive::postgres(&*source, &mut client, over).await?,
            }
            return judged(&timed, Had::in_table(&client).await?, load, usage);
        }
        (Place::Redis(server), Way::Naive) => naive::redis(&*source, &server.url(), &effects, over).await?,
        (Place::Redis(server), Way::Ours) => {
            server.flush();
            let store = RedisStore::connect(&server.url(), onlyonce_store_redis::Options::default()).await?;
            ours::consumer(source, Arc::new(store), effects.clone(), over).await?;
        }
        (Place::Folder, _) => {
            let store = EmbeddedStore::open(folder, onlyonce_store_embedded::Options::default())?;
            match way {
                Way::Ours => {
                    let store: Arc<dyn Store> = Arc::new(store);
                    ours::consumer(source, store, effects.clone(), over).await?;
                }
                Way::Naive => naive::store(&*source, &store, &effects, over).await?,
            }
        }
    }
    judged(&timed, effects.had(), load, usage)
}

fn judged(timed: &Timed, had: Had, load: Load, usage: Option<Result<Usage>>) -> Result<Measured> {
    let usage = usage.transpose()?;
    let mut faults: Vec<String> = had.fault(load.distinct()).into_iter().collect();
    let (Some(took), Some(usage)) = (timed.took(), usage) else {
        faults.push(format!("{} of {} acknowledged in time", timed.acknowledged(), load.messages));
        return Ok(Measured { faults, ..Measured::default() });
    };
    Ok(Measured {
        requests: load.messages,
        requests_per_second: as_float(load.messages) / took.as_secs_f64(),
        processor_micros: micros_each(usage.by_us, load.messages),
        busy: usage.by_us.as_secs_f64() / usage.time.as_secs_f64(),
        foreign: usage.foreign,
        faults,
        ..Measured::default()
    })
}
