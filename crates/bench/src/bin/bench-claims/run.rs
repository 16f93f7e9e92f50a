//! The whole run: each store in turn, the order changed each time, every load on a service of its own.

use std::time::Instant;

use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::machine;
use onlyonce_bench::measured::{Measured, TRIES_MAX, WARM_UP, all_sound, quietest};
use onlyonce_bench::pins::Pins;
use onlyonce_bench::starter::Starter;
use onlyonce_bench::workplace::Workplace;

use crate::arguments::{Arguments, BATCH};
use crate::service::{self, Load, Store, Woken};
use crate::{Result, table};

/// What is asked, one after the other.
pub(crate) const LOADS: [Load; 4] = [
    Load { connections: 1, batch: 1 },
    Load { connections: 64, batch: 1 },
    Load { connections: 1, batch: BATCH },
    Load { connections: 8, batch: BATCH },
];

/// One measurement.
#[derive(Debug)]
pub(crate) struct Measurement {
    pub(crate) store: Store,
    pub(crate) load: Load,
    pub(crate) measured: Measured,
}

impl AsRef<Measured> for Measurement {
    fn as_ref(&self) -> &Measured {
        &self.measured
    }
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) conditions: Conditions,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) waiters: u32,
    pub(crate) woken: Vec<(Store, Woken)>,
    pub(crate) commands: String,
}

/// Runs everything and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (begun, load_before, onlyonce) = (Instant::now(), machine::load(), arguments.onlyonce()?);
    let workplace = Workplace::take(&arguments.folder)?;
    if !arguments.any_disk {
        workplace.check_disk()?;
    }
    let pins = Pins::new(arguments.unpinned);
    let mut starter = Starter::new(&workplace, pins)?;
    let mut results = Results { waiters: arguments.waiters(), ..Results::default() };
    for round in 0..arguments.rounds() {
        let mut stores = Store::ALL;
        // Nobody is always first.
        if round % 2 == 1 {
            stores.reverse();
        }
        for store in stores {
            let mut service = service::start(&mut starter, &onlyonce, store, arguments.waiters())?;
            for (at, load) in LOADS.into_iter().enumerate() {
                eprintln!("round {}: {}: {}", round + 1, store.name(), table::name(load));
                let mut tries = 0;
                let one = quietest(if arguments.quick { 1 } else { TRIES_MAX }, || {
                    tries += 1;
                    let name = format!("{round}-{at}-{tries}");
                    service::load(&mut service, pins, load, WARM_UP, &format!("{name}-warm-up"))?;
                    let measured = service::load(&mut service, pins, load, arguments.window(), &name)?;
                    Ok(Measurement { store, load, measured })
                })?;
                results.measurements.push(one);
            }
            drop(service);
            // A fresh one: its memory says what the long polls cost.
            let mut service = service::start(&mut starter, &onlyonce, store, arguments.waiters())?;
            eprintln!("round {}: {}: {} long polls", round + 1, store.name(), arguments.waiters());
            results.woken.push((store, service::wake(&mut service, pins, arguments.waiters())?));
        }
    }
    results.commands = starter.commands.shown();
    results.conditions = Conditions {
        rounds: arguments.rounds(),
        window: arguments.window(),
        is_pinned: pins.are_set(),
        file_system: workplace.file_system()?,
        load_before,
        took: begun.elapsed(),
    };
    println!("{}", table::all(&results));
    all_sound(&results.measurements)
}
