//! Load on one server for a while, and what it cost. A measurement that is not sound says so.
#![allow(clippy::print_stderr, reason = "progress, for whoever waits for it")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::figures::as_float;
use crate::started::Started;
use crate::usage::Used;
use crate::wrk::{Figures, Load, Mode, Wrk};
use crate::{Result, machine};

/// With more of the processors used by others a measurement is made again, but not for ever.
pub const FOREIGN_MAX: f64 = 0.10;
/// How often, at most.
pub const TRIES_MAX: u32 = 3;
/// How long there is load before it counts.
pub const WARM_UP: Duration = Duration::from_secs(1);
/// How long a server may take to say how often it ran.
const COUNT_MAX: Duration = Duration::from_secs(10);

/// A server under load, and where it counts its runs.
#[derive(Debug)]
pub struct Under<'a> {
    /// What is measured.
    pub server: &'a mut Started,
    /// Every process of ours that runs meanwhile.
    pub running: &'a [u32],
    /// Who says how often the work ran.
    pub counter: SocketAddr,
    /// Whether each answer needs a run; otherwise there must be none.
    pub must_run: bool,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    /// How many requests were answered.
    pub requests: u64,
    /// How many in a second.
    pub requests_per_second: f64,
    /// The latency that half of them did not exceed.
    pub p50_micros: u64,
    /// The latency that all but one in a hundred did not exceed.
    pub p99_micros: u64,
    /// The processor time of a request in the measured process alone, with its children.
    pub processor_micros: f64,
    /// Which share of one processor the measured process used: much less than all means that it was not the limit.
    pub busy: f64,
    /// Which share of all processors others used meanwhile. With much of it the rest means little.
    pub foreign: f64,
    /// Why these figures mean nothing.
    pub faults: Vec<String>,
}

/// What was measured, of what, and under which load. `More` is what else a program looks at.
#[derive(Debug, Clone)]
pub struct Measurement<Subject, More = ()> {
    /// Of what.
    pub subject: Subject,
    /// What was asked.
    pub mode: Mode,
    /// On how many connections.
    pub connections: u32,
    /// In which round, from 0.
    pub round: u32,
    /// What was measured.
    pub measured: Measured,
    /// What else.
    pub more: More,
}

impl<Subject, More> AsRef<Measured> for Measurement<Subject, More> {
    fn as_ref(&self) -> &Measured {
        &self.measured
    }
}

/// What was measured of a subject under one load, round by round.
pub fn rounds_of<Subject: Copy + PartialEq, More>(
    all: &[Measurement<Subject, More>],
    subject: Subject,
    mode: Mode,
    connections: u32,
) -> Vec<&Measurement<Subject, More>> {
    let wanted = |one: &&Measurement<Subject, More>| {
        one.subject == subject && one.mode == mode && one.connections == connections
    };
    all.iter().filter(wanted).collect()
}

/// Puts `load` on a server that is warm.
pub fn window(under: &mut Under<'_>, wrk: &Wrk, load: Load) -> Result<Measured> {
    let (server, counter, running) = (&mut *under.server, under.counter, under.running);
    let (ran, spent) = (runs(counter)?, machine::processor_time(server.id())?);
    let used = Used::now(running.iter().copied())?;
    let figures = wrk.run(load, server.address())?;
    let usage = Used::now(running.iter().copied())?.since(used);
    let spent = machine::processor_time(server.id())?.saturating_sub(spent);
    let ran = runs(counter)?.saturating_sub(ran);
    server.check()?;
    Ok(Measured {
        requests: figures.requests,
        requests_per_second: as_float(figures.requests) / figures.seconds,
        p50_micros: figures.p50_micros,
        p99_micros: figures.p99_micros,
        processor_micros: micros_each(spent, figures.requests),
        busy: spent.as_secs_f64() / usage.time.as_secs_f64(),
        foreign: usage.foreign,
        faults: faults(figures, load.connections, ran, under.must_run),
    })
}

