//! The packages of the peers, each set in a folder of its own among our tools, by name and version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, process, tools};

const NODE: [&str; 3] = ["express@5.3.0", "ioredis@6.0.0", "pg@8.23.1"];
/// With the fast parts that a careful user installs.
const PYTHON: [&str; 6] = [
    "fastapi==0.162.4",
    "uvicorn==0.54.0",
    "uvloop==0.23.0",
    "httptools==0.9.0",
    "redis==8.1.0",
    "hiredis==3.5.0",
];

/// Where Node finds its packages.
pub(super) fn node() -> Result<PathBuf> {
    let folder = installed("express-5.3.0-ioredis-6.0.0-pg-8.23.1", |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder).args(NODE);
        npm
    })?;
    Ok(folder.join("node_modules"))
}

/// Where Python finds its packages.
pub(super) fn python() -> Result<PathBuf> {
    installed("fastapi-0.162.4-redis-8.1.0", |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        pip.args(["--root-user-action=ignore", "--target"]).arg(folder).args(PYTHON);
        pip
    })
}

/// The folder `name` among our tools, filled by `install` if it is not there yet. It gets its name only when it is
/// complete.
fn installed(name: &str, install: impl FnOnce(&Path) -> Command) -> Result<PathBuf> {
    let tools = tools::folder()?;
    let folder = tools.join(name);
    if folder.is_dir() {
        return Ok(folder);
    }
    let filling = tools.join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&filling)?;
    let filled = process::run(&mut install(&filling));
    if filled.is_err() {
        fs::remove_dir_all(&filling)?;
    }
    filled?;
    fs::rename(&filling, &folder)?;
    Ok(folder)
}
