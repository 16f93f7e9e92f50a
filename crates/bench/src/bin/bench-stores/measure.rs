//! One measurement: load on one subject for a while, and what it cost it and the servers behind it.

use onlyonce_bench::figures::as_float;
use onlyonce_bench::measured::{self, Measured, Under, WARM_UP, micros_each, runs, window};
use onlyonce_bench::wrk::{Load, Mode, Wrk};

use crate::Result;
use crate::counts::Counts;
use crate::servers::{Servers, Spent};
use crate::subject::Subject;

/// How often there is a warm-up before replays, at most: a slow peer needs several until all keys are completed.
const FILL_MAX: u32 = 60;

/// How often the servers are asked whether something is still under way, at most.
const SETTLE_MAX: u32 = 100;
/// What a sweep through Redis begins with, and how often it is counted again because of one.
const SWEEP: &str = "scan";
const AGAIN_MAX: u32 = 10;

/// What was measured, and of what.
pub(crate) type Measurement = measured::Measurement<Subject, Asked>;

/// What the servers behind it did meanwhile; nothing of one that it does not use.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) redis: Option<Behind>,
    pub(crate) postgres: Option<Behind>,
    /// Everything that the servers counted, for each request.
    pub(crate) counted: String,
}

/// What a request cost a server behind the subject.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Behind {
    pub(crate) processor_micros: f64,
    /// Round trips, counted by item.
    pub(crate) trips: f64,
    /// Calls: several items may travel in one.
    pub(crate) calls: f64,
}

/// Puts `load` on a subject, after a warm-up.
pub(crate) fn measure(
    subject: Subject,
    under: &mut Under<'_>,
    servers: &Servers,
    wrk: &mut Wrk,
    load: Load,
    round: u32,
) -> Result<Measurement> {
    warm_up(under, wrk, load)?;
    let (measured, spent, mut tally) = counted(subject, under, servers, wrk, load)?;
    for _ in 0..AGAIN_MAX {
        // The sweeper looks at every record, in round trips that are not those of requests.
        if tally.counts.of(&[SWEEP]) == 0 {
            break;
        }
        if load.mode == Mode::Fresh {
            wrk.renew();
        }
        tally = counted(subject, under, servers, wrk, Load { time: WARM_UP, ..load })?.2;
    }
    let Tally { counts, keys } = tally;
    let each = |count: u64| as_float(count) / as_float(keys.max(1));
    let asked = each(counts.of(subject.asks()));
    let micros = |spent| micros_each(spent, measured.requests);
    let redis = subject.uses_redis().then(|| Behind {
        processor_micros: micros(spent.redis),
        trips: asked,
        calls: asked,
    });
    let postgres = subject.uses_postgres().then(|| Behind {
        processor_micros: micros(spent.postgres),
        trips: each(counts.items),
        calls: each(counts.calls),
    });
    let more = Asked { redis, postgres, counted: counts.shown(subject.asks(), keys) };
    let Load { mode, connections, .. } = load;
    Ok(Measurement { subject, mode, connections, round, measured, more })
}

/// What the servers were asked, and for how many keys.
struct Tally {
    counts: Counts,
    keys: u64,
}

/// Puts `load` on a subject that is warm, between two readings of what its servers used and were asked. The readings are
/// taken when nothing is under way.
fn counted(
    subject: Subject,
    under: &mut Under<'_>,
    servers: &Servers,
    wrk: &Wrk,
    load: Load,
) -> Result<(Measured, Spent, Tally)> {
    let before = settled(servers, subject)?;
    let (ran, spent) = (runs(under.counter)?, servers.spent()?);
    let measured = window(under, wrk, load)?;
    let spent = servers.spent()?.since(spent);
    let counts = settled(servers, subject)?.since(&before);
    // Some of the work is under way when wrk stops: wrk does not count it, but it runs.
    let ran = runs(under.counter)?.saturating_sub(ran);
    let keys = if load.mode == Mode::Fresh { ran } else { measured.requests };
    Ok((measured, spent, Tally { counts, keys }))
}

/// What the servers were asked, once they are asked no more.
fn settled(servers: &Servers, subject: Subject) -> Result<Counts> {
    let mut counts = servers.counts(subject)?;
    for _ in 0..SETTLE_MAX {
        let now = servers.counts(subject)?;
        let asked = now.since(&counts);
        counts = now;
        if asked.of(subject.asks()) == 0 && asked.items == 0 {
            break;
        }
    }
    Ok(counts)
}

/// Fresh keys run once; replays until a warm-up has run nothing any more.
fn warm_up(under: &Under<'_>, wrk: &mut Wrk, load: Load) -> Result<()> {
    wrk.renew();
    let load = Load { time: WARM_UP, ..load };
    if load.mode != Mode::Replay {
        wrk.run(load, under.server.address())?;
        wrk.renew();
        return Ok(());
    }
    for _ in 0..FILL_MAX {
        let before = runs(under.counter)?;
        wrk.run(load, under.server.address())?;
        if runs(under.counter)? == before {
            break;
        }
    }
    Ok(())
}
