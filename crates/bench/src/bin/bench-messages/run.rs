//! The whole run: each pair in turn, both ways one after the other, the order changed each time.

use std::time::Instant;

use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::measured::{TRIES_MAX, all_sound, quietest};
use onlyonce_bench::workplace::Workplace;
use onlyonce_bench::{facts, machine};
use tokio::runtime::Runtime;

use crate::arguments::Arguments;
use crate::broker::Broker;
use crate::load::Load;
use crate::measure::{Measurement, Place, measure};
use crate::pair::{Pair, Way};
use crate::{Result, report, table};

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) conditions: Conditions,
    pub(crate) messages: [u64; 2],
    pub(crate) bounds: (usize, usize),
    /// What the servers are.
    pub(crate) servers: Vec<String>,
    pub(crate) measurements: Vec<Measurement>,
}

/// Runs everything and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (begun, load_before) = (Instant::now(), machine::load());
    let workplace = Workplace::take(&arguments.folder)?;
    if !arguments.any_disk {
        workplace.check_disk()?;
    }
    let mut results = Results {
        messages: Way::ALL.map(|way| arguments.messages(way)),
        bounds: arguments.bounds(),
        ..Results::default()
    };
    for round in 0..arguments.rounds() {
        for (at, pair) in Pair::ALL.into_iter().enumerate().filter(|(_, pair)| arguments.has(*pair)) {
            let mut ways = Way::ALL;
            // Nobody is always first.
            if (at + usize::try_from(round)?) % 2 == 1 {
                ways.reverse();
            }
            for way in ways {
                let name = pair.way(way);
                eprintln!("round {}: {}: {name}", round + 1, pair.name());
                let tries = if arguments.quick { 1 } else { TRIES_MAX };
                let one = quietest(tries, || {
                    once(arguments, &workplace, (pair, way), round, &mut results.servers)
                })?;
                eprintln!("  {:.0} messages/s", one.measured.requests_per_second);
                results.measurements.push(one);
            }
        }
    }
    results.conditions = Conditions {
        rounds: arguments.rounds(),
        file_system: workplace.file_system()?,
        load_before,
        took: begun.elapsed(),
        ..Conditions::default()
    };
    println!("{}", table::all(&results));
    if let Some(file) = &arguments.json {
        onlyonce_bench::report::write(&report::value(&results), file)?;
    }
    all_sound(&results.measurements)
}

/// One measurement on servers of its own, which end with it.
fn once(
    arguments: &Arguments,
    workplace: &Workplace,
    (pair, way): (Pair, Way),
    round: u32,
    told: &mut Vec<String>,
) -> Result<Measurement> {
    // ORDER: the runtime ends before the servers do.
    let (broker, place) = (Broker::start(pair)?, Place::start(pair)?);
    let runtime = Runtime::new()?;
    if let Some(folder) = place.folder().filter(|_| !arguments.any_disk) {
        machine::check_disk(folder)?;
    }
    facts::remember(told, [broker.facts()?, place.facts()?]);
    let folder = workplace.folder("store")?;
    let load = Load { messages: arguments.messages(way) };
    let measuring = measure((&broker, &place), (way, way.topic()), load, arguments.bounds(), &folder);
    let measured = runtime.block_on(measuring);
    drop(runtime);
    std::fs::remove_dir_all(folder)?;
    Ok(Measurement { pair, way, round, measured: measured? })
}
