//! A binary that needs no shared library: one file to copy into any image or onto any machine.

use std::fs;
use std::path::{Path, PathBuf};

use super::{alone, linked};
use crate::workspace::Workspace;
use crate::{Result, process, tools};

const MUSL: &str = "x86_64-unknown-linux-musl";
const GLIBC: &str = "x86_64-unknown-linux-gnu";

/// Builds it and puts it into `folder`. Its name says what it was linked with.
pub(super) fn make(workspace: &Workspace, profile: &str, folder: &Path) -> Result<PathBuf> {
    let target = target();
    let mut build = process::cargo(&workspace.root);
    build.args([
        "build",
        "--package",
        "onlyonce",
        "--bin",
        "onlyonce",
        "--target",
        target,
        "--profile",
        profile,
    ]);
    if target == MUSL {
        // Compiles the C parts: ring, the allocator.
        tools::install(&[tools::MUSL])?;
        println!("static, with musl");
    } else {
        // Host names are looked up by shared libraries of glibc's, which must be on the machine in this version.
        println!(
            "static, with glibc: {MUSL} cannot be had. Names of hosts need the same glibc where it runs"
        );
        build.env("RUSTFLAGS", "-C target-feature=+crt-static");
    }
    process::run(&mut build)?;
    // The profile `dev` has a folder of another name.
    let built_in = if profile == "dev" { "debug" } else { profile };
    let built = workspace.target_dir.join(target).join(built_in).join("onlyonce");
    let needed = linked::needed(&built)?;
    if !needed.is_empty() {
        return Err(format!("{} is not static: it needs {}", built.display(), needed.join(", ")).into());
    }
    fs::create_dir_all(folder)?;
    let made = folder.join(format!("onlyonce-{target}"));
    fs::copy(&built, &made)?;
    let version = process::output(std::process::Command::new(&made).arg("--version"))?;
    println!("{}: no shared library", version.trim());
    alone::prove(&made, &workspace.target_dir.join("package-root"))?;
    Ok(made)
}

/// musl if rustup has it, or can fetch it.
fn target() -> &'static str {
    let fetched = process::probe(Path::new("rustup"), &["target", "add", MUSL]).is_some();
    if fetched { MUSL } else { GLIBC }
}
