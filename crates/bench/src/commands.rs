//! The commands of a run as a person would type them, each kind once: so that it can be repeated by hand.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// The first command of each kind.
#[derive(Debug)]
pub struct Commands {
    folder: String,
    noted: Vec<(String, String)>,
}

impl Commands {
    /// None yet. What lies below `folder` is shown as `$DIR`.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.display().to_string(), noted: Vec::new() }
    }

    /// Keeps the command for `name`, unless there is one already.
    pub fn note(&mut self, name: &str, line: String) {
        if !self.noted.iter().any(|(noted, _)| noted == name) {
            self.noted.push((name.to_owned(), line));
        }
    }

    /// Ports, process ids and the folder differ from run to run.
    pub fn shown(&self) -> String {
        let mut text = String::from("\n**Commands**\n\n```sh\n");
        for (name, line) in &self.noted {
            let _ = writeln!(text, "# {name}\n{}", line.replace(&self.folder, "$DIR"));
        }
        text + "```\n"
    }
}

/// The command with the variables that were set for it. Of a program only its name: where it lies is one machine's.
pub fn shown(command: &Command) -> String {
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), value?.to_string_lossy())));
    let mut words: Vec<_> = set.collect();
    words.push(file_name(command.get_program()));
    let mut arguments = command.get_args().peekable();
    if command.get_program() == "taskset" {
        words.extend(arguments.by_ref().take(2).map(|word| word.to_string_lossy().into_owned()));
        words.extend(arguments.next().map(file_name));
    }
    words.extend(arguments.map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

fn file_name(program: &OsStr) -> String {
    Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_without_the_folders_of_this_machine() {
        let mut command = Command::new("taskset");
        command.env("A", "1").args(["-c", "0", "some/where/onlyonce", "proxy", "--store", "file:/d/x"]);
        let line = shown(&command);
        assert_eq!(line, "A=1 taskset -c 0 onlyonce proxy --store file:/d/x");
        let mut commands = Commands::new(Path::new("/d"));
        commands.note("sidecar", line);
        commands.note("sidecar", "another".into());
        assert!(
            commands.shown().contains("# sidecar\nA=1 taskset -c 0 onlyonce proxy --store file:$DIR/x\n```")
        );
    }
}
