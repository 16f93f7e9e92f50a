//! The step of `cargo xtask test` that makes a package, unpacks it and uses what is in it. Also what `deploy/` has for
//! systemd: the service is loaded and judged by systemd's own tools.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::deb::{self, CONFIGURATION, Effort};
use crate::workspace::Workspace;
use crate::{Result, process};

/// systemd's measure of what a service could do to the machine, in tenths: 0 is nothing, 100 is everything.
const EXPOSURE_MAX: &str = "--threshold=15";

/// What a package must hold besides the manual pages.
const EXPECTED: [&str; 9] = [
    "usr/bin/onlyonce",
    "usr/lib/systemd/system/onlyonce-proxy.service",
    "etc/onlyonce/onlyonce.toml",
    "usr/share/doc/onlyonce/copyright",
    "usr/share/doc/onlyonce/changelog.gz",
    "usr/share/bash-completion/completions/onlyonce",
    "usr/share/onlyonce/prometheus/onlyonce.rules.yml",
    "usr/share/man/man1/onlyonce.1.gz",
    "usr/share/man/man1/onlyonce-proxy.1.gz",
];

/// Makes a package of the binary that the tests were run with, and uses it.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    // Word for word what the tests are built with. A plain `build` leaves out what the tests ask of libraries, and so
    // builds every library once more.
    let build = "test --quiet --no-run --workspace --all-features";
    process::run(process::cargo(&workspace.root).args(build.split(' ')))?;
    let binary = workspace.target_dir.join("debug/onlyonce");
    let folder = workspace.target_dir.join("package-check");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let package = deb::make(workspace, &binary, &folder, Effort::Quick)?;
    process::run(Command::new("dpkg-deb").arg("--info").arg(&package))?;
    owned_by_root(&process::output(Command::new("dpkg-deb").arg("--contents").arg(&package))?)?;

    let root = folder.join("root");
    process::run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&root))?;
    process::run(Command::new("dpkg-deb").arg("--control").arg(&package).arg(folder.join("control")))?;
    for file in EXPECTED {
        if !root.join(file).is_file() {
            return Err(format!("{file} is not in the package").into());
        }
    }
    sums_are_right(&root, &folder.join("control"))?;
    use_it(&root)?;
    service(&workspace.root, &root)?;
    Ok(fs::remove_dir_all(&folder)?)
}

fn owned_by_root(contents: &str) -> Result<()> {
    match contents.lines().find(|line| !line.contains(" root/root ")) {
        None => Ok(()),
        Some(line) => Err(format!("not root's: {line}").into()),
    }
}

/// Every file is either configuration or has its sum.
fn sums_are_right(root: &Path, control: &Path) -> Result<()> {
    let sums = control.join("md5sums");
    let checked = process::output(Command::new("md5sum").current_dir(root).arg("--check").arg(&sums))?;
    let files = deb::files(root)?.len();
    if checked.lines().count() + CONFIGURATION.len() != files {
        return Err(format!("{files} files, but the sums are of others:\n{checked}").into());
    }
    let configuration = fs::read_to_string(control.join("conffiles"))?;
    if configuration.lines().ne(CONFIGURATION.iter().map(|file| format!("/{file}"))) {
        return Err(format!("other configuration files: {configuration}").into());
    }
    Ok(())
}

/// The binary runs, its configuration is good, `man` and `bash` take what they get.
fn use_it(root: &Path) -> Result<()> {
    let binary = root.join("usr/bin/onlyonce");
    let version = process::output(Command::new(&binary).arg("--version"))?;
    if version.trim() != concat!("onlyonce ", env!("CARGO_PKG_VERSION")) {
        return Err(format!("another version: {version}").into());
    }
    let configuration = root.join("etc/onlyonce/onlyonce.toml");
    process::run(Command::new(&binary).args(["config", "check"]).arg(configuration))?;
    let page = root.join("usr/share/man/man1/onlyonce-proxy.1.gz");
    let page = process::output(Command::new("man").arg("--local-file").arg(page))?;
    if !page.contains("SYNOPSIS") {
        return Err("the manual page cannot be shown".into());
    }
    process::run(
        Command::new("bash").arg("-n").arg(root.join("usr/share/bash-completion/completions/onlyonce")),
    )
}

/// systemd knows every line of the service, and thinks that it can do little harm.
fn service(repository: &Path, root: &Path) -> Result<()> {
    let unit = repository.join("deploy/systemd/onlyonce-proxy.service");
    // Loaded with the binary where it is now, not where it will be.
    let binary = root.join("usr/bin/onlyonce").display().to_string();
    let here = root.join("onlyonce-proxy.service");
    fs::write(&here, fs::read_to_string(&unit)?.replace("/usr/bin/onlyonce", &binary))?;
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&here).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    // It only warns of lines that it does not know.
    if !output.status.success() || told.contains("onlyonce-proxy.service") {
        return Err(format!("systemd-analyze verify: {told}").into());
    }
    let judged = ["security", "--offline=true", "--no-pager", EXPOSURE_MAX];
    process::output(Command::new("systemd-analyze").args(judged).arg(&unit)).map(drop)
}
