//! The Debian package: a folder as it will lie on the machine, handed to `dpkg-deb`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::linked;
use crate::workspace::Workspace;
use crate::{Result, process};

/// How hard to compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// To be handed out.
    Small,
    /// To be looked at once.
    Quick,
}

/// Files of the repository, and where they lie on the machine.
const FILES: [(&str, &str); 9] = [
    ("deploy/systemd/onlyonce-proxy.service", "usr/lib/systemd/system/onlyonce-proxy.service"),
    ("deploy/debian/onlyonce.toml", "etc/onlyonce/onlyonce.toml"),
    ("deploy/debian/copyright", "usr/share/doc/onlyonce/copyright"),
    ("deploy/prometheus/onlyonce.rules.yml", "usr/share/onlyonce/prometheus/onlyonce.rules.yml"),
    ("deploy/grafana/onlyonce.json", "usr/share/onlyonce/grafana/onlyonce.json"),
    ("docs/configuration.md", "usr/share/doc/onlyonce/configuration.md"),
    ("docs/guarantees.md", "usr/share/doc/onlyonce/guarantees.md"),
    ("docs/operating.md", "usr/share/doc/onlyonce/operating.md"),
    ("CHANGELOG.md", "usr/share/doc/onlyonce/changelog"),
];
/// Kept as the administrator changed them.
pub(super) const CONFIGURATION: [&str; 1] = ["etc/onlyonce/onlyonce.toml"];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The shell, and where its packages look for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/onlyonce"),
    ("zsh", "usr/share/zsh/vendor-completions/_onlyonce"),
    ("fish", "usr/share/fish/vendor_completions.d/onlyonce.fish"),
];

/// The binary of a release build.
pub(super) fn release(workspace: &Workspace) -> Result<PathBuf> {
    process::run(process::cargo(&workspace.root).args(["build", "--release", "--package", "onlyonce"]))?;
    Ok(workspace.target_dir.join("release/onlyonce"))
}

/// Makes the package of `binary` in `folder`, and says where it is.
pub(super) fn make(workspace: &Workspace, binary: &Path, folder: &Path, effort: Effort) -> Result<PathBuf> {
    let architecture = process::output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned();
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("onlyonce_{version}_{architecture}");
    let stage = folder.join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    place_binary(binary, &stage)?;
    for (from, to) in FILES {
        let to = stage.join(to);
        fs::create_dir_all(to.parent().unwrap_or(&stage))?;
        fs::copy(workspace.root.join(from), to)?;
    }
    place_generated(&stage)?;
    compress(&stage)?;
    place_control(workspace, &stage, &architecture, version)?;
    set_modes(&stage)?;

    let made = folder.join(format!("{name}.deb"));
    let compression: &[&str] = if effort == Effort::Quick { &["-Zgzip", "-z1"] } else { &["-Zxz"] };
    let commit_time = process::output(Command::new("git").current_dir(&workspace.root).args([
        "log",
        "-1",
        "--format=%ct",
    ]))?;
    process::run(
        Command::new("dpkg-deb")
            // The same commit makes the same bytes.
            .env("SOURCE_DATE_EPOCH", commit_time.trim())
            .args(["--root-owner-group"])
            .args(compression)
            .arg("--build")
            .arg(&stage)
            .arg(&made),
    )?;
    fs::remove_dir_all(&stage)?;
    Ok(made)
}

fn place_binary(binary: &Path, stage: &Path) -> Result<()> {
    let bin = stage.join("usr/bin");
    fs::create_dir_all(&bin)?;
    // Line tables are for us; a crash is reported with the release's own.
    process::run(
        Command::new("strip").arg("--strip-unneeded").arg("-o").arg(bin.join("onlyonce")).arg(binary),
    )
}

/// What the binary says of itself: manual pages and completions.
fn place_generated(stage: &Path) -> Result<()> {
    let binary = stage.join("usr/bin/onlyonce");
    process::run(Command::new(&binary).arg("man").arg("--folder").arg(stage.join("usr/share/man/man1")))?;
    for (shell, place) in COMPLETIONS {
        let script = process::output(Command::new(&binary).args(["completions", shell]))?;
        let place = stage.join(place);
        fs::create_dir_all(place.parent().unwrap_or(stage))?;
        fs::write(place, script)?;
    }
    Ok(())
}

/// Debian wants these compressed, without a time in them.
fn compress(stage: &Path) -> Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "-n"]).arg(stage.join("usr/share/doc/onlyonce/changelog"));
    for page in fs::read_dir(stage.join("usr/share/man/man1"))? {
        gzip.arg(page?.path());
    }
    if !gzip.status()?.success() {
        return Err("gzip failed".into());
    }
    Ok(())
}

fn place_control(workspace: &Workspace, stage: &Path, architecture: &str, version: &str) -> Result<()> {
    let control = stage.join("DEBIAN");
    let files = files(stage)?;
    let size: u64 = files.iter().map(|file| fs::metadata(file).map_or(0, |it| it.len())).sum();
    let mut sums = Command::new("md5sum");
    sums.current_dir(stage);
    for file in &files {
        let file = file.strip_prefix(stage)?;
        if !CONFIGURATION.iter().any(|configuration| Path::new(configuration) == file) {
            sums.arg(file);
        }
    }
    let sums = process::output(&mut sums)?;
    let template = fs::read_to_string(workspace.root.join("deploy/debian/control"))?;
    let mut filled = template
        .replace("@VERSION@", version)
        .replace("@ARCHITECTURE@", architecture)
        .replace("@SIZE@", &size.div_ceil(1024).to_string())
        .replace("@DEPENDS@", &linked::depends(&stage.join("usr/bin/onlyonce"))?);
    // A static binary depends on nothing, and an empty field is not allowed.
    filled = filled.lines().filter(|line| line.trim() != "Depends:").fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "{line}");
        all
    });
    fs::create_dir_all(&control)?;
    fs::write(control.join("control"), filled)?;
    fs::write(control.join("md5sums"), sums)?;
    let configuration = CONFIGURATION.map(|file| format!("/{file}\n")).concat();
    fs::write(control.join("conffiles"), configuration)?;
    for script in SCRIPTS {
        fs::copy(workspace.root.join("deploy/debian").join(script), control.join(script))?;
    }
    Ok(())
}

/// Programs and scripts may be run, all else is only read; whatever the umask here is.
fn set_modes(stage: &Path) -> Result<()> {
    let runs = |file: &Path| {
        let scripts = SCRIPTS.iter().any(|script| file.ends_with(Path::new("DEBIAN").join(script)));
        scripts || file.ends_with("usr/bin/onlyonce")
    };
    for file in files(stage)? {
        fs::set_permissions(&file, fs::Permissions::from_mode(if runs(&file) { 0o755 } else { 0o644 }))?;
    }
    process::output(
        Command::new("find").arg(stage).args(["-type", "d", "-exec", "chmod", "755", "{}", "+"]),
    )?;
    Ok(())
}

/// Every file below `folder`, in order.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}
