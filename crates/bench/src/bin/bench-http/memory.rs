//! Whether the sidecar's memory stays flat: mixed load for minutes, while records come and go.

use std::process::Child;
use std::time::{Duration, Instant};

use onlyonce_bench::commands::shown;
use onlyonce_bench::figures::median;
use onlyonce_bench::machine;
use onlyonce_bench::wrk::{self, Caller, Figures, Load, Mode, Wrk};

use crate::Result;
use crate::subject::{Starter, Subject};

/// How long records are kept: short, so that as many go as come.
const RETENTION: &str = "5s";
const CONNECTIONS: u32 = 64;
/// How often memory is looked at.
const LOOKS: u32 = 60;
/// The last look comes before the load ends.
const BEFORE_THE_END: Duration = Duration::from_millis(200);
/// How much more than in the second quarter may be there in the last one, of all and in bytes: allocators breathe.
const GROWTH_MAX: f64 = 1.10;
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// What one sidecar took meanwhile.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) subject: Subject,
    pub(crate) minutes: u32,
    pub(crate) requests: u64,
    /// Before the first request.
    pub(crate) start_bytes: u64,
    /// In equal intervals.
    pub(crate) bytes: Vec<u64>,
    pub(crate) faults: Vec<String>,
}

impl Watched {
    /// What is there in the middle of a quarter of the time, from 0.
    pub(crate) fn quarter(&self, quarter: usize) -> u64 {
        let (from, to) = (self.bytes.len() * quarter / 4, self.bytes.len() * (quarter + 1) / 4);
        median(self.bytes.iter().copied().skip(from).take(to - from)).unwrap_or_default()
    }

    pub(crate) fn end_bytes(&self) -> u64 {
        self.bytes.last().copied().unwrap_or_default()
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or_default()
    }

    /// How many times what was there in the second quarter is there in the last. The first fills what is kept.
    #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^52")]
    pub(crate) fn growth(&self) -> f64 {
        self.quarter(3) as f64 / (self.quarter(1).max(1)) as f64
    }

    pub(crate) fn is_flat(&self) -> bool {
        self.growth() <= GROWTH_MAX || self.quarter(3) <= self.quarter(1) + GROWTH_BYTES_MAX
    }
}

/// First one store, then the other: together one would take the processor from the other.
pub(crate) fn watch(starter: &mut Starter<'_>, wrk: &mut Wrk, minutes: u32) -> Result<Vec<Watched>> {
    let subjects = [Subject::Memory, Subject::Embedded];
    subjects.into_iter().map(|subject| watch_one(starter, wrk, subject, minutes)).collect()
}

fn watch_one(starter: &mut Starter<'_>, wrk: &mut Wrk, subject: Subject, minutes: u32) -> Result<Watched> {
    eprintln!("{}: {minutes} minutes of {} load", subject.name(), Mode::Mixed.name());
    let time = Duration::from_mins(u64::from(minutes));
    let load = Load { mode: Mode::Mixed, caller: Caller::Token, connections: CONNECTIONS, time };
    let upstream = starter.upstream()?;
    let mut server = starter.with(subject, Some(upstream.address()), &["--retention", RETENTION])?;
    wrk.renew();
    starter.base.commands.note("memory", shown(&wrk.command(load, server.address())));
    let start_bytes = machine::memory_bytes(server.id())?;
    let mut loader = Loader { child: Some(wrk.start(load, server.address())?) };
    let (begun, mut bytes) = (Instant::now(), Vec::new());
    for look in 1..=LOOKS {
        let due = time.saturating_sub(BEFORE_THE_END) * look / LOOKS;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        server.check()?;
        bytes.push(machine::memory_bytes(server.id())?);
    }
    let figures = loader.end()?;
    let faults = figures.faults();
    Ok(Watched { subject, minutes, requests: figures.requests, start_bytes, bytes, faults })
}

/// A wrk that runs. It is ended when this is dropped.
struct Loader {
    child: Option<Child>,
}

impl Loader {
    /// Waits until it has done what it was told to.
    fn end(&mut self) -> Result<Figures> {
        let child = self.child.take().ok_or("the load has ended")?;
        let output = child.wait_with_output()?;
        wrk::figures(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(bytes: Vec<u64>) -> Watched {
        let subject = Subject::Memory;
        Watched { subject, minutes: 1, requests: 1, start_bytes: 1, bytes, faults: Vec::new() }
    }

    #[test]
    fn memory_that_only_fills_at_first_is_flat_and_a_leak_is_not() {
        let filling: Vec<_> = (0..60).map(|at| 100_000_000.min(10_000_000 * (at + 1))).collect();
        assert!(watched(filling).is_flat());
        let leak = watched((0..60).map(|at| 100_000_000 + 1_000_000 * at).collect());
        assert!(!leak.is_flat());
        assert_eq!((leak.end_bytes(), leak.peak_bytes()), (159_000_000, 159_000_000));
        assert!(watched(vec![1, 1_000_000, 2_000_000, 3_000_000]).is_flat(), "allocators breathe");
    }
}
