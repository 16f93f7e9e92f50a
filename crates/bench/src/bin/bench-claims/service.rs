//! `onlyonce serve` in a process of its own, and the callers in another.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use onlyonce_bench::figures::as_float;
use onlyonce_bench::machine;
use onlyonce_bench::measured::{Measured, micros_each};
use onlyonce_bench::pins::Pins;
use onlyonce_bench::started::Started;
use onlyonce_bench::starter::{Starter, roomy};
use onlyonce_bench::usage::Used;
use serde_json::Value;

use crate::Result;

/// Where the service keeps its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    File,
}

impl Store {
    pub(crate) const ALL: [Self; 2] = [Self::Memory, Self::File];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory:",
            Self::File => "file:",
        }
    }

    /// Where its records are, in a folder of its own.
    fn url(self, folder: &Path) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::File => format!("file:{}", folder.join("store").display()),
        }
    }
}

/// How many claim at a time, and how many claims they send in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    pub(crate) batch: usize,
}

/// How soon long polls were answered, and what they cost while they waited.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Woken {
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
    pub(crate) last_micros: u64,
    /// The service's memory before any of them came, and while all waited.
    pub(crate) memory: [u64; 2],
    pub(crate) foreign: f64,
}

/// Starts a service with seats for `waiters` on one record.
pub(crate) fn start(
    starter: &mut Starter<'_>,
    onlyonce: &Path,
    store: Store,
    waiters: u32,
) -> Result<Started> {
    let folder = starter.folder(store.name())?;
    let mut command = starter.measured(onlyonce);
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &store.url(&folder)]);
    // One for each long poll, one for the holder, and some to spare.
    command.args(["--waiters-max", &waiters.to_string(), "--connections-max", &(waiters + 100).to_string()]);
    if store == Store::Memory {
        roomy(&mut command);
    }
    starter.start(store.name(), &mut command, &folder, None)
}

/// Claims and completes for `time`.
pub(crate) fn load(
    service: &mut Started,
    pins: Pins,
    load: Load,
    time: Duration,
    name: &str,
) -> Result<Measured> {
    let mut callers = pins.load(std::env::current_exe()?);
    callers.args(["load", &service.address().to_string(), &load.connections.to_string()]);
    callers.args([&load.batch.to_string(), &time.as_millis().to_string(), name]);
    let (spent, used) = (machine::processor_time(service.id())?, Used::now([service.id()])?);
    let told: Value = serde_json::from_str(&machine::output(&mut callers)?)?;
    let usage = Used::now([service.id()])?.since(used);
    let spent = machine::processor_time(service.id())?.saturating_sub(spent);
    service.check()?;
    let pairs = number(&told, "pairs")?;
    let seconds = told["seconds"].as_f64().ok_or("no seconds")?;
    Ok(Measured {
        requests: pairs,
        requests_per_second: as_float(pairs) / seconds,
        p50_micros: number(&told, "p50_micros")?,
        p99_micros: number(&told, "p99_micros")?,
        processor_micros: micros_each(spent, pairs),
        busy: spent.as_secs_f64() / usage.time.as_secs_f64(),
        foreign: usage.foreign,
        faults: Vec::new(),
    })
}

/// Lets `waiters` long polls wait for one record and completes it.
pub(crate) fn wake(service: &mut Started, pins: Pins, waiters: u32) -> Result<Woken> {
    let (before, used) = (machine::memory_bytes(service.id())?, Used::now([service.id()])?);
    let mut command: Command = pins.load(std::env::current_exe()?);
    command.args(["wait", &service.address().to_string(), &waiters.to_string()]);
    let mut polls = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(polls.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let seated = machine::memory_bytes(service.id())?;
    if line.trim() == "seated" {
        polls.stdin.take().ok_or("no input")?.write_all(b"go\n")?;
        line.clear();
        said.read_line(&mut line)?;
    }
    polls.wait()?;
    // ORDER: after the wait, which makes the callers' time our own.
    let foreign = Used::now([service.id()])?.since(used).foreign;
    service.check()?;
    let told: Value = serde_json::from_str(&line).map_err(|_| format!("the long polls failed: {line}"))?;
    Ok(Woken {
        p50_micros: number(&told, "p50_micros")?,
        p99_micros: number(&told, "p99_micros")?,
        last_micros: number(&told, "last_micros")?,
        memory: [before, seated],
        foreign,
    })
}

fn number(told: &Value, name: &str) -> Result<u64> {
    told[name].as_u64().ok_or_else(|| format!("no {name} in {told}").into())
}