/// What each of `requests` took of `spent`.
pub fn micros_each(spent: Duration, requests: u64) -> f64 {
    spent.as_secs_f64() * 1e6 / as_float(requests.max(1))
}

/// What is wrong with a run.
fn faults(figures: Figures, connections: u32, runs: u64, must_run: bool) -> Vec<String> {
    let (mut faults, requests) = (figures.faults(), figures.requests);
    // What is under way when wrk stops is not counted by it: now, and at the end of the warm-up.
    let (least, most) = if must_run { (requests, requests + 2 * u64::from(connections)) } else { (0, 0) };
    if !(least..=most).contains(&runs) {
        faults.push(format!("{requests} answers and {runs} runs of the work"));
    }
    faults
}

/// How often a server ran its work, as it says itself.
pub fn runs(counter: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(counter)?;
    stream.set_read_timeout(Some(COUNT_MAX))?;
    write!(stream, "GET /runs HTTP/1.1\r\nHost: {counter}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let count = answer.split_once("\r\n\r\n").and_then(|(_, body)| body.trim().parse().ok());
    count.ok_or_else(|| format!("{counter} does not say how often it ran: {answer}").into())
}

/// Measures until others leave the machine alone, and answers what was measured when they did so most. A measurement
/// that is not sound is never put aside.
pub fn quietest<M: AsRef<Measured>>(tries: u32, mut measure: impl FnMut() -> Result<M>) -> Result<M> {
    let mut best = measure()?;
    for _ in 1..tries {
        let Measured { foreign, faults, .. } = best.as_ref();
        if *foreign <= FOREIGN_MAX || !faults.is_empty() {
            break;
        }
        eprintln!("  others used {:.0} % of the processors: once more", foreign * 100.0);
        let again = measure()?;
        if again.as_ref().foreign < *foreign || !again.as_ref().faults.is_empty() {
            best = again;
        }
    }
    for fault in &best.as_ref().faults {
        eprintln!("  BROKEN: {fault}");
    }
    Ok(best)
}

/// An error when some of what was measured means nothing.
pub fn all_sound<M: AsRef<Measured>>(measurements: &[M]) -> Result<()> {
    match measurements.iter().filter(|one| !one.as_ref().faults.is_empty()).count() {
        0 => Ok(()),
        unsound => Err(format!("{unsound} measurements are not sound: see BROKEN above").into()),
    }
}

/// An error that says what to do when one of `programs`, each with how to ask for its version, is not there.
pub fn check_programs(programs: &[(&str, &str)], bench: &str) -> Result<()> {
    for (program, version) in programs {
        // wrk tells its version and then fails: that it starts is all we ask.
        let probe = Command::new(program).arg(version).stdin(Stdio::null()).output();
        if let Err(error) = probe {
            let advice = format!("`{bench}` installs it on Debian, as root; elsewhere install it first");
            return Err(format!("{program} does not start ({error}): {advice}").into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_not_sound_is_found_out() {
        let good = Figures {
            requests: 1000,
            seconds: 1.0,
            p50_micros: 1,
            p99_micros: 2,
            socket_errors: 0,
            refused: 0,
        };
        let found = |figures, runs, must_run| faults(figures, 64, runs, must_run).len();
        assert_eq!((found(good, 1000, true), found(good, 1128, true), found(good, 0, false)), (0, 0, 0));
        assert_eq!(found(good, 999, true), 1, "an answer without a run");
        assert_eq!(found(good, 1129, true), 1, "something ran twice");
        assert_eq!(found(good, 1, false), 1, "a replay ran");
        assert_eq!(found(Figures { refused: 1, ..good }, 1000, true), 1);
        assert_eq!(found(Figures { socket_errors: 1, ..good }, 1000, true), 1);
        assert_eq!(found(Figures { requests: 0, ..good }, 0, true), 1);
    }
}
