//! This test program started again, as another process that is told what to do and says how it went.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};

/// Says a line, at once and on a line of its own: the test's name may stand before it.
pub(crate) fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "\n{line}").and_then(|()| stdout.flush());
}

/// Another process, and its voice. It ends with this.
pub(crate) struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Runs the test `name` of this program with `variables`.
    pub(crate) fn start(name: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", name, "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Self { child, said }
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{line}").expect("the process listens");
    }

    /// The next line that begins so.
    pub(crate) fn hear(&mut self, beginning: &str) -> String {
        let mut said = self.said.by_ref().map_while(Result::ok);
        said.find(|line| !line.is_empty() && line.starts_with(beginning)).expect("the process goes on")
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
