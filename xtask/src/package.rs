//! `cargo xtask package`: what is handed out besides the source. A Debian package, a binary that needs no library, and an
//! image of that binary.
//!
//! Everything in a package comes from the binary itself (manual pages, completions) or from `deploy/` and `docs/`.

mod alone;
mod check;
mod deb;
mod image;
mod linked;
mod standalone;
mod trained;

use std::path::PathBuf;

use clap::Subcommand;

use crate::Result;
use crate::workspace::Workspace;

pub(crate) use check::check;

/// What is made.
#[derive(Debug, Subcommand)]
pub(crate) enum Package {
    /// A Debian package: binary, service, manual pages, completions, configuration.
    #[command(after_help = "Example: cargo xtask package deb --output dist")]
    Deb {
        /// A binary that was built already [default: a release build is made]
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Where the package goes [default: the target folder's `package`]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Make a Debian package of the binary that the tests are run with, unpack it and use it, as `cargo xtask test` does.
    #[command(after_help = "Example: cargo xtask package check")]
    Check,
    /// A binary that is faster where callers wait: built to count what it does, run under load, and built again by the counts.
    ///
    /// About half an hour. Needs wrk, h2load, Redis, Postgres and llvm-profdata; Debian packages that are missing are
    /// installed with apt-get, which needs root; no service is started. `package deb --binary` makes a package of it, and
    /// `bench http --onlyonce` measures it.
    #[command(after_help = "Example: cargo xtask package trained --output dist")]
    Trained {
        /// Where the binary goes [default: the target folder's `package`]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// A binary without shared libraries: with musl where rustup has it, else with a static glibc. It says which.
    #[command(after_help = "Example: cargo xtask package static --output dist")]
    Static {
        /// The profile that it is built with.
        #[arg(long, default_value = "release")]
        profile: String,
        /// Where the binary goes [default: the target folder's `package`]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// An image of that binary and nothing else, as an archive that podman and docker load. It is run once.
    #[command(after_help = "Example: cargo xtask package image --output dist")]
    Image {
        /// A static binary that was built already [default: one is built as `package static` does]
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
        /// Where the archive goes [default: the target folder's `package`]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
}

pub(crate) fn run(package: &Package) -> Result<()> {
    let workspace = Workspace::read()?;
    let folder =
        |output: &Option<PathBuf>| output.clone().unwrap_or_else(|| workspace.target_dir.join("package"));
    match package {
        Package::Deb { binary, output } => {
            let binary = match binary {
                Some(binary) => binary.clone(),
                None => deb::release(&workspace)?,
            };
            let made = deb::make(&workspace, &binary, &folder(output), deb::Effort::Small)?;
            println!("{}", made.display());
        }
        Package::Check => check(&workspace)?,
        Package::Static { profile, output } => {
            let made = standalone::make(&workspace, profile, &folder(output))?;
            println!("{}", made.display());
        }
        Package::Trained { output } => {
            let made = trained::make(&workspace, &folder(output))?;
            println!("{}", made.display());
        }
        Package::Image { binary, output } => {
            let binary = match binary {
                Some(binary) => binary.clone(),
                None => standalone::make(&workspace, "release", &folder(output))?,
            };
            let made = image::make(&workspace, &binary, &folder(output))?;
            println!("{}", made.display());
        }
    }
    Ok(())
}
