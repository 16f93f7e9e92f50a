//! A binary that is laid out by what it was seen to do: built to count, run under load, and built again by the counts.
//!
//! What no load reaches is made small instead of fast, so the load goes over every store, both versions of HTTP, TLS, and
//! the claims API. Nothing else about the binary changes: no check is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench;
use crate::tools::{self, Compiler};
use crate::workspace::Workspace;
use crate::{Result, process};

/// Builds it and puts it into `folder`.
pub(super) fn make(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    tools::install(&[tools::WRK, tools::H2LOAD, tools::REDIS, tools::POSTGRES])?;
    let compiler = Compiler::read()?;
    let profdata = compiler.profdata()?;
    // Apart from other builds: with other flags each of the two builds everything anew.
    let work = workspace.target_dir.join("trained");
    let counts = work.join("counts");
    if counts.exists() {
        fs::remove_dir_all(&counts)?;
    }
    fs::create_dir_all(&counts)?;
    let counting =
        build(workspace, &compiler, &work, &[&format!("-Cprofile-generate={}", counts.display())])?;
    train(workspace, &counting)?;
    let profile = work.join("profile.profdata");
    process::run(Command::new(profdata).args(["merge", "--output"]).arg(&profile).arg(&counts))?;
    let by_counts = format!("-Cprofile-use={}", profile.display());
    let built = build(workspace, &compiler, &work, &[&by_counts, TOGETHER])?;
    fs::create_dir_all(folder)?;
    let made = folder.join("onlyonce-trained");
    fs::copy(built, &made)?;
    Ok(made)
}

/// What is done often is put side by side. The linker would else leave it where it was compiled, between what is never done:
/// a request went through pages of code all over sixteen megabytes.
const TOGETHER: &str = "-Clink-arg=-Wl,-z,keep-text-section-prefix";

/// Builds the program with more flags. With a target, so that what runs while it is built does not count.
fn build(workspace: &Workspace, compiler: &Compiler, work: &Path, flags: &[&str]) -> Result<PathBuf> {
    let mut cargo = process::cargo(&workspace.root);
    // Not `RUSTFLAGS`, which has no way to write a folder with a space in its name.
    cargo.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    cargo.args(["build", "--release", "--package", "onlyonce", "--bin", "onlyonce"]);
    cargo.args(["--target", &compiler.host, "--target-dir"]).arg(work);
    process::run(&mut cargo)?;
    Ok(work.join(&compiler.host).join("release/onlyonce"))
}

/// Puts load on it. It counts while it runs, and writes the counts when it ends.
fn train(workspace: &Workspace, onlyonce: &Path) -> Result<()> {
    let proxy = bench::build(workspace, "bench-train", &["train"])?;
    let folder = workspace.target_dir.join("bench-train");
    process::run(Command::new(proxy).arg("--folder").arg(folder).arg("--onlyonce").arg(onlyonce))?;
    let claims = bench::build(workspace, "bench-claims", &["claims"])?;
    let folder = workspace.target_dir.join("bench-claims");
    process::run(
        Command::new(claims)
            .arg("--folder")
            .arg(folder)
            .arg("--onlyonce")
            .arg(onlyonce)
            .args(["--rounds", "1", "--seconds", "2", "--waiters", "500", "--any-disk"])
            // Its figures are those of a program that counts: nobody is to read them.
            .stdout(std::process::Stdio::null()),
    )
}
