//! One store: filled, left to expire, and swept in turns under the same load; then everything is looked at.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use onlyonce_bench::figures::{milliseconds, rounded, thousands};
use onlyonce_bench::usage::Used;
use onlyonce_core::store::SweepBudget;
use onlyonce_core::sweeper::{Plan, Sweeper};
use onlyonce_core::{Engine, RecordId, Store};
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::arguments::Arguments;
use crate::batches::{Batches, Counted};
use crate::load::{Load, Seen};
use crate::place::{Kind, Place};
use crate::stock::Stock;
use crate::waits::Waits;

/// How long there is load before it counts.
const WARM_UP: Duration = Duration::from_secs(2);
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How often it is looked for the end of the sweep.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many turns long each sweep is after the turns that were asked for, when there is more to sweep: there are still turns
/// without one in between, because what the server does now and then (a checkpoint, a vacuum) must count for both.
const LONG_TURNS: u32 = 6;
/// A sweep in which nothing goes for so long hangs.
const HANGS_AFTER: Duration = Duration::from_mins(5);

/// What was measured of one store.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) kind: Kind,
    pub(crate) records: u64,
    pub(crate) live: u64,
    pub(crate) idle: Seen,
    pub(crate) sweeping: Seen,
    /// What 99 % did not exceed in each turn without a sweep and with one, in microseconds.
    pub(crate) turns: [Vec<u32>; 2],
    pub(crate) swept_in: Duration,
    pub(crate) counted: Counted,
    /// How long anybody waited for another transaction at the most, with and without a sweep; `None` where there are none.
    pub(crate) waited: Option<Duration>,
    /// Which share of the processors others used meanwhile.
    pub(crate) foreign: f64,
    pub(crate) faults: Vec<String>,
}

/// Fills, measures and checks.
pub(crate) async fn measure(
    arguments: &Arguments,
    kind: Kind,
    place: &Place,
    folder: &Path,
) -> Result<Measurement> {
    let store = place.open(folder).await?;
    let stock = Stock { expiring: arguments.records(), live: arguments.live, kind: kind.expires() };
    stock.take_in(&store).await?;
    place.settle()?;
    let waits = match place.postgres() {
        Some(url) => Some(Waits::look(&url).await?),
        None => None,
    };
    let before = Used::now(place.processes())?;
    let mut turns = Turns::new(arguments, Arc::clone(&store)).await?;
    turns.all(arguments).await?;
    let foreign = Used::now(place.processes())?.since(before).foreign;
    let waited = waits.map(|waits| waits.longest()).transpose()?;
    let Turns { load, batches, idle, sweeping, turns, swept_in, .. } = turns;
    let counted = batches.now();
    let mut faults: Vec<_> =
        [&idle.faults, &sweeping.faults, &counted.faults].into_iter().flatten().cloned().collect();
    faults.truncate(10);
    if counted.removed < arguments.records() {
        faults.push(format!("{} of {} expired records went", counted.removed, arguments.records()));
    }
    if counted.largest > arguments.batch() {
        faults.push(format!("a batch of {} records", counted.largest));
    }
    let live: Vec<_> = stock.live_ids().chain(load.completed()).collect();
    let gone = gone(&store, &live).await?;
    if gone > 0 {
        faults.push(format!("{gone} of {} live records went", live.len()));
    }
    let (records, live) = (arguments.records(), live.len() as u64);
    Ok(Measurement { kind, records, live, idle, sweeping, turns, swept_in, counted, waited, foreign, faults })
}

/// How many of `ids` are not there.
async fn gone(store: &Arc<dyn Store>, ids: &[RecordId]) -> Result<usize> {
    eprintln!("  looking for {} records that must be there", thousands(ids.len() as u64));
    let mut gone = 0;
    for id in ids {
        gone += usize::from(store.lookup(id).await?.is_none());
    }
    Ok(gone)
}

/// Turns with and without a sweep.
struct Turns {
    engine: Engine,
    plan: Plan,
    load: Load,
    batches: Arc<Batches>,
    idle: Seen,
    sweeping: Seen,
    turns: [Vec<u32>; 2],
    swept_in: Duration,
}

