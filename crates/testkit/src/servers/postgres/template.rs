//! `initdb` once for each version on a machine: every other cluster is a copy of that one, which takes a fifth of the time.
//!
//! It is kept among the tools that tests install for themselves, never in a folder that others can write to: whoever
//! could put a cluster there would have its settings run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Counts changes of how clusters are made.
const EDITION: u32 = 1;

/// Where the cluster of this version of the server is kept; nowhere without a home.
fn place(version: u32) -> Option<PathBuf> {
    let tools = std::env::var_os("ONLYONCE_TOOLS").map(PathBuf::from);
    let tools =
        tools.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/onlyonce/tools")))?;
    Some(tools.join(format!("postgres-cluster-{version}.{EDITION}")))
}

/// Makes `cluster` from the one that is kept. `false` when there is none.
pub(super) fn copied(version: u32, cluster: &Path) -> io::Result<bool> {
    match place(version) {
        Some(kept) if kept.is_dir() => copy(&kept, cluster).map(|()| true),
        _ => Ok(false),
    }
}

/// Keeps `cluster`, which was just made, for those who come later. Two may do so at once: the first one to be done is
/// kept. Who cannot keep it has lost nothing.
pub(super) fn keep(version: u32, cluster: &Path) -> io::Result<()> {
    let Some(kept) = place(version) else { return Ok(()) };
    let Some(tools) = kept.parent() else { return Ok(()) };
    fs::create_dir_all(tools)?;
    let filling = tempfile::tempdir_in(tools)?;
    let copied = filling.path().join("cluster");
    copy(cluster, &copied)?;
    // ORDER: on the disk before it has its name, so that a power cut leaves no half of it to be copied for ever.
    Command::new("sync").arg("--file-system").arg(&copied).status()?;
    // Somebody else was first: theirs is as good.
    let _ = fs::rename(&copied, &kept);
    Ok(())
}

/// With owners, modes and all; where the file system can share blocks, it does.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let mut command = Command::new("cp");
    command.args(["--archive", "--reflink=auto", "--no-target-directory"]).arg(from).arg(to);
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("cp: {}", String::from_utf8_lossy(&output.stderr))))
}
