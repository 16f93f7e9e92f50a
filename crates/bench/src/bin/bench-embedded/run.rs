//! The whole run: engines in turn, their order changed with every round, first empty and then with records stored.
//!
//! An engine that fails is left out of what follows and fails the run at its end: an hour of figures is not thrown away.

mod results;
mod workplace;

use std::fs;
use std::path::{Path, PathBuf};

use onlyonce_bench::machine;
use onlyonce_bench::workplace::Workplace;

pub(crate) use results::{Recovery, Results, Retained, Space};

use crate::arguments::Arguments;
use crate::engine::Kind;
use crate::task::{Kept, Loaded, Measure, Opened, Task};
use crate::{Result, table};

/// The numbers of pairs of different rounds are so far apart.
const ROUND: u64 = 1 << 40;
/// How many callers work before the process is killed, and beside retention.
const CALLERS: usize = 64;
/// How often throughput beside retention is measured, with and without: in turn.
const RETENTION_ROUNDS: usize = 2;
/// Retention is measured for so many windows: segments must fill, expire and go within them.
const RETENTION_WINDOWS: u32 = 3;

/// Runs everything and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let engines = distinct(&arguments.engines);
    let workplace = Workplace::take(&arguments.folder)?;
    if !arguments.any_disk {
        workplace::check(&workplace, engines.len(), arguments.records())?;
    }
    let mut run = Run {
        arguments,
        workplace: &workplace,
        engines,
        results: Results::new(arguments, workplace.file_system()?),
    };
    run.each("opening it empty", Run::baseline);
    for round in 0..arguments.rounds() {
        run.each_in_turn(round, "measuring it empty", |run, kind| run.measure_empty(kind, round));
    }
    run.each("loading it", Run::load);
    for round in 0..arguments.rounds() {
        run.each_in_turn(round, "measuring it loaded", |run, kind| run.measure_loaded(kind, round));
    }
    if run.engines.contains(&Kind::Onlyonce) {
        run.only(Kind::Onlyonce, "opening it again", Run::recover);
        run.only(Kind::Onlyonce, "measuring its retention", Run::retain);
    }
    run.results.end();
    println!("{}", table::all(&run.results));
    let failed: Vec<_> = run.results.failed.keys().map(|kind| kind.name()).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

fn distinct(engines: &[Kind]) -> Vec<Kind> {
    let mut engines = engines.to_vec();
    engines.sort_unstable();
    engines.dedup();
    engines
}

struct Run<'a> {
    arguments: &'a Arguments,
    workplace: &'a Workplace,
    /// Those that have not failed yet.
    engines: Vec<Kind>,
    results: Results,
}

