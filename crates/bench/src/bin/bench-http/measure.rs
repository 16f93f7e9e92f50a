//! One measurement: load on one server for a while, and what it cost. A measurement that is not sound says so.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use onlyonce_bench::figures::as_float;
use onlyonce_bench::machine;
use onlyonce_bench::usage::Used;

use crate::Result;
use crate::started::Started;
use crate::subject::Subject;
use crate::wrk::{Figures, Load, Mode, Wrk};

/// How long there is load before it counts. Replays find their keys completed afterwards.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long a server may take to say how often it ran.
const COUNT_MAX: Duration = Duration::from_secs(10);

/// What was measured.
#[derive(Debug, Clone)]
pub(crate) struct Measurement {
    pub(crate) subject: Subject,
    pub(crate) mode: Mode,
    pub(crate) connections: u32,
    pub(crate) round: u32,
    pub(crate) requests_per_second: f64,
    pub(crate) p50_micros: u64,
    pub(crate) p99_micros: u64,
    /// The processor time of a request in the measured process alone, with its children.
    pub(crate) processor_micros: f64,
    /// Which share of one processor the measured process used: much less than all means that it was not the limit.
    pub(crate) busy: f64,
    /// Which share of all processors others used meanwhile. With much of it the rest means little.
    pub(crate) foreign: f64,
    /// Why these figures mean nothing.
    pub(crate) faults: Vec<String>,
}

/// A server under load, and where it counts its runs.
#[derive(Debug)]
pub(crate) struct Under<'a> {
    pub(crate) subject: Subject,
    pub(crate) server: &'a mut Started,
    /// Every process of ours that runs meanwhile.
    pub(crate) running: &'a [u32],
    pub(crate) counter: SocketAddr,
}

/// Puts `load` on a server, after a warm-up.
pub(crate) fn measure(under: &mut Under<'_>, wrk: &mut Wrk, load: Load, round: u32) -> Result<Measurement> {
    let (subject, counter, running) = (under.subject, under.counter, under.running);
    let server = &mut *under.server;
    wrk.renew();
    wrk.run(Load { time: WARM_UP, ..load }, server.address())?;
    if load.mode != Mode::Replay {
        wrk.renew();
    }
    let (runs, spent) = (runs(counter)?, machine::processor_time(server.id())?);
    let used = Used::now(running.iter().copied())?;
    let figures = wrk.run(load, server.address())?;
    let usage = Used::now(running.iter().copied())?.since(used);
    let spent = machine::processor_time(server.id())?.saturating_sub(spent);
    let runs = self::runs(counter)?.saturating_sub(runs);
    server.check()?;
    let must_run = !(load.mode == Mode::Replay && subject.replays());
    Ok(Measurement {
        subject,
        mode: load.mode,
        connections: load.connections,
        round,
        requests_per_second: as_float(figures.requests) / figures.seconds,
        p50_micros: figures.p50_micros,
        p99_micros: figures.p99_micros,
        processor_micros: spent.as_secs_f64() * 1e6 / as_float(figures.requests.max(1)),
        busy: spent.as_secs_f64() / usage.time.as_secs_f64(),
        foreign: usage.foreign,
        faults: faults(figures, load.connections, runs, must_run),
    })
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
fn runs(counter: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(counter)?;
    stream.set_read_timeout(Some(COUNT_MAX))?;
    write!(stream, "GET /runs HTTP/1.1\r\nHost: {counter}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let count = answer.split_once("\r\n\r\n").and_then(|(_, body)| body.trim().parse().ok());
    count.ok_or_else(|| format!("{counter} does not say how often it ran: {answer}").into())
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