impl Turns {
    async fn new(arguments: &Arguments, store: Arc<dyn Store>) -> Result<Self> {
        let batch = SweepBudget::new(arguments.batch())?;
        Ok(Self {
            engine: Engine::builder(Arc::clone(&store)).build().await?,
            // Each turn stands for election anew: it should not spend itself waiting for that.
            plan: Plan { batch, every: Duration::from_millis(100), ..Plan::default() },
            load: Load::new(store, arguments.rate),
            batches: Arc::default(),
            idle: Seen::default(),
            sweeping: Seen::default(),
            turns: Default::default(),
            swept_in: Duration::ZERO,
        })
    }

    async fn all(&mut self, arguments: &Arguments) -> Result<()> {
        for_a_while(&mut self.load, WARM_UP).await?;
        for turn in 1.. {
            let idle = for_a_while(&mut self.load, arguments.turn()).await?;
            eprintln!("  turn {turn} without a sweep: p99 {} ms", p99(&idle));
            self.turns[0].extend(idle.percentile(99.0));
            self.idle.add(idle);
            let turns = if turn <= arguments.turns() { 1 } else { LONG_TURNS };
            let before = self.batches.now().removed;
            self.sweep(arguments.turn() * turns, arguments.records()).await?;
            if self.is_over(arguments.records()) {
                break;
            }
            if turns == LONG_TURNS && self.batches.now().removed == before {
                return Err(format!("{before} of {} went, and no more", arguments.records()).into());
            }
        }
        Ok(())
    }

    fn is_over(&self, records: u64) -> bool {
        let counted = self.batches.now();
        counted.removed >= records && counted.is_over
    }

    /// A turn with a sweep, until it is over or nothing is left.
    async fn sweep(&mut self, most: Duration, records: u64) -> Result<()> {
        let stop = CancellationToken::new();
        let observer = Arc::<Batches>::clone(&self.batches);
        let sweeper = Sweeper::new(&self.engine, self.plan.clone()).observed_by(observer);
        let at_work = tokio::spawn(sweeper.run_until(stop.clone().cancelled_owned()));
        let begun = Instant::now();
        let ended = Arc::new(AtomicBool::new(false));
        let watching = self.watch(begun, most, records, &ended);
        // ORDER: made before the load is borrowed.
        let told = Arc::clone(&ended);
        let loading = self.load.run_until(move || told.load(Ordering::Relaxed));
        let (seen, watched) = tokio::join!(loading, watching);
        stop.cancel();
        at_work.await?;
        watched?;
        let seen = seen?;
        eprintln!("  with a sweep: p99 {} ms", p99(&seen));
        self.swept_in += begun.elapsed();
        self.turns[1].extend(seen.percentile(99.0));
        self.sweeping.add(seen);
        Ok(())
    }

    /// Tells how it goes, and when it is over.
    fn watch(
        &self,
        begun: Instant,
        most: Duration,
        records: u64,
        ended: &Arc<AtomicBool>,
    ) -> impl Future<Output = Result<()>> + use<> {
        let (batches, ended) = (Arc::clone(&self.batches), Arc::clone(ended));
        async move {
            let (mut told, mut moved) = (Instant::now(), (Instant::now(), batches.now().removed));
            let first = moved.1;
            let result = loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let counted = batches.now();
                if begun.elapsed() >= most || (counted.removed >= records && counted.is_over) {
                    break Ok(());
                }
                if counted.removed != moved.1 {
                    moved = (Instant::now(), counted.removed);
                } else if moved.0.elapsed() > HANGS_AFTER {
                    break Err(format!("{} of {records} went, and no more", counted.removed).into());
                }
                if told.elapsed() >= TELL_EVERY {
                    told = Instant::now();
                    let rate = onlyonce_bench::figures::as_float(counted.removed - first)
                        / begun.elapsed().as_secs_f64();
                    eprintln!(
                        "  {} of {} swept, {}/s, longest batch {} ms",
                        thousands(counted.removed),
                        thousands(records),
                        rounded(rate),
                        counted.longest.as_millis()
                    );
                }
            };
            ended.store(true, Ordering::Relaxed);
            result
        }
    }
}

async fn for_a_while(load: &mut Load, time: Duration) -> Result<Seen> {
    let begun = Instant::now();
    load.run_until(move || begun.elapsed() >= time).await
}

fn p99(seen: &Seen) -> String {
    seen.percentile(99.0)
        .map_or_else(|| "-".to_owned(), |micros| format!("{:.2}", milliseconds(micros.into())))
}
