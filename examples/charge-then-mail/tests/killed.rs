//! The program is killed with SIGKILL at every point, and run again: between steps each effect happens once; inside a
//! step the step's own policy decides.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed check panics")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use tempfile::TempDir;

struct Shop(TempDir);

impl Shop {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, settings: &[(&str, &str)]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_charge-then-mail"));
        for name in ["STOP_AT", "UNKNOWN", "CHARGED"] {
            command.env_remove(name);
        }
        command.arg("order-7").env("SHOP", self.0.path()).envs(settings.iter().copied()).stdin(Stdio::null());
        command
    }

    /// Runs the program until it stands at `point`, and kills it there.
    fn killed_at(&self, point: &str, settings: &[(&str, &str)]) {
        let mut child = self.command(settings).env("STOP_AT", point).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(line.trim(), format!("at {point}"));
    }

    /// Runs the program to its end: its exit code, and what it said.
    fn run(&self, settings: &[(&str, &str)]) -> (i32, String) {
        let output = self.command(settings).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let code = output.status.code().unwrap_or_else(|| panic!("it was killed: {said}"));
        assert!(code == 0 || code == 3, "{said} {}", String::from_utf8_lossy(&output.stderr));
        (code, said)
    }

    /// How many charges and mails there were.
    fn effects(&self) -> (usize, usize) {
        let count = |name| fs::read_to_string(self.0.path().join(name)).unwrap_or_default().lines().count();
        (count("charges.txt"), count("mails.txt"))
    }
}

#[test]
fn undisturbed_it_happens_once_however_often_it_is_run() {
    let shop = Shop::new();
    assert_eq!(shop.run(&[]), (0, "ch_1".to_owned()));
    assert_eq!(shop.run(&[]), (0, "ch_1 (replayed)".to_owned()));
    assert_eq!(shop.effects(), (1, 1));
}

#[test]
fn killed_between_any_two_steps_each_effect_happens_once() {
    for point in ["begun", "charged", "mailed"] {
        let shop = Shop::new();
        // Twice: the second attempt is killed at the same point.
        shop.killed_at(point, &[]);
        shop.killed_at(point, &[]);
        assert_eq!(shop.run(&[]), (0, "ch_1".to_owned()), "killed at {point}");
        assert_eq!(shop.effects(), (1, 1), "killed at {point}");
    }
}

#[test]
fn killed_inside_a_step_that_stops_nothing_runs_until_someone_has_looked() {
    for (point, charges, found) in [("charge: before", 0, "no"), ("charge: after", 1, "ch_1")] {
        let shop = Shop::new();
        shop.killed_at(point, &[]);
        for _ in 0..2 {
            let (code, said) = shop.run(&[]);
            assert_eq!(code, 3, "{said}");
            assert_eq!(shop.effects(), (charges, 0), "killed at {point}");
        }
        assert_eq!(shop.run(&[("CHARGED", found)]), (0, "ch_1".to_owned()), "killed at {point}");
        assert_eq!(shop.effects(), (1, 1), "killed at {point}");
    }
}

#[test]
fn killed_inside_a_repeatable_step_it_runs_again() {
    for (point, mails) in [("mail: before", 1), ("mail: after", 2)] {
        let shop = Shop::new();
        shop.killed_at(point, &[]);
        assert_eq!(shop.run(&[]), (0, "ch_1".to_owned()), "killed at {point}");
        assert_eq!(shop.effects(), (1, mails), "killed at {point}");
    }
}

#[test]
fn under_hold_nothing_runs_again_wherever_it_was_killed() {
    let hold = [("UNKNOWN", "hold")];
    for point in
        ["begun", "charge: before", "charge: after", "charged", "mail: before", "mail: after", "mailed"]
    {
        let shop = Shop::new();
        shop.killed_at(point, &hold);
        let before = shop.effects();
        assert_eq!(shop.run(&hold).0, 3, "killed at {point}");
        assert_eq!(shop.effects(), before, "killed at {point}");
    }
}
