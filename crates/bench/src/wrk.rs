//! Load from wrk, a generator that everybody can have: one thread, requests from a script of ours.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Result;
use crate::machine;
use crate::pins::Pins;

const SCRIPT: &str = include_str!("wrk.lua");
/// How many keys are replayed in turn.
const KEYS: u32 = 1000;
/// The script counts this many letters at the beginning of a key.
const NAME_LENGTH: usize = 12;

/// What the requests are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// No key at all.
    Plain,
    /// A new key every time.
    Fresh,
    /// Keys that were completed.
    Replay,
    /// Some of each.
    Mixed,
}

impl Mode {
    /// What the script calls it.
    const fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fresh => "fresh",
            Self::Replay => "replay",
            Self::Mixed => "mixed",
        }
    }

    /// What the tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "pass-through",
            Self::Fresh => "fresh keys",
            Self::Replay => "replays",
            Self::Mixed => "mixed",
        }
    }
}

/// Who the requests say that they are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// One and the same, by a bearer token.
    Token,
    /// Many, each by a cookie.
    Session,
}

/// One run of wrk.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// What is asked.
    pub mode: Mode,
    /// By whom.
    pub caller: Caller,
    /// On how many connections.
    pub connections: u32,
    /// For how long, in whole seconds.
    pub time: Duration,
}

/// What wrk says at the end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// How many were answered.
    pub requests: u64,
    /// In how long.
    pub seconds: f64,
    /// The latency that half of them did not exceed.
    pub p50_micros: u64,
    /// The latency that all but one in a hundred did not exceed.
    pub p99_micros: u64,
    /// Connections that failed or broke, and answers that came too late.
    pub socket_errors: u64,
    /// Answers of 400 and more.
    pub refused: u64,
}

impl Figures {
    /// What is wrong with what wrk saw.
    pub fn faults(self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.requests == 0 {
            faults.push("no answer at all".to_owned());
        }
        for (count, what) in
            [(self.socket_errors, "socket errors or time-outs"), (self.refused, "answers of 400 or more")]
        {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        faults
    }
}

/// wrk with its script.
#[derive(Debug)]
pub struct Wrk {
    script: PathBuf,
    pins: Pins,
    runs: u64,
}

impl Wrk {
    /// Puts the script into `folder`.
    pub fn new(folder: &Path, pins: Pins) -> Result<Self> {
        let script = folder.join("wrk.lua");
        fs::write(&script, SCRIPT)?;
        Ok(Self { script, pins, runs: 0 })
    }

    /// The next run gets keys of its own.
    pub fn renew(&mut self) {
        self.runs += 1;
    }

    /// The command that puts `load` on whoever listens at `address`.
    pub fn command(&self, load: Load, address: SocketAddr) -> Command {
        let caller = match load.caller {
            Caller::Token => "token",
            Caller::Session => "session",
        };
        let mut command = self.pins.load("wrk");
        command.args(["-t", "1", "-c", &load.connections.to_string()]);
        command.args(["-d", &format!("{}s", load.time.as_secs()), "--latency", "-s"]).arg(&self.script);
        command.arg(format!("http://{address}/payments"));
        command.args(["--", load.mode.word(), &self.name(), &KEYS.to_string(), caller]);
        command
    }

    fn name(&self) -> String {
        format!("{:0NAME_LENGTH$x}", (self.runs << 24) | u64::from(std::process::id() & 0xff_ffff))
    }

    /// Runs it to its end.
    pub fn run(&self, load: Load, address: SocketAddr) -> Result<Figures> {
        figures(&machine::output(&mut self.command(load, address))?)
    }

    /// Starts it, for whoever has something to do meanwhile.
    pub fn start(&self, load: Load, address: SocketAddr) -> Result<Child> {
        let mut command = self.command(load, address);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Ok(child.map_err(|error| format!("starting wrk: {error}"))?)
    }
}

/// Reads the line that the script prints.
pub fn figures(output: &str) -> Result<Figures> {
    let line = output.lines().find_map(|line| line.strip_prefix("figures "));
    let numbers: Vec<u64> =
        line.unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[requests, micros, p50_micros, p99_micros, connect, read, write, timeout, refused] =
        numbers.as_slice()
    else {
        return Err(format!("wrk printed no figures: {output}").into());
    };
    let socket_errors = connect + read + write + timeout;
    let seconds = Duration::from_micros(micros).as_secs_f64();
    Ok(Figures { requests, seconds, p50_micros, p99_micros, socket_errors, refused })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_script_is_read() {
        let output = "Running 1s test\n  2 threads\nfigures 100 2000000 3 4 1 2 3 4 5\n";
        let expected = Figures {
            requests: 100,
            seconds: 2.0,
            p50_micros: 3,
            p99_micros: 4,
            socket_errors: 10,
            refused: 5,
        };
        assert_eq!(figures(output).unwrap(), expected);
        for bad in ["", "figures 1 2 3\n", "figures 1 2 3 4 5 6 7 8 x\n"] {
            assert!(figures(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn no_two_runs_share_a_key_and_all_names_have_one_length() {
        let folder = std::env::temp_dir();
        let mut wrk = Wrk { script: folder, pins: Pins::new(true), runs: 1 };
        let first = wrk.name();
        wrk.renew();
        assert_ne!(first, wrk.name());
        assert_eq!((first.len(), wrk.name().len()), (NAME_LENGTH, NAME_LENGTH));
    }
}
