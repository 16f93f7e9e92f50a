//! Runs other programs: prints the exact command first, and turns a failure into an error that names it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;

/// `cargo` as this process was started by, in the repository's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}

/// Runs `command` with its output shown. Anything but success is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    println!("$ {line}");
    let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{line}` failed: {status}").into()) }
}

/// Runs `command` and gives back what it printed. Its errors stay visible on the terminal.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if !output.status.success() {
        return Err(format!("`{line}` failed: {}", output.status).into());
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{line}` printed bytes that are not UTF-8").into())
}

/// What `program` prints when asked, or `None` when it is absent or fails. Nothing reaches the terminal.
pub(crate) fn probe(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as a person would type it, with the environment variables that were set for it.
pub(crate) fn line(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        Some(format!("{}={}", name.to_string_lossy(), quoted(&value?.to_string_lossy())))
    });
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let program = std::iter::once(program.to_string_lossy().into_owned());
    let arguments = command.get_args().map(|argument| quoted(&argument.to_string_lossy()));
    set.chain(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// Shell quotes, where the shell would need them.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_a_person_would_type_it() {
        let mut command = Command::new("/usr/bin/env");
        command.env("A", "b c").env_remove("D").args(["-E", "test(/soak/)", "it's", ""]);
        assert_eq!(line(&command), r"A='b c' env -E 'test(/soak/)' 'it'\''s' ''");
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.starts_with("`false` failed"), "{error}");
        let error = run(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert!(error.starts_with("cannot start `no-such-program-here`"), "{error}");
    }

    #[test]
    fn a_program_that_is_absent_or_fails_answers_nothing() {
        assert_eq!(probe(Path::new("no-such-program-here"), &[]), None);
        assert_eq!(probe(Path::new("false"), &[]), None);
        assert_eq!(probe(Path::new("echo"), &["here"]).as_deref(), Some("here\n"));
    }
}
