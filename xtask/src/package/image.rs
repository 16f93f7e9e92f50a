//! An image of one program, made by buildah from the static binary: nothing is fetched, no service runs, and what was made
//! is run once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::Workspace;
use crate::{Result, process, tools};

/// What the machine trusts; the image brings its own.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const LICENCES: [&str; 3] = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"];

/// Makes the image of `binary` as an archive in `folder`, and says where it is.
pub(super) fn make(workspace: &Workspace, binary: &Path, folder: &Path) -> Result<PathBuf> {
    tools::install(&[tools::BUILDAH])?;
    let stage = workspace.target_dir.join("package-image");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let context = stage.join("context");
    fs::create_dir_all(context.join("empty"))?;
    process::run(
        Command::new("strip").arg("--strip-unneeded").arg("-o").arg(context.join("onlyonce")).arg(binary),
    )?;
    fs::copy(CERTIFICATES, context.join("ca-certificates.crt"))?;
    for licence in LICENCES {
        fs::copy(workspace.root.join(licence), context.join(licence))?;
    }
    let name = concat!("onlyonce:", env!("CARGO_PKG_VERSION"));
    let made = folder.join(concat!("onlyonce-", env!("CARGO_PKG_VERSION"), ".oci.tar"));
    fs::create_dir_all(folder)?;
    if made.exists() {
        fs::remove_file(&made)?;
    }
    let buildah = || {
        let mut command = Command::new("buildah");
        // A store of its own, by plain copies: no other image is touched, and no file system is needed for it.
        command.args(["--storage-driver", "vfs", "--root"]).arg(stage.join("images"));
        command.arg("--runroot").arg(stage.join("run"));
        command
    };
    let file = workspace.root.join("deploy/container/Containerfile.static");
    process::run(
        buildah()
            .args([
                "build",
                "--isolation",
                "chroot",
                "--pull-never",
                "--timestamp",
                "0",
                "--tag",
                name,
                "--file",
            ])
            .arg(file)
            .arg(&context),
    )?;
    process::run(
        buildah().args(["push", "--quiet", name]).arg(format!("oci-archive:{}:{name}", made.display())),
    )?;
    runs(&buildah, name)?;
    fs::remove_dir_all(&stage)?;
    Ok(made)
}

/// What is in the image says who it is, and keeps every promise of the tour as nobody, with its records where they belong.
fn runs(buildah: &dyn Fn() -> Command, name: &str) -> Result<()> {
    let container = process::output(buildah().args(["from", "--pull-never", name]))?;
    let run = ["run", "--isolation", "chroot", container.trim(), "--", "/usr/bin/onlyonce", "--version"];
    let version = process::output(buildah().args(run))?;
    if version.trim() != concat!("onlyonce ", env!("CARGO_PKG_VERSION")) {
        return Err(format!("the image says {version}").into());
    }
    let users = process::output(buildah().args(["inspect", "--format", "{{.OCIv1.Config.User}}", name]))?;
    if users.trim() != "65532:65532" {
        return Err(format!("the image runs as {users}").into());
    }
    // The only folder that it may write to; there is no other for what is temporary.
    let place = ["run", "--isolation", "chroot", "--env", "TMPDIR=/var/lib/onlyonce", container.trim(), "--"];
    process::run(buildah().args(place).args(["/usr/bin/onlyonce", "demo", "--tour"]))
}
