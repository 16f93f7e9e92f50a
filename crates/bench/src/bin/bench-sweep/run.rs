//! The whole run: one store after the other, each on its own.

use std::time::Instant;

use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::workplace::Workplace;
use onlyonce_bench::{facts, machine, report};
use tokio::runtime::Runtime;

use crate::arguments::Arguments;
use crate::measure::{Measurement, measure};
use crate::place::{Kind, Place};
use crate::{Result, table};

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) conditions: Conditions,
    pub(crate) rate: u64,
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
    let mut failures = Vec::new();
    let mut results = Results { rate: arguments.rate, ..Results::default() };
    for kind in arguments.stores() {
        eprintln!("{}", kind.name());
        // One that fails takes nothing from the others: filling them took minutes.
        match once(arguments, &workplace, kind, &mut results.servers) {
            Ok(one) => results.measurements.push(one),
            Err(error) => {
                eprintln!("  failed: {error}");
                failures.push(format!("{}: {error}", kind.name()));
            }
        }
    }
    results.conditions = Conditions {
        rounds: arguments.turns(),
        window: arguments.turn(),
        file_system: workplace.file_system()?,
        load_before,
        took: begun.elapsed(),
        ..Conditions::default()
    };
    println!("{}", table::all(&results));
    if let Some(file) = &arguments.json {
        report::write(&table::value(&results), file)?;
    }
    failures.extend(results.measurements.iter().flat_map(|one| one.faults.iter().cloned()));
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// One store on a server of its own, which ends with it.
fn once(
    arguments: &Arguments,
    workplace: &Workplace,
    kind: Kind,
    told: &mut Vec<String>,
) -> Result<Measurement> {
    // ORDER: the runtime ends before the server does.
    let place = Place::start(kind)?;
    let runtime = Runtime::new()?;
    if let Some(folder) = place.folder().filter(|_| !arguments.any_disk) {
        machine::check_disk(folder)?;
    }
    facts::remember(told, [place.facts()?]);
    let folder = workplace.folder("store")?;
    let measured = runtime.block_on(measure(arguments, kind, &place, &folder));
    drop(runtime);
    std::fs::remove_dir_all(folder)?;
    measured
}
