//! Which shared libraries a binary needs, and which Debian packages have them.

use std::path::Path;
use std::process::Command;

use crate::{Result, process};

/// The libraries that a binary of ours may need, and the package of each. glibc's parts are asked for by version.
const PACKAGES: [(&str, &str); 3] =
    [("libgcc_s.so", "libgcc-s1"), ("libstdc++.so", "libstdc++6"), ("libz.so", "zlib1g")];
const GLIBC: [&str; 6] = ["libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "ld-linux"];

/// The libraries that `binary` names as needed. None: it is static.
pub(super) fn needed(binary: &Path) -> Result<Vec<String>> {
    let headers = process::output(Command::new("objdump").arg("--private-headers").arg(binary))?;
    Ok(headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"))
        .map(|name| name.trim().to_owned())
        .collect())
}

/// What the package must depend on. A library that nobody thought of is an error.
pub(super) fn depends(binary: &Path) -> Result<String> {
    let mut packages = Vec::new();
    for library in needed(binary)? {
        let known = PACKAGES.iter().find(|(name, _)| library.starts_with(name));
        if let Some((_, package)) = known {
            packages.push((*package).to_owned());
        } else if !GLIBC.iter().any(|part| library.starts_with(part)) {
            return Err(
                format!("the binary needs {library}: say in package/linked.rs where it comes from").into()
            );
        }
    }
    if let Some((major, minor)) = glibc(binary)? {
        packages.insert(0, format!("libc6 (>= {major}.{minor})"));
    }
    Ok(packages.join(", "))
}

/// The newest version of glibc that a symbol is asked for by.
fn glibc(binary: &Path) -> Result<Option<(u32, u32)>> {
    let symbols = process::output(Command::new("objdump").arg("--dynamic-syms").arg(binary))?;
    Ok(symbols.split("GLIBC_").skip(1).filter_map(version).max())
}

/// `2.34) __libc_start_main` is 2.34.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split(|c: char| !(c.is_ascii_digit() || c == '.')).next()?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_numbers() {
        assert_eq!(version("2.34) __libc_start_main"), Some((2, 34)));
        assert!(version("2.4 x") < version("2.34 y"), "not as text");
        assert_eq!(version("PRIVATE"), None);
    }

    #[test]
    fn what_this_test_needs_is_known() {
        let this = std::env::current_exe().unwrap();
        assert!(!needed(&this).unwrap().is_empty());
        assert!(depends(&this).unwrap().starts_with("libc6 (>= 2."));
        assert!(needed(Path::new("no-such-file")).is_err());
    }
}
