//! The whole run: everything in turn, the order changed each time, so that no one has the quiet minutes for itself.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use onlyonce_bench::commands::shown;
use onlyonce_bench::conditions::Conditions;
use onlyonce_bench::measured::{TRIES_MAX, Under, all_sound, check_programs, quietest};
use onlyonce_bench::pins::Pins;
use onlyonce_bench::serve::idempotent::SESSION;
use onlyonce_bench::started::Started;
use onlyonce_bench::starter::{Starter, sidecar_program};
use onlyonce_bench::workplace::Workplace;
use onlyonce_bench::wrk::{Caller, Load, Mode, Wrk};
use onlyonce_bench::{facts, machine};

use crate::arguments::Arguments;
use crate::measure::{Measurement, measure};
use crate::peers::Peers;
use crate::servers::Servers;
use crate::subject::{Part, Subject};
use crate::{Result, report, table};

/// Everything that was measured.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) conditions: Conditions,
    /// What the servers are.
    pub(crate) servers: Vec<String>,
    /// Who is not measured, and why.
    pub(crate) left_out: Vec<String>,
    pub(crate) measurements: Vec<Measurement>,
    pub(crate) commands: String,
}

/// Runs everything and prints the tables.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let (begun, load_before) = (Instant::now(), machine::load());
    let pins = Pins::new(arguments.unpinned);
    let mut needed = vec![("wrk", "-v"), ("redis-cli", "--version"), ("psql", "--version")];
    if pins.are_set() {
        needed.push(("taskset", "--version"));
    }
    check_programs(&needed, "cargo xtask bench stores")?;
    let workplace = Workplace::take(&arguments.folder)?;
    if !arguments.any_disk {
        workplace.check_disk()?;
    }
    let mut run = Run {
        arguments,
        onlyonce: sidecar_program(arguments.onlyonce.as_deref())?,
        starter: Starter::new(&workplace, pins)?,
        peers: Peers::new(workplace.folder("peers")?, arguments)?,
        wrk: Wrk::new(&workplace.folder("wrk")?, pins)?,
        servers: Vec::new(),
        left_out: Vec::new(),
        measurements: Vec::new(),
        turn: 0,
    };
    for round in 0..arguments.rounds() {
        for part in Part::ALL.into_iter().filter(|part| arguments.has(*part)) {
            run.part(part, round)?;
        }
    }
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
        servers: run.servers,
        left_out: run.left_out,
        measurements: run.measurements,
        commands: run.starter.commands.shown(),
    };
    println!("{}", table::all(&results));
    if let Some(file) = &arguments.json {
        onlyonce_bench::report::write(&report::value(&results), file)?;
    }
    all_sound(&results.measurements)
}

struct Run<'a> {
    arguments: &'a Arguments,
    onlyonce: PathBuf,
    starter: Starter<'a>,
    peers: Peers,
    wrk: Wrk,
    servers: Vec<String>,
    left_out: Vec<String>,
    measurements: Vec<Measurement>,
    /// How many rows were measured: each starts with another subject.
    turn: usize,
}

impl Run<'_> {
    /// Everyone who keeps records in one place. All are there at once and one works at a time, so that those whose
    /// figures are compared had the same minute.
    fn part(&mut self, part: Part, round: u32) -> Result<()> {
        // ORDER: they end after those that use them.
        let servers = Servers::start(part, self.arguments)?;
        servers.note(&mut self.starter.commands)?;
        facts::remember(&mut self.servers, servers.facts()?);
        if part == Part::Postgres {
            let mut migrate = Command::new(&self.onlyonce);
            migrate.args(["store", "migrate", "--store", &servers.postgres_url()?]);
            self.starter.commands.note("schema", shown(&migrate));
            machine::output(&mut migrate)?;
        }
        let upstream = self.starter.upstream()?;
        let mut subjects = Vec::new();
        for &subject in part.subjects() {
            match self.start(subject, &servers, &upstream)? {
                Ok(started) => subjects.push((subject, started)),
                Err(why) => {
                    let left_out = format!("{} is not measured: {why}", subject.name());
                    eprintln!("{left_out}");
                    facts::remember(&mut self.left_out, vec![left_out]);
                }
            }
        }
        for mode in [Mode::Fresh, Mode::Replay] {
            for connections in self.arguments.connections() {
                let load = Load { mode, caller: Caller::Session, connections, time: self.arguments.window() };
                self.row(&mut subjects, &servers, &upstream, load, round)?;
            }
        }
        Ok(())
    }

    /// Starts `subject`, or says why it cannot be measured here.
    fn start(
        &mut self,
        subject: Subject,
        servers: &Servers,
        upstream: &Started,
    ) -> Result<std::result::Result<Started, &'static str>> {
        let folder = self.starter.folder(subject.name())?;
        let store = match subject {
            Subject::SidecarMemory => "memory:".to_owned(),
            Subject::SidecarFile => format!("file:{}", folder.join("store").display()),
            _ if subject.uses_postgres() => servers.postgres_url()?,
            _ => servers.redis_url()?,
        };
        let mut command = match subject {
            Subject::LayerRedis => self.starter.own("layered-redis"),
            Subject::LayerPostgres => self.starter.own("layered-postgres"),
            Subject::Idempotent if !servers.expires_fields()? => {
                return Ok(Err(
                    "its store needs HEXPIRE (Redis 7.4, Valkey 9), which this server does not have",
                ));
            }
            Subject::Idempotent => self.starter.own("idempotent-redis"),
            _ if subject.is_sidecar() => self.starter.sidecar(&self.onlyonce, upstream.address(), &store),
            _ => match self.peers.command(&self.starter, subject, &store) {
                Ok(command) => command,
                Err(why) => return Ok(Err(why)),
            },
        };
        if subject.is_sidecar() {
            // The caller that axum-idempotent and the layer see.
            command.args(["--principal", &format!("cookie:{SESSION}")]);
        } else if !matches!(subject, Subject::ExpressRedis | Subject::ExpressPostgres | Subject::Fastapi) {
            command.arg(&store);
        }
        if subject == Subject::SidecarTiered {
            command.args(["--cache", &servers.redis_url()?]);
        }
        Ok(Ok(self.starter.start(subject.name(), &mut command, &folder, None)?))
    }

    /// The same load on each subject, one after the other.
    fn row(
        &mut self,
        subjects: &mut [(Subject, Started)],
        servers: &Servers,
        upstream: &Started,
        load: Load,
        round: u32,
    ) -> Result<()> {
        let mut running = servers.ids();
        running.push(upstream.id());
        running.extend(subjects.iter().map(|(_, server)| server.id()));
        for at in 0..subjects.len() {
            let at = (self.turn + at) % subjects.len();
            let (subject, server) = &mut subjects[at];
            let Load { mode, connections, .. } = load;
            eprintln!("round {}: {}, {connections} connections: {}", round + 1, mode.name(), subject.name());
            let line = shown(&self.wrk.command(load, server.address()));
            self.starter.commands.note(&format!("{}, {connections} connections", mode.name()), line);
            let counter = if subject.is_sidecar() { upstream.address() } else { server.address() };
            let must_run = mode != Mode::Replay;
            let mut under = Under { server, running: &running, counter, must_run };
            let tries = if self.arguments.quick { 1 } else { TRIES_MAX };
            let wrk = &mut self.wrk;
            let one = quietest(tries, || measure(*subject, &mut under, servers, wrk, load, round))?;
            self.measurements.push(one);
        }
        self.turn += 1;
        Ok(())
    }
}
