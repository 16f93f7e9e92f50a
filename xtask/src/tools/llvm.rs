//! The program that merges what a build has counted. It must be of the LLVM that rustc has, and rustc has its own.

use std::path::{Path, PathBuf};

use super::debian;
use crate::{Result, process};

/// What `rustc` says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Compiler {
    /// The target that it builds for when nothing else is said.
    pub(crate) host: String,
    /// The first number of its LLVM's version.
    llvm: u32,
}

impl Compiler {
    /// The one that cargo uses.
    pub(crate) fn read() -> Result<Self> {
        let said = process::probe(&rustc(), &["--version", "--verbose"]).ok_or("rustc does not run")?;
        Self::parse(&said).ok_or_else(|| format!("rustc names no host or no LLVM: {said}").into())
    }

    fn parse(said: &str) -> Option<Self> {
        let field = |name| said.lines().find_map(|line| line.strip_prefix(name));
        let llvm = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
        Some(Self { host: field("host: ")?.to_owned(), llvm })
    }

    /// `llvm-profdata`: rustup's, if that component is there, else Debian's of the same version, which is installed if it
    /// is missing.
    pub(crate) fn profdata(&self) -> Result<PathBuf> {
        let answers = |program: &Path| process::probe(program, &["--version"]).is_some();
        let sysroot = process::probe(&rustc(), &["--print", "sysroot"]).unwrap_or_default();
        let of_rustup =
            Path::new(sysroot.trim()).join("lib/rustlib").join(&self.host).join("bin/llvm-profdata");
        let of_debian = PathBuf::from(format!("llvm-profdata-{}", self.llvm));
        for program in [&of_rustup, &of_debian] {
            if answers(program) {
                return Ok(program.clone());
            }
        }
        debian::install(&[&format!("llvm-{}", self.llvm)])?;
        if answers(&of_debian) {
            Ok(of_debian)
        } else {
            Err(format!("{} was installed but does not run", of_debian.display()).into())
        }
    }
}

/// The program that cargo uses.
fn rustc() -> PathBuf {
    std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_names_its_host_and_its_llvm() {
        let said = "rustc 1.95.0\nhost: x86_64-unknown-linux-gnu\nrelease: 1.95.0\nLLVM version: 22.1.2\n";
        let expected = Compiler { host: "x86_64-unknown-linux-gnu".into(), llvm: 22 };
        assert_eq!(Compiler::parse(said), Some(expected));
        assert_eq!(Compiler::parse("rustc 1.95.0\nhost: x\n"), None);
    }
}
