//! Callers that each claim a new key and complete it, again and again: the same for every engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onlyonce_bench::figures::{as_float, per_mille};
use onlyonce_bench::usage::Used;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::Result;
use crate::engine::Engine;
use crate::pair::Pair;

/// Callers share two threads, as the requests of a server on a small machine do.
pub(crate) const THREADS: usize = 2;

/// How long a level runs before it is measured, unless the window is shorter than that.
const WARM_UP: Duration = Duration::from_secs(1);

/// What so many callers got done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Level {
    pub(crate) callers: usize,
    /// Every pair that was completed, measured or not: so many more records must be stored.
    pub(crate) pairs: u64,
    pub(crate) pairs_per_second: f64,
    /// The processor time of a pair: callers, engine and server. Steadier than all other figures on a busy machine.
    pub(crate) processor_micros: f64,
    /// Which share of the processors others used meanwhile. With much of it the rest means little.
    pub(crate) foreign: f64,
    pub(crate) claim: Latency,
    pub(crate) complete: Latency,
}

/// How long a command took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u32,
    pub(crate) p99: u32,
    pub(crate) p999: u32,
}

/// When a level is measured.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    end: Instant,
}

/// What one caller did.
#[derive(Debug, Default)]
struct Tally {
    pairs: u64,
    measured: u64,
    claims: Vec<u32>,
    completes: Vec<u32>,
}

/// Lets `callers` work for `window` after a warm-up. Takes the numbers of their pairs from `numbers`.
pub(crate) async fn measure(
    engine: &Arc<dyn Engine>,
    callers: usize,
    window: Duration,
    numbers: &Arc<AtomicU64>,
) -> Result<Level> {
    let before = Used::now(engine.server())?;
    let start = Instant::now() + WARM_UP.min(window);
    let times = Window { start, end: start + window };
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        tasks.spawn(call(Arc::clone(engine), Arc::clone(numbers), times));
    }
    let mut total = Tally::default();
    while let Some(tally) = tasks.join_next().await {
        let tally = tally??;
        total.pairs += tally.pairs;
        total.measured += tally.measured;
        total.claims.extend(tally.claims);
        total.completes.extend(tally.completes);
    }
    let usage = Used::now(engine.server())?.since(before);
    Ok(Level {
        callers,
        pairs: total.pairs,
        pairs_per_second: as_float(total.measured) / window.as_secs_f64(),
        processor_micros: usage.by_us.as_secs_f64() * 1e6 / as_float(total.pairs.max(1)),
        foreign: usage.foreign,
        claim: Latency::of(total.claims),
        complete: Latency::of(total.completes),
    })
}

async fn call(engine: Arc<dyn Engine>, numbers: Arc<AtomicU64>, times: Window) -> Result<Tally> {
    let mut tally = Tally::default();
    loop {
        let pair = Pair::new(numbers.fetch_add(1, Ordering::Relaxed));
        let begun = Instant::now();
        let fence = engine.claim(&pair).await?.ok_or("a new key was not granted")?;
        let claimed = Instant::now();
        engine.complete(&pair, fence).await?;
        let completed = Instant::now();
        tally.pairs += 1;
        tally.measured += u64::from(completed >= times.start && completed < times.end);
        if begun >= times.start && begun < times.end {
            tally.claims.push(micros(claimed - begun));
            tally.completes.push(micros(completed - claimed));
        }
        if completed >= times.end {
            return Ok(tally);
        }
    }
}

fn micros(took: Duration) -> u32 {
    u32::try_from(took.as_micros()).unwrap_or(u32::MAX)
}

impl Latency {
    fn of(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        Self { p50: per_mille(&all, 500), p99: per_mille(&all, 990), p999: per_mille(&all, 999) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let latency = Latency::of((0..10_000).rev().collect());
        assert_eq!(latency, Latency { p50: 5000, p99: 9900, p999: 9990 });
        assert_eq!(Latency::of(Vec::new()), Latency::default());
        assert_eq!(Latency::of(vec![7]), Latency { p50: 7, p99: 7, p999: 7 });
    }
}
