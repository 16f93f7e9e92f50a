//! The whole run: everything in turn, the order changed each time, so that no one has the quiet minutes for itself.

use std::time::Instant;

use onlyonce_bench::commands::shown;
use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::machine;
use onlyonce_bench::measured::{TRIES_MAX, Under, check_programs, quietest};
use onlyonce_bench::pins::Pins;
use onlyonce_bench::started::Started;
use onlyonce_bench::workplace::Workplace;
use onlyonce_bench::wrk::{Caller, Load, Mode, Wrk};

use crate::arguments::{Arguments, Part};
use crate::measure::{Measurement, measure};
use crate::memory::{self, Watched};
use crate::subject::{Starter, Subject};
use crate::{Result, table};

/// At how many connections the layers are measured.
pub(crate) const LAYER_CONNECTIONS: u32 = 64;

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) conditions: Conditions,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) watched: Vec<Watched>,
    pub(crate) commands: String,
}

/// Runs everything and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (begun, load_before) = (Instant::now(), machine::load());
    let pins = Pins::new(arguments.unpinned);
    let proxies = arguments.has(Part::Proxies);
    let needed = [("wrk", "-v", true), ("nginx", "-v", proxies), ("taskset", "--version", pins.are_set())];
    let needed: Vec<_> = needed.iter().filter(|one| one.2).map(|one| (one.0, one.1)).collect();
    check_programs(&needed, "cargo xtask bench http")?;
    let workplace = Workplace::take(&arguments.folder)?;
    if !arguments.any_disk {
        workplace.check_disk()?;
    }
    let sidecar = proxies || arguments.minutes.is_some();
    let starter = Starter::new(arguments, &workplace, sidecar)?;
    let wrk = Wrk::new(&workplace.folder("wrk")?, pins)?;
    let mut run = Run { arguments, starter, wrk, measurements: Vec::new(), turn: 0 };
    if proxies {
        run.proxies()?;
    }
    if arguments.has(Part::Layers) {
        run.layers()?;
    }
    let minutes = arguments.minutes;
    let watched =
        minutes.map(|minutes| memory::watch(&mut run.starter, &mut run.wrk, minutes)).transpose()?;
    let conditions = Conditions {
        rounds: arguments.rounds(),
        window: arguments.window(),
        is_pinned: pins.are_set(),
        file_system: workplace.file_system()?,
        load_before,
        took: begun.elapsed(),
    };
    let results = Results {
        conditions,
        commands: run.starter.base.commands.shown(),
        measurements: run.measurements,
        watched: watched.unwrap_or_default(),
    };
    println!("{}", table::all(&results));
    let unsound = results.measurements.iter().filter(|one| !one.measured.faults.is_empty()).count()
        + results.watched.iter().filter(|watched| !watched.faults.is_empty()).count();
    match unsound {
        0 => Ok(()),
        unsound => Err(format!("{unsound} measurements are not sound: see BROKEN above").into()),
    }
}

struct Run<'a> {
    arguments: &'a Arguments,
    starter: Starter<'a>,
    wrk: Wrk,
    measurements: Vec<Measurement>,
    /// How many rows were measured: each starts with another subject.
    turn: usize,
}

impl Run<'_> {
    /// The sidecar beside nginx and a bare proxy. All are there at once and one works at a time, so that those whose
    /// figures are compared had the same minute.
    fn proxies(&mut self) -> Result<()> {
        for round in 0..self.arguments.rounds() {
            let upstream = self.starter.upstream()?;
            let mut servers = self.start(&Subject::PROXIES, Some(&upstream))?;
            for mode in [Mode::Plain, Mode::Fresh, Mode::Replay] {
                for connections in self.arguments.connections.clone() {
                    let load = self.load(mode, Caller::Token, connections);
                    self.row(&mut servers, Some(&upstream), load, round)?;
                }
            }
        }
        Ok(())
    }

    /// The layer beside axum-idempotent and a bare handler.
    fn layers(&mut self) -> Result<()> {
        for round in 0..self.arguments.rounds() {
            let mut servers = self.start(&Subject::LAYERS, None)?;
            for mode in [Mode::Fresh, Mode::Replay] {
                let load = self.load(mode, Caller::Session, LAYER_CONNECTIONS);
                self.row(&mut servers, None, load, round)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, subjects: &[Subject], upstream: Option<&Started>) -> Result<Vec<(Subject, Started)>> {
        let upstream = upstream.map(Started::address);
        let start = |subject: &Subject| Ok((*subject, self.starter.subject(*subject, upstream)?));
        subjects.iter().map(start).collect()
    }

    fn load(&self, mode: Mode, caller: Caller, connections: u32) -> Load {
        Load { mode, caller, connections, time: self.arguments.window() }
    }

    /// The same load on each server, one after the other. The runs are counted by the upstream, if there is one.
    fn row(
        &mut self,
        servers: &mut [(Subject, Started)],
        upstream: Option<&Started>,
        load: Load,
        round: u32,
    ) -> Result<()> {
        let others = servers.iter().map(|(_, server)| server.id());
        let running: Vec<_> = others.chain(upstream.map(Started::id)).collect();
        for at in 0..servers.len() {
            let at = (self.turn + at) % servers.len();
            let (subject, server) = &mut servers[at];
            let Load { mode, connections, .. } = load;
            eprintln!("round {}: {}, {connections} connections: {}", round + 1, mode.name(), subject.name());
            let counter = upstream.map_or(server.address(), Started::address);
            let line = shown(&self.wrk.command(load, server.address()));
            let part = if upstream.is_some() { "proxy" } else { "layer" };
            self.starter
                .base
                .commands
                .note(&format!("{part}: {}, {connections} connections", mode.name()), line);
            let must_run = !(mode == Mode::Replay && subject.replays());
            let mut under = Under { server, running: &running, counter, must_run };
            let tries = if self.arguments.quick { 1 } else { TRIES_MAX };
            let one = quietest(tries, || measure(*subject, &mut under, &mut self.wrk, load, round))?;
            self.measurements.push(one);
        }
        self.turn += 1;
        Ok(())
    }
}