impl Run<'_> {
    fn each(&mut self, doing: &str, work: impl Fn(&mut Self, Kind) -> Result<()>) {
        self.each_in_turn(0, doing, work);
    }

    /// Does `work` with each engine, starting with another one in every round.
    fn each_in_turn(&mut self, round: u32, doing: &str, work: impl Fn(&mut Self, Kind) -> Result<()>) {
        let mut order = self.engines.clone();
        let first = round as usize % order.len().max(1);
        order.rotate_left(first);
        for kind in order {
            self.only(kind, doing, &work);
        }
    }

    fn only(&mut self, kind: Kind, doing: &str, work: impl Fn(&mut Self, Kind) -> Result<()>) {
        eprintln!("{}: {doing}", kind.name());
        if let Err(error) = machine::write_back().and_then(|()| work(self, kind)) {
            eprintln!("{}: FAILED: {error}", kind.name());
            self.results.failed.insert(kind, format!("{doing}: {error}"));
            self.engines.retain(|engine| *engine != kind);
        }
    }

    fn baseline(&mut self, kind: Kind) -> Result<()> {
        let folder = workplace::folder(self.workplace, kind, "base")?;
        let opened = self.opened(kind, &folder, Vec::new(), 0)?;
        let disk_bytes = machine::disk_bytes(&folder)?;
        self.results.base.insert(kind, Space { disk_bytes, opened });
        Ok(fs::remove_dir_all(folder)?)
    }

    fn measure_empty(&mut self, kind: Kind, round: u32) -> Result<()> {
        let folder = workplace::folder(self.workplace, kind, &format!("empty-{round}"))?;
        let opened: Opened = workplace::ask(&Task::Measure(Measure {
            reopen: true,
            ..self.measure(kind, &folder, self.arguments.callers.clone(), 0)
        }))?;
        self.results.empty.entry(kind).or_default().push(opened);
        Ok(fs::remove_dir_all(folder)?)
    }

    fn load(&mut self, kind: Kind) -> Result<()> {
        let folder = workplace::folder(self.workplace, kind, "loaded")?;
        let records = self.arguments.records();
        let loaded: Loaded = workplace::ask(&Task::Load { kind, folder: folder.clone(), records })?;
        machine::write_back()?;
        let opened = self.opened(kind, &folder, Vec::new(), records)?;
        let disk_bytes = machine::disk_bytes(&folder)?;
        self.results.loaded_space.insert(kind, (loaded, Space { disk_bytes, opened }));
        Ok(())
    }

    fn measure_loaded(&mut self, kind: Kind, round: u32) -> Result<()> {
        let folder = workplace::path(self.workplace, kind, "loaded");
        machine::read_pages(&folder)?;
        let opened: Opened = workplace::ask(&Task::Measure(Measure {
            first: ROUND * u64::from(round + 1),
            reopen: round + 1 == self.arguments.rounds(),
            ..self.measure(kind, &folder, self.arguments.callers.clone(), self.stored(kind))
        }))?;
        self.results.loaded.entry(kind).or_default().push(opened);
        Ok(())
    }

    /// Opens the loaded store without anything in memory, again with everything, and after its process was killed.
    fn recover(&mut self, kind: Kind) -> Result<()> {
        let folder = workplace::path(self.workplace, kind, "loaded");
        let stored = self.stored(kind);
        machine::forget_pages(&folder)?;
        let cold = self.opened(kind, &folder, Vec::new(), stored)?;
        let warm = self.opened(kind, &folder, Vec::new(), stored)?;
        let first = ROUND * u64::from(self.arguments.rounds() + 1);
        let task = Task::Write { folder: folder.clone(), callers: CALLERS, first };
        let answered = workplace::kill(&task, self.arguments.window())?;
        let killed: Opened = workplace::ask(&Task::Measure(Measure {
            at_least: true,
            ..self.measure(kind, &folder, Vec::new(), stored + answered)
        }))?;
        self.results.recovery =
            Some(Recovery { cold: cold.open, warm: warm.open, killed: killed.open, answered });
        Ok(fs::remove_dir_all(folder)?)
    }

    fn retain(&mut self, kind: Kind) -> Result<()> {
        let mut retained = Retained::default();
        for round in 0..RETENTION_ROUNDS {
            // First one, then the other; then the other way round.
            for expire in [round % 2 == 0, round % 2 == 1] {
                let folder = workplace::folder(self.workplace, kind, "retention")?;
                machine::write_back()?;
                let window = self.arguments.window() * RETENTION_WINDOWS;
                let task = Task::Retain { folder: folder.clone(), callers: CALLERS, window, expire };
                let kept: Kept = workplace::ask(&task)?;
                if expire { &mut retained.expired } else { &mut retained.kept }.push(kept);
                fs::remove_dir_all(folder)?;
            }
        }
        self.results.retained = Some(retained);
        Ok(())
    }

    /// How many records the loaded store of `kind` must hold by now.
    fn stored(&self, kind: Kind) -> u64 {
        let rounds = self.results.loaded.get(&kind);
        self.arguments.records() + rounds.iter().copied().flatten().map(Opened::pairs).sum::<u64>()
    }

    fn opened(&self, kind: Kind, folder: &Path, callers: Vec<usize>, expected: u64) -> Result<Opened> {
        workplace::ask(&Task::Measure(self.measure(kind, folder, callers, expected)))
    }

    fn measure(&self, kind: Kind, folder: &Path, callers: Vec<usize>, expected: u64) -> Measure {
        Measure {
            kind,
            folder: PathBuf::from(folder),
            expected,
            at_least: false,
            loaded: expected.min(self.arguments.records()),
            callers,
            window: self.arguments.window(),
            first: 0,
            reopen: false,
        }
    }
}
