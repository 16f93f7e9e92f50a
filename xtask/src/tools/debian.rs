//! Installs Debian packages without starting the services they bring: tests start their own, on free ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Result, process};

/// Asked by Debian's packages whether a service may start; 101 means no.
const POLICY: &str = "/usr/sbin/policy-rc.d";
const POLICY_TEXT: &str =
    "#!/bin/sh\n# Written by cargo xtask while it installs packages; safe to delete.\nexit 101\n";

/// Installs `packages` with apt-get, which needs root.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    let user = process::probe(Path::new("id"), &["-u"]).unwrap_or_default();
    if user.trim() != "0" {
        return Err(format!("missing Debian packages, and this is not root: install {names} first").into());
    }
    let _services = ServicesHeld::hold(Path::new(POLICY))?;
    process::run(apt().args(["update", "-qq"]))?;
    process::run(apt().args(["install", "-qq", "--yes", "--no-install-recommends"]).args(packages))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    // Another run on this machine may be installing: wait for it, within reason.
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// While this lives no service is started by a package. A policy that somebody else wrote is left alone.
struct ServicesHeld<'a> {
    ours: Option<&'a Path>,
}

impl<'a> ServicesHeld<'a> {
    fn hold(policy: &'a Path) -> Result<Self> {
        // One that we left behind when a run was interrupted is ours to remove.
        let ours = match fs::read_to_string(policy) {
            Ok(text) => text == POLICY_TEXT,
            Err(_) => true,
        };
        if !ours {
            return Ok(Self { ours: None });
        }
        fs::write(policy, POLICY_TEXT)?;
        let held = Self { ours: Some(policy) };
        process::output(Command::new("chmod").arg("755").arg(policy))?;
        Ok(held)
    }
}

impl Drop for ServicesHeld<'_> {
    fn drop(&mut self) {
        if let Some(policy) = self.ours {
            // Nothing to be done about a failure here, and the file says that it may be deleted.
            let _ = fs::remove_file(policy);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_policy_is_there_while_held_and_gone_afterwards() {
        let policy = std::env::temp_dir().join(format!("onlyonce-policy-ours-{}", std::process::id()));
        let held = ServicesHeld::hold(&policy).unwrap();
        assert!(Command::new("test").arg("-x").arg(&policy).status().unwrap().success());
        assert_eq!(Command::new("sh").arg(&policy).status().unwrap().code(), Some(101));
        drop(held);
        assert!(!policy.exists());
    }

    #[test]
    fn a_policy_of_somebody_else_is_left_alone() {
        let policy = std::env::temp_dir().join(format!("onlyonce-policy-theirs-{}", std::process::id()));
        fs::write(&policy, "exit 0\n").unwrap();
        drop(ServicesHeld::hold(&policy).unwrap());
        assert_eq!(fs::read_to_string(&policy).unwrap(), "exit 0\n");
        fs::remove_file(&policy).unwrap();
    }
}
